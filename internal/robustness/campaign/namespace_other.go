//go:build !linux

package campaign

// EnterNamespace does nothing: only Linux has network namespaces.
func EnterNamespace() {}
