// Package hook calls the functions of a Hooks type, any of which may be nil.
package hook

// Call calls a hook if there is one.
func Call[T any](hook func(T), info T) {
	if hook != nil {
		hook(info)
	}
}
