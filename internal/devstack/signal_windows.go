package devstack

import "syscall"

// The signals that pause a process and let it go on. This system has none: they are refused when they are sent.
const (
	Pause = syscall.Signal(0x13)
	GoOn  = syscall.Signal(0x12)
)
