// Package acl tests the Redis users of deploy/acl: that every actor works under its own, and what each of
// them is refused.
package acl
