package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// showStatus prints a line about the battle: rewritten in place on a terminal, now and then elsewhere.
func showStatus(ctx context.Context, out io.Writer, line func(since time.Duration) string) error {
	every, before, after := 5*time.Second, "", "\n"
	terminal := isTerminal(out)
	if terminal {
		every, before, after = 500*time.Millisecond, "\r\x1b[K", ""
	}
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			if terminal {
				fmt.Fprintln(out)
			}
			return nil
		case <-time.After(every):
			fmt.Fprint(out, before, line(time.Since(began)), after)
		}
	}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
