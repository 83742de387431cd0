//go:build !linux

package main

import (
	"fmt"
	"io"
)

// dev refuses: the servers are ended with their parent by Linux alone.
func dev(_ []string, stderr io.Writer) int {
	_, _ = fmt.Fprintln(stderr, "tilectl dev: only Linux is supported; elsewhere start the servers yourself, and set "+
		"TILEFENCE_REDIS and the other variables that docs/operations.md lists")
	return statusFailed
}
