package rim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/rim"
)

const (
	tile  fence.TileID = 7
	every              = 500 * time.Millisecond
	quiet              = 3 * time.Second
)

// store is what a store has of one tile.
type store struct {
	stream.Log
	mu      sync.Mutex
	snap    fence.Snapshot
	entries []fence.Entry
	owner   fence.Owner
	err     error
	reads   atomic.Int64
	state   map[fence.Position]string // what area 1 holds, in every history that there was
}

func newStore() *store { return &store{state: map[fence.Position]string{{}: ""}} }

func (s *store) Read(_ context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads.Add(1)
	if s.err != nil {
		return nil, s.err
	}
	all := make([]stream.Chunk, len(cursors))
	for i, c := range cursors {
		all[i].Owner = s.owner
		for _, e := range s.entries {
			if e.Seq > c.After && len(all[i].Entries) < stream.DefaultLimit {
				all[i].Entries = append(all[i].Entries, e)
			}
		}
	}
	return all, nil
}

func (s *store) Snapshot(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap, s.snap.Seq > 0, s.err
}

func (s *store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// end is where the history ends.
func (s *store) end() fence.Position {
	if n := len(s.entries); n > 0 {
		return s.entries[n-1].Position
	}
	return s.snap.Position
}

// commit commits an event in area 1 and another in area 2, under an epoch.
func (s *store) commit(epoch fence.Epoch, event string) fence.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := stream.Batch{Events: [][]byte{[]byte(event), []byte("far away")}}
	b.Divide(func(event []byte) fence.Area {
		if string(event) == "far away" {
			return 2
		}
		return 1
	})
	payload, _, err := b.Encode()
	if err != nil {
		panic(err)
	}
	prev := s.end()
	e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch, Payload: payload, Tick: fence.Tick(prev.Seq + 1),
		Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1}, Prev: prev})
	s.entries = append(s.entries, e)
	s.state[e.Position] = s.state[prev] + event
	s.own(epoch)
	return e.Position
}

// own makes the end of the history an owner's.
func (s *store) own(epoch fence.Epoch) {
	s.owner = fence.Owner{Tile: tile, Epoch: epoch, Contact: fmt.Sprint("owner-", epoch), Position: s.end(),
		Tick: s.owner.Tick + 1}
}

// save saves a snapshot at the end, and trims.
func (s *store) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.end()
	s.snap = snapshotOf(at, s.state[at])
	s.entries = nil
}

func snapshotOf(at fence.Position, state string) fence.Snapshot {
	list := fence.AppendPart(fence.AppendPart(nil, 1, []byte(state)), 2, []byte("much that is far away"))
	return fence.Snapshot{Position: at, Tick: fence.Tick(at.Seq), Blob: stream.AppendDivided(nil, list, nil)}
}

// rebase replaces the history by a state under a higher epoch.
func (s *store) rebase(epoch fence.Epoch, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindRebase, Tick: s.owner.Tick,
		Position: fence.Position{Epoch: epoch, Seq: s.end().Seq + 4096}})
	s.snap, s.entries = snapshotOf(e.Position, state), nil
	s.state[e.Position] = state
	s.own(epoch)
}

// lose takes the last n entries away, as a failover does.
func (s *store) lose(n int) []fence.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.entries))
	lost := s.entries[len(s.entries)-n:]
	s.entries = s.entries[: len(s.entries)-n : len(s.entries)-n]
	s.owner.Position = s.end()
	return lost
}

// append appends lost entries again.
func (s *store) append(lost []fence.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, lost...)
	s.owner.Position = s.end()
}

// eye is what a tile makes of a feed.
type eye struct {
	*rim.Feed
	view   string
	sees   bool
	last   rim.News
	starts int
}

func (v *eye) look(t *testing.T, s *store) rim.News {
	t.Helper()
	n := v.Take()
	if n.Dropped || n.Anew {
		v.view, v.sees = "", n.Anew
	}
	if n.Anew {
		v.starts++
		for p := range fence.Parts(n.State) {
			require.EqualValues(t, 1, p.Area)
			v.view = string(p.Content)
		}
	}
	for _, b := range n.Batches {
		require.Len(t, b.Events, 1)
		v.view += string(b.Events[0])
	}
	if v.sees {
		s.mu.Lock()
		defer s.mu.Unlock()
		want, known := s.state[n.At]
		require.True(t, known, "at %s, where no history ever ended", n.At)
		require.Equal(t, want, v.view, "what is seen is not what was committed at %s", n.At)
		require.GreaterOrEqual(t, n.At.Epoch, v.last.At.Epoch)
		require.False(t, n.AsOf.Before(v.last.AsOf))
	}
	v.last = n
	return n
}

func play(t *testing.T, f func(t *testing.T, s *store, v *eye)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		v := &eye{Feed: rim.New(s).Feed(tile, fence.Areas(1), every, quiet)}
		defer v.Stop()
		f(t, s, v)
	})
}

// fresh waits until what is seen is the end of the history, of an owner that lives.
func (v *eye) fresh(t *testing.T, s *store) {
	t.Helper()
	for range 20 {
		time.Sleep(every)
		synctest.Wait()
		if n := v.look(t, s); v.sees && n.Serving && n.At == s.end() && time.Since(n.AsOf) <= every {
			return
		}
	}
	t.Fatalf("at %s, serving %v, want %s", v.last.At, v.last.Serving, s.end())
}

// stale waits for some readings, in all of which what is seen is not fresh, and stays as it is.
func (v *eye) stale(t *testing.T, s *store, readings int) {
	t.Helper()
	view, at := v.view, v.last.At
	for range readings {
		time.Sleep(every)
		synctest.Wait()
		n := v.look(t, s)
		require.False(t, n.Serving && time.Since(n.AsOf) < quiet)
		require.Equal(t, at, n.At)
		require.Equal(t, view, v.view)
	}
}

func TestATakeoverGoesOn(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		v.stale(t, s, 3) // it is unknown
		s.commit(1, "a")
		s.save()
		s.commit(1, "b")
		v.fresh(t, s)
		s.commit(2, "c")
		v.fresh(t, s)
		require.Equal(t, "abc", v.view)
		require.Equal(t, 1, v.starts)
		time.Sleep(quiet) // its owner is dead: the owner hash does not move
		synctest.Wait()
		v.look(t, s)
		v.stale(t, s, 10)
		s.change(func() { s.owner = fence.Owner{} }) // it expires
		v.stale(t, s, 10)
		s.commit(3, "d")
		v.fresh(t, s)
		require.Equal(t, "abcd", v.view)
		require.Equal(t, 1, v.starts)
	})
}

func TestARebaseReplacesTheView(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		s.commit(1, "a")
		v.fresh(t, s)
		s.rebase(2, "x")
		s.commit(2, "y")
		v.fresh(t, s)
		require.Equal(t, "xy", v.view)
		require.Equal(t, 2, v.starts)
	})
}

// TestAGapIsReadAnew: entries that were not read are trimmed.
func TestAGapIsReadAnew(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		s.commit(1, "a")
		v.fresh(t, s)
		s.commit(1, "b")
		s.save()
		s.commit(1, "c")
		v.fresh(t, s)
		require.Equal(t, "abc", v.view)
		require.Equal(t, 2, v.starts)
	})
}

// TestALostTail: what a failover lost is appended again, or another owner goes on without it.
func TestALostTail(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		s.commit(1, "a")
		s.commit(1, "b")
		v.fresh(t, s)
		lost := s.lose(1)
		v.stale(t, s, 2)
		s.append(lost)
		v.fresh(t, s)
		require.Equal(t, 1, v.starts)
		s.lose(1)
		s.commit(2, "c") // at the same sequence
		v.fresh(t, s)
		require.Equal(t, "ac", v.view)
		require.Equal(t, 2, v.starts)
		s.commit(2, "d")
		v.fresh(t, s)
		s.lose(1) // and its owner goes on
		v.fresh(t, s)
		require.Equal(t, "ac", v.view)
		require.Equal(t, 3, v.starts)
	})
}

// TestAnOlderEpochIsNotBelieved: a store that has not heard of an epoch that was seen answers.
func TestAnOlderEpochIsNotBelieved(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		s.commit(1, "a")
		s.save()
		old, owner := s.entries, s.owner // while the reader waits
		s.commit(2, "b")
		v.fresh(t, s)
		now, successor := s.entries, s.owner
		s.change(func() { s.entries, s.owner = old, owner })
		s.commit(1, "z")
		v.stale(t, s, 8)
		require.Equal(t, "ab", v.view)
		s.change(func() { s.entries, s.owner = now, successor })
		s.commit(2, "c")
		v.fresh(t, s)
		require.Equal(t, "abc", v.view)
		require.Equal(t, 1, v.starts)
	})
}

// TestAStoreThatDoesNotAnswer: what is seen grows old, and a tile that does not take what there is fills no memory.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	play(t, func(t *testing.T, s *store, v *eye) {
		s.commit(1, "a")
		v.fresh(t, s)
		s.change(func() { s.err = errors.New("no answer") })
		time.Sleep(quiet)
		synctest.Wait()
		v.look(t, s)
		v.stale(t, s, 5)
		s.change(func() { s.err = nil })
		v.fresh(t, s)
		require.Equal(t, 1, v.starts)

		long := string(make([]byte, stream.MaxEvent-200))
		for range 2 * rim.MostBytes / len(long) { // while the tile is frozen
			s.commit(1, long)
			s.save()
			time.Sleep(every)
		}
		n := v.look(t, s)
		require.True(t, n.Dropped)
		require.False(t, v.sees)
		require.Empty(t, n.Batches)
		time.Sleep(time.Minute)
		s.rebase(2, "x")
		v.fresh(t, s)
		require.Equal(t, "x", v.view)
	})
}

// TestManyTilesReadOnce: those that look at a tile share its reading, and one that comes later starts alone.
func TestManyTilesReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := newStore(), []*eye{}
		s.commit(1, "a")
		r := rim.New(s)
		for range 6 {
			v := &eye{Feed: r.Feed(tile, fence.Areas(1), every, quiet)}
			defer v.Stop()
			v.fresh(t, s)
			all = append(all, v)
		}
		before := s.reads.Load()
		time.Sleep(10 * every)
		require.InDelta(t, 10, s.reads.Load()-before, 1)
		for _, v := range all {
			v.look(t, s)
			require.Equal(t, 1, v.starts)
		}
	})
}

// TestHistoriesAreNeverMixed plays random histories: at each look, what is seen is the state at the position that is
// given with it.
func TestHistoriesAreNeverMixed(t *testing.T) {
	number := seed.Of(t)
	play(t, func(t *testing.T, s *store, v *eye) {
		r := rand.New(rand.NewPCG(number, 0))
		epoch, lost := fence.Epoch(1), []fence.Entry(nil)
		var old, now struct { // what an older store has, while it answers: that of now
			snap    fence.Snapshot
			entries []fence.Entry
			owner   fence.Owner
		}
		for n := range 3000 {
			event := fmt.Sprint(n, ";")
			switch op := r.IntN(24); {
			case len(lost) > 0 && op < 12:
				s.append(lost)
				lost = nil
			case len(lost) > 0 && op < 20:
				epoch++
				s.commit(epoch, event)
				lost = nil
			case len(lost) > 0:
			case op < 14:
				s.commit(epoch, event)
			case op < 16:
				s.save()
			case op < 18:
				epoch++
				s.commit(epoch, event)
			case op == 18:
				epoch++
				s.rebase(epoch, event)
			case op == 19:
				s.change(func() { s.owner = fence.Owner{} })
			case op == 20:
				s.change(func() { s.err = errors.New("no answer") })
			case op == 21:
				lost = s.lose(1 + r.IntN(3))
			case op == 22:
				s.change(func() { old.snap, old.entries, old.owner = s.snap, slices.Clone(s.entries), s.owner })
			default:
				s.change(func() { now.snap, now.entries, now.owner = s.snap, s.entries, s.owner })
				s.change(func() { s.snap, s.entries, s.owner = old.snap, old.entries, old.owner })
				time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
				synctest.Wait()
				v.look(t, s)
				s.change(func() { s.snap, s.entries, s.owner = now.snap, now.entries, now.owner })
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
				synctest.Wait()
				v.look(t, s)
				s.change(func() { s.err = nil })
			}
		}
		s.change(func() { s.err = nil })
		if len(lost) > 0 {
			s.append(lost)
		}
		s.commit(epoch, "end")
		v.fresh(t, s)
	})
}
