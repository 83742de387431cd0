//go:build !unix

package socket

import "syscall"

// attempt would be a write that does not wait: here, none is tried.
type attempt struct{}

func (*attempt) init() {}

func (*attempt) write(syscall.RawConn, []byte) int { return 0 }

func (*Conn) readOnce(uintptr) bool { return true }
