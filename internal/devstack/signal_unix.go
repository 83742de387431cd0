//go:build unix

package devstack

import "syscall"

// The signals that pause a process and let it go on.
const (
	Pause = syscall.SIGSTOP
	GoOn  = syscall.SIGCONT
)
