package bridge

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newPacer(t *testing.T) (*pacer, time.Time) {
	cfg, err := (*Config)(nil).withDefaults()
	require.NoError(t, err)
	began := time.UnixMilli(1_000_000)
	return &pacer{cfg: cfg, began: began}, began
}

// TestPollRateIsShared: the more tiles flow, the less often each is polled, down to Tuning.MaxPoll.
func TestPollRateIsShared(t *testing.T) {
	for tiles, want := range map[int]time.Duration{
		1: 10 * time.Millisecond, pollRate / 100: 10 * time.Millisecond, pollRate / 50: 20 * time.Millisecond,
		pollRate / 20: 50 * time.Millisecond, pollRate: 100 * time.Millisecond,
	} {
		p, now := newPacer(t)
		paces := make([]pace, tiles)
		for range 2 {
			for i := range paces {
				p.next(&paces[i], 1, false, false, now, now)
			}
		}
		require.Equal(t, tiles, p.flowing)
		require.Equal(t, want, paces[0].due.Sub(now), "%d tiles", tiles)
		quiet := now.Add(linger)
		for i := range paces {
			p.next(&paces[i], 0, false, false, quiet, quiet)
		}
		require.Zero(t, p.flowing)
	}
}

// TestHintsAreReliedOn: with hints a tile waits for linger after an entry and then doubles its wait up to HintedPoll.
// An entry that no hint announced ends that for the tile, and many end it for the group.
func TestHintsAreReliedOn(t *testing.T) {
	p, now := newPacer(t)
	p.groups[0].up = true
	read := func(tile *pace, entries int, woken bool) missed {
		return p.next(tile, entries, woken, false, now, now)
	}
	tile := &pace{}
	require.Equal(t, none, read(tile, 1, true))
	for _, seconds := range []int{1, 2, 4, 8, 15, 15} {
		want := time.Duration(seconds) * time.Second
		require.Equal(t, want, tile.interval)
		require.InDelta(t, want*7/8, tile.due.Sub(now), float64(want/8+100*time.Millisecond))
		now = tile.due
		require.Equal(t, none, read(tile, 0, false))
	}
	require.Equal(t, none, read(tile, 1, false), "its hint may still come")
	require.Equal(t, 100*time.Millisecond, tile.interval)
	tile.woken = true
	require.Equal(t, none, read(tile, 0, false), "it came")

	for n := range groupMisses {
		tile := &pace{hinted: true}
		require.Equal(t, none, read(tile, 1, false))
		want := ofTile
		if n == groupMisses-1 {
			want = ofTheGroup
		}
		require.Equal(t, want, read(tile, 0, false))
		require.False(t, tile.hinted)
	}
	require.True(t, p.hasten(tile, now.Add(-time.Hour)), "it waits for a hint that will not come")
	require.False(t, p.relies(&pace{}, now))
	now = now.Add(pollAfterMiss)
	require.True(t, p.relies(&pace{}, now))
}

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
