package relay

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// marks are a tile's, by consumer.
func (w *world) marks(tile fence.TileID) map[stream.Consumer]stream.Mark {
	m, err := w.log.Log.Marks(context.Background(), []fence.TileID{tile})
	require.NoError(w.t, err)
	return m[0].Marks
}

// trimUnder trims as an owner does, under a lease.
func (w *world) trimUnder(tile fence.TileID, lease time.Duration) stream.Trimmed {
	w.t.Helper()
	trimmed, err := w.log.Log.Trim(context.Background(), stream.TrimRequest{Tile: tile, Lease: lease})
	require.NoError(w.t, err)
	return trimmed
}

// marking is a configuration in which only marks go out by themselves.
func marking(id string) *Config {
	cfg := still()
	cfg.ID, cfg.markInterval = id, 40*time.Millisecond
	return cfg
}

func TestRelayFloorIsMarkedAndRenewed(t *testing.T) {
	w := newWorld(t)
	cfg := quick()
	cfg.ID, cfg.refreshFrames = "one", 5
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(3)
	o.snapshot()
	c := s.watch(t, nil, tileA, tileB)
	c.reaches(o)
	mark := func() stream.Mark { return w.marks(tileA)[stream.RelayMember("one")] }
	first := o.at.Seq
	eventually(t, func() bool { return mark().Seq == first }, "the cached snapshot's sequence is marked")
	moved := mark().Moved
	eventually(t, func() bool { return mark().Moved > moved }, "the mark is renewed")
	o.tickOn(4)
	o.snapshot()
	o.tickOn(2)
	c.reaches(o)
	eventually(t, func() bool { return mark().Seq == o.at.Seq-2 }, "the mark follows the snapshot")
	require.Empty(t, w.marks(tileB), "a tile without a history is not marked")
}

func TestEachRelayHoldsTheFloorByItself(t *testing.T) {
	w := newWorld(t)
	o := w.claim(tileA, 1)
	o.snapshot()
	behind := w.serve(marking("behind"))
	c := behind.watch(t, nil, tileA)
	c.reaches(o)
	low := o.at.Seq
	o.tickOn(10)
	o.snapshot()
	ahead := w.serve(marking("ahead"))
	d := ahead.watch(t, nil, tileA)
	d.reaches(o)
	eventually(t, func() bool { return len(w.marks(tileA)) == 2 }, "both have marked")
	o.tickOn(10)
	o.snapshot()
	trimmed := w.trimUnder(tileA, time.Hour)
	require.Equal(t, low, trimmed.Floor)
	require.Equal(t, stream.RelayMember("behind"), trimmed.Held)
	behind.stop()
	trimmed = w.trimUnder(tileA, time.Hour)
	require.Equal(t, low+10, trimmed.Floor)
	require.Equal(t, stream.RelayMember("ahead"), trimmed.Held)
	require.Empty(t, trimmed.Expired, "who leaves in good order is not missed")
}

// TestDefaultIDs: relays that are not named do not share a mark.
func TestDefaultIDs(t *testing.T) {
	w := newWorld(t)
	seen := map[stream.Consumer]bool{}
	for range 100 {
		r, err := New(w.fan, w.log, Public, nil)
		require.NoError(t, err)
		require.False(t, seen[r.marker.consumer])
		seen[r.marker.consumer] = true
	}
}

// TestForgottenRelayComesBack: the store and the fan-out are out of reach for longer than the lease, and the stream
// goes on without the relay. Its next mark tells it; nothing else does here.
func TestForgottenRelayComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve(marking("one"))
	o := w.claim(tileA, 1)
	o.tickOn(5)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	eventually(t, func() bool { return len(w.marks(tileA)) == 1 }, "it has marked")
	w.log.set(func(l *testLog) { l.err = errDown })
	for range 10 {
		o.commit()
	}
	o.snapshot()
	o.commit()
	eventually(t, func() bool {
		return len(w.trimUnder(tileA, time.Second).Expired) == 1
	}, "its lease ends")
	require.Zero(t, s.Stats().Outrun)
	w.log.set(func(l *testLog) { l.err = nil })
	c.reaches(o)
	require.NotZero(t, s.Stats().Outrun)
	require.EqualValues(t, 1, s.Stats().Replaced)
	eventually(t, func() bool { return w.marks(tileA)[stream.RelayMember("one")].Seq == o.at.Seq-1 },
		"the mark is where the new snapshot is")
	outrun := s.Stats().Outrun
	o.tickOn(3)
	c.reaches(o)
	moved := w.marks(tileA)[stream.RelayMember("one")].Moved
	eventually(t, func() bool { return w.marks(tileA)[stream.RelayMember("one")].Moved > moved }, "it marks again")
	require.Equal(t, outrun, s.Stats().Outrun, "once is enough")
}

// TestOutrunRelayThatMissedNothing: only the marks did not get through. The clients notice nothing, and the cached
// snapshot is replaced.
func TestOutrunRelayThatMissedNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve(marking("one"))
	o := w.claim(tileA, 1)
	o.tickOn(5)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	eventually(t, func() bool { return len(w.marks(tileA)) == 1 }, "it has marked")
	w.log.set(func(l *testLog) { l.err = errDown })
	o.tickOn(10)
	o.snapshot()
	o.tickOn(2)
	c.reaches(o)
	eventually(t, func() bool { return len(w.trimUnder(tileA, time.Second).Expired) == 1 }, "its lease ends")
	w.log.set(func(l *testLog) { l.err = nil })
	eventually(t, func() bool { n, whole := s.tailLen(tileA); return whole && n == 2 }, "the newer snapshot is cached")
	require.NotZero(t, s.Stats().Outrun)
	require.Zero(t, s.Stats().Gaps)
	late := s.watch(t, nil, tileA)
	late.reaches(o)
	require.EqualValues(t, 1, c.Stats().Syncs, "those who are up to date notice nothing")
}

func TestMarksAreReleased(t *testing.T) {
	w := newWorld(t)
	cfg := marking("one")
	cfg.linger = 30 * time.Millisecond
	s := w.serve(cfg)
	a, b := w.claim(tileA, 1), w.claim(tileB, 1)
	c := s.watch(t, nil, tileA, tileB)
	c.reaches(a)
	c.reaches(b)
	for _, tile := range []fence.TileID{tileA, tileB} {
		eventually(t, func() bool { return len(w.marks(tile)) == 1 }, "both are marked")
	}
	require.NoError(t, c.Unsubscribe(context.Background(), tileA))
	eventually(t, func() bool { return len(w.marks(tileA)) == 0 }, "a tile that nobody watches is released")
	require.NoError(t, c.Subscribe(context.Background(), tileA))
	eventually(t, func() bool { return len(w.marks(tileA)) == 1 }, "and marked again when somebody does")
	s.stop()
	require.Empty(t, w.marks(tileA))
	require.Empty(t, w.marks(tileB))
}

// TestStopsWithoutTheStore: marks that cannot be released do not hold up the end.
func TestStopsWithoutTheStore(t *testing.T) {
	w := newWorld(t)
	s := w.serve(marking("one"))
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	eventually(t, func() bool { return len(w.marks(tileA)) == 1 }, "it has marked")
	w.log.set(func(l *testLog) { l.err = errDown })
	s.stop()
	require.NotZero(t, s.Stats().MarksFailed)
	require.Len(t, w.marks(tileA), 1, "its lease ends")
}

func TestTooManyRelays(t *testing.T) {
	w := newWorld(t)
	o := w.claim(tileA, 1)
	o.snapshot()
	for i := range stream.MaxRelayMarks {
		require.NoError(t, stream.MarkOne(context.Background(), w.log.Log,
			stream.MarkWrite{Tile: tileA, Consumer: stream.RelayMember(fmt.Sprint(i)), Seq: 1}))
	}
	cfg := quick()
	cfg.ID = "late"
	s := w.serve(cfg)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	eventually(t, func() bool { return s.Stats().MarksRefused > 2 }, "the mark is refused")
	require.Zero(t, s.Stats().MarksFailed)
	o.tickOn(5)
	o.snapshot()
	w.trim(tileA)
	o.commit() // not published
	c.reaches(o)
}

// TestMarksShareCalls: many tiles, few calls.
func TestMarksShareCalls(t *testing.T) {
	inBubble(t, nil, func(w *world, r *Relay) {
		const tiles = 200
		for i := range tiles {
			o := w.claim(tileA+fence.TileID(i), 1)
			o.snapshot()
			r.testJoin(o.tile)
		}
		synctest.Wait()
		time.Sleep(defaultMarkInterval)
		w.log.markCalls.Store(0)
		w.log.marks.Store(0)
		time.Sleep(10 * defaultMarkInterval)
		require.InDelta(t, 10*tiles, w.log.marks.Load(), 2*tiles)
		require.LessOrEqual(t, w.log.markCalls.Load(), int64(11*checkTurns))
	})
}

// TestANewRelayIsNotOutrun: it starts on a tile whose stream was trimmed long ago, and whose owner trims again before
// its first mark is there. Nothing was lost, so nothing is said.
func TestANewRelayIsNotOutrun(t *testing.T) {
	w := newWorld(t)
	o := w.claim(tileA, 1)
	for range 3 {
		o.tickOn(5)
		o.snapshot()
		w.trimUnder(tileA, time.Minute)
	}
	var said strings.Builder // written by the relay alone, read after it has stopped
	cfg := marking("one")
	cfg.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := w.serve(cfg)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.tickOn(5)
	o.snapshot()
	w.trimUnder(tileA, time.Minute)
	o.tickOn(2)
	c.reaches(o)
	eventually(t, func() bool { return len(w.marks(tileA)) == 1 }, "it has marked")
	require.Zero(t, s.Stats().Outrun)
	s.stop()
	require.NotContains(t, said.String(), "trimmed past")
}
