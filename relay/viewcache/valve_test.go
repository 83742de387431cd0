package viewcache

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestValve: calls of one moment that fail are one failure, those that were waited for in vain are not, and only the
// call that decides opens the valve for the next one when its caller leaves.
func TestValve(t *testing.T) {
	no := errors.New("no")
	newValve := func() *valve { return &valve{pause: time.Hour, logger: slog.New(slog.DiscardHandler)} }
	isOpen := func(v *valve) bool {
		_, ok := v.open()
		return ok
	}

	v := newValve()
	var same [10]attempt
	for i := range same {
		same[i], _ = v.open()
	}
	for _, a := range same {
		v.failed(a, false, no)
	}
	require.True(t, isOpen(v), "they shared a connection")
	for range failuresInARow - 1 {
		a, _ := v.open()
		v.failed(a, false, no)
	}
	require.False(t, isOpen(v), "one after the other")
	v.unknown(same[0])
	require.False(t, isOpen(v), "that call decided nothing")

	v.until = time.Time{} // the pause is over
	a, ok := v.open()
	require.True(t, ok)
	require.False(t, isOpen(v), "one call decides")
	v.unknown(a)
	a, ok = v.open()
	require.True(t, ok, "the next one does")
	v.failed(a, false, no)
	require.False(t, isOpen(v))
	v.works()
	require.True(t, isOpen(v))

	v = newValve()
	for i := range failuresInARow {
		same[i], _ = v.open()
	}
	for _, a := range same[:failuresInARow] {
		v.failed(a, true, no)
	}
	require.False(t, isOpen(v), "each was waited for")
}
