//go:build unix

package history

import "golang.org/x/sys/unix"

// Monotonic is CLOCK_MONOTONIC: one clock for all processes of a machine, unmoved when the time of day is
// set. It does not advance while the machine is suspended.
func Monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock is always there
	}
	return now.Nano()
}
