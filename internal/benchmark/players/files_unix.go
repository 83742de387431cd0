//go:build unix

package players

import (
	"fmt"
	"io"
	"syscall"
)

// spareFiles are the open files of a process besides the sockets of players: servers, logs, listeners.
const spareFiles = 500

// WantFiles makes room for so many sockets of players, and says on errs if the system refuses it. Go has raised the
// soft limit to the hard one by now; a hard limit that is too low can be raised by root alone.
func WantFiles(errs io.Writer, sockets int) {
	var limit syscall.Rlimit
	want := uint64(sockets + spareFiles)
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= want {
		return
	}
	higher := syscall.Rlimit{Cur: want, Max: max(limit.Max, want)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &higher); err != nil {
		fmt.Fprintf(errs, "battle: %d sockets need up to %d open files, and the limit is %d (%v): raise it, "+
			"with ulimit -n, or connections will be refused\n", sockets, want, limit.Cur, err)
	}
}
