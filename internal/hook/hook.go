// Package hook calls, and extends, the functions of a Hooks type, any of which may be nil.
package hook

// Call calls a hook if there is one.
func Call[T any](hook func(T), info T) {
	if hook != nil {
		hook(info)
	}
}

// Attach has a hook call more before what it calls already.
func Attach[T any](hook *func(T), more func(T)) {
	own := *hook
	if own == nil {
		*hook = more
		return
	}
	*hook = func(info T) {
		more(info)
		own(info)
	}
}
