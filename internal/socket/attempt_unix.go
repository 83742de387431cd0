//go:build unix

package socket

import "syscall"

// attempt is a write that does not wait. It is kept, since a function for each write is garbage.
type attempt struct {
	out  []byte
	n    int
	once func(fd uintptr) bool
}

func (a *attempt) init() { a.once = a.call }

// write returns how many bytes the network took at once. An error is met again by the next write that waits.
func (a *attempt) write(raw syscall.RawConn, out []byte) int {
	a.out, a.n = out, 0
	_ = raw.Write(a.once)
	a.out = nil
	return max(a.n, 0)
}

func (a *attempt) call(fd uintptr) bool {
	a.n, _ = syscall.Write(int(fd), a.out)
	return true // whether or not it took anything
}
