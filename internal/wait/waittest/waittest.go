// Package waittest waits in tests until something holds.
package waittest

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how many times longer than asked for Until and Holds wait. Callers ask for what a machine at rest needs;
// one that is short of processors takes several times as long, and only a test that fails waits to the end. A bound
// that is promised is measured, and not left to these. TILEFENCE_PATIENCE=1 is for those who expect failures.
var patience = func() int {
	if n, err := strconv.Atoi(os.Getenv("TILEFENCE_PATIENCE")); err == nil && n > 0 {
		return n
	}
	return 6
}()

// Until asks ok again and again, and fails the test if it is not true within a time. It asks in the goroutine it is
// called from: ok may end the test, and is never under way when Until has returned. testify's Eventually asks in a
// goroutine of its own, which such a call kills or which outlives the test.
func Until(t testing.TB, ok func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	if !Holds(ok, within, every) {
		require.Fail(t, "it did not come true within "+(within*time.Duration(patience)).String(), message...)
	}
}

// Holds is Until for goroutines that may not end a test: it says whether ok was true in time.
func Holds(ok func() bool, within, every time.Duration) bool {
	for end := time.Now().Add(within * time.Duration(patience)); !ok(); time.Sleep(every) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
