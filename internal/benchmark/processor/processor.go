//go:build linux

// Package processor decides where the processes of a benchmark run, and who goes first. Only on Linux.
package processor

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Split parts the processors that this process may use: the first n, and the others. Both must be some.
func Split(n int) (front, back *unix.CPUSet, err error) {
	front, back = new(unix.CPUSet), new(unix.CPUSet)
	if err := unix.SchedGetaffinity(0, back); err != nil {
		return nil, nil, err
	}
	if n < 1 || back.Count() <= n {
		return nil, nil, fmt.Errorf("%d of %d processors: want at least one on either side", n, back.Count())
	}
	for cpu := 0; front.Count() < n; cpu++ {
		if back.IsSet(cpu) {
			front.Set(cpu)
			back.Clear(cpu)
		}
	}
	return front, back, nil
}

// Bind binds a process that runs to processors. Nil means that it stays where it is.
func Bind(pid int, cpus *unix.CPUSet) error {
	if cpus == nil {
		return nil
	}
	return everyThread(pid, func(thread int) error { return unix.SchedSetaffinity(thread, cpus) })
}

// Yield lets a process that runs give way to all others, or ends that: it runs where a processor would be idle
// (SCHED_IDLE, sched(7)), and another that wakes up has its processor at once. With a niceness, even the highest, it
// would keep one for milliseconds while others wait.
func Yield(pid int, yields bool) error {
	how := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if yields {
		how.Policy = unix.SCHED_IDLE
	}
	return everyThread(pid, func(thread int) error { return unix.SchedSetAttr(thread, &how, 0) })
}

// everyThread changes all threads of a process. New ones inherit that; a second look finds those that began meanwhile.
func everyThread(pid int, change func(thread int) error) error {
	for range 2 {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name()) // the kernel writes numbers
			if err := change(id); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
