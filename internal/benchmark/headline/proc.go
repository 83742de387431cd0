//go:build linux

package headline

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// proc is a process as /proc describes it.
type proc struct {
	parent   int
	used     time.Duration // processor time, with that of children that have ended
	resident int64         // bytes
}

// parseStat reads a line of /proc/PID/stat. The program's name, in parentheses, may hold anything.
func parseStat(line []byte) (proc, error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return proc{}, fmt.Errorf("stat: no name in %q", line)
	}
	f := strings.Fields(string(line[end+1:])) // from the state, which is field 3 of proc(5)
	const parent, utime, cstime, rss = 1, 11, 14, 21
	if len(f) <= rss {
		return proc{}, fmt.Errorf("stat: %d fields in %q", len(f), line)
	}
	number := func(i int) (n int64) {
		n, _ = strconv.ParseInt(f[i], 10, 64) // the kernel writes numbers
		return n
	}
	p := proc{parent: int(number(parent)), resident: number(rss) * int64(os.Getpagesize())}
	for i := utime; i <= cstime; i++ {
		p.used += time.Duration(number(i)) * clockTick
	}
	return p, nil
}

// processes reads all processes of a /proc.
func processes(root string) (map[int]proc, error) {
	all := map[int]proc{}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		pid, notPID := strconv.Atoi(e.Name())
		if notPID != nil {
			continue
		}
		line, readErr := os.ReadFile(filepath.Join(root, e.Name(), "stat"))
		if readErr != nil {
			continue // it has ended
		}
		if all[pid], err = parseStat(line); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		err = errors.Join(err, fmt.Errorf("%s: %w: no processes", root, fs.ErrNotExist))
	}
	return all, err
}

// tree is what a process and everything below it take.
func tree(all map[int]proc, root int) (sum proc) {
	for pid, p := range all {
		at := pid
		for at != root && at > 1 {
			at = all[at].parent
		}
		if at == root {
			sum.used += p.used
			sum.resident += p.resident
		}
	}
	return sum
}

// busy is the processor time that the machine has spent so far, on anything.
func busy(root string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(root, "stat"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("%s/stat begins with %q", root, line)
	}
	var sum int64
	for i, field := range f[1:9] { // user nice system idle iowait irq softirq steal
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i != 3 && i != 4 {
			sum += n
		}
	}
	return time.Duration(sum) * clockTick, nil
}
