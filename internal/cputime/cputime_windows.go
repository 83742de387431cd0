// Package cputime measures what the process has used of the processors: on a shared machine that is steadier than the
// clock.
package cputime

import (
	"syscall"
	"time"
)

// Used is what the process has used so far, in all its threads.
func Used() time.Duration {
	var created, ended, kernel, user syscall.Filetime
	self, _ := syscall.GetCurrentProcess() // of this process neither call can fail
	_ = syscall.GetProcessTimes(self, &created, &ended, &kernel, &user)
	units := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) } // of 100 ns
	return time.Duration(100 * (units(kernel) + units(user)))
}
