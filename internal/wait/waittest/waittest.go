// Package waittest waits in tests until something holds.
package waittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Until asks ok again and again, and fails the test if it is not true within a time. It asks in the goroutine it is
// called from: ok may end the test, and is never under way when Until has returned. testify's Eventually asks in a
// goroutine of its own, which such a call kills or which outlives the test.
func Until(t testing.TB, ok func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	if !Holds(ok, within, every) {
		require.Fail(t, "it did not come true within "+within.String(), message...)
	}
}

// Holds is Until for goroutines that may not end a test: it says whether ok was true in time.
func Holds(ok func() bool, within, every time.Duration) bool {
	for end := time.Now().Add(within); !ok(); time.Sleep(every) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
