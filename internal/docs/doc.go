// Package docs holds tests about the documentation: what every package must have, and links that must
// lead somewhere.
package docs
