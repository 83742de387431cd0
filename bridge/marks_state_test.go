package bridge

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhenMarksAreDue: MarkEvery after the last write while the tile moves, by its lease while it is quiet, at once
// when they are too high or the last, and after a growing wait when a write fails.
func TestWhenMarksAreDue(t *testing.T) {
	cfg, err := (*Config)(nil).withDefaults()
	require.NoError(t, err)
	now := time.UnixMilli(1_000_000)
	m := &marks{}
	require.True(t, m.settled(0))
	require.True(t, m.due(0, false, cfg).Before(now), "a lease is due")
	m.book(&mark{seq: 7}, now, cfg)
	require.True(t, m.settled(7))
	require.InDelta(t, cfg.tuning.RenewEvery*7/8, m.due(7, false, cfg).Sub(now), float64(cfg.tuning.RenewEvery/8))
	require.False(t, m.settled(8))
	require.Equal(t, now.Add(cfg.MarkEvery), m.due(8, false, cfg))
	require.Zero(t, m.due(8, true, cfg))

	m.rewind = true
	require.Zero(t, m.due(7, false, cfg))
	m.rewind = false // as it is while the write is under way
	m.book(&mark{seq: 5, rewind: true, err: errors.New("no")}, now, cfg)
	require.True(t, m.rewind, "a rewind that failed is still due")
	require.True(t, m.due(7, false, cfg).After(now))
	m.rewind = false
	m.book(&mark{seq: 5, rewind: true}, now, cfg)
	require.Equal(t, uint64(5), uint64(m.saved))
	m.book(&mark{seq: 3}, now, cfg)
	require.Equal(t, uint64(5), uint64(m.saved), "they only regress on purpose")
	for n := 1; n < 20; n++ {
		m.book(&mark{seq: 9, err: errors.New("no")}, now, cfg)
		wait := min(cfg.tuning.RetryMin<<(n-1), cfg.tuning.RetryMax)
		require.InDelta(t, wait, m.due(9, false, cfg).Sub(now), float64(wait)/2)
	}
}
