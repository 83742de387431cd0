//go:build unix

package socket

import (
	"errors"
	"os"
	"syscall"
)

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

// readOnce reads what is there. It reports whether there was anything, if only the end.
func (c *Conn) readOnce(fd uintptr) bool {
	for {
		n, err := syscall.Read(int(fd), c.in.buf[:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			c.in.failed = os.NewSyscallError("read", err)
		case n > 0:
			c.in.rest = c.in.buf[:n]
			c.hear()
		}
		return true // the end is read again
	}
}
