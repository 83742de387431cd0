// Package viewcachetest is the contract of viewstore.Store as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { viewcachetest.Run(t, openStore) }
//	func TestCache(t *testing.T)       { viewcachetest.RunCache(t, false, openBackend) }
//
// RunCache tests what may happen to a cache and to the relays that use it. World and Audit compare views with what was
// committed, also for benchmarks. A back end is emptied before each test, so the server must not be shared with other
// tests.
package viewcachetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// scene is one empty store and a tile.
type scene struct {
	*testing.T
	viewstore.Store
	tile fence.TileID
}

// Run tests the back end that open opens, empty and with the limits given, once a test.
func Run(t *testing.T, open func(t *testing.T, limits *viewstore.Limits) viewstore.Store) {
	test := func(name string, limits *viewstore.Limits, run func(s *scene)) {
		t.Run(name, func(t *testing.T) {
			run(&scene{T: t, Store: open(t, limits), tile: fence.TileID(rand.Uint64()>>1 | 1)})
		})
	}
	test("AVersionIsFoundAsItWasStored", nil, found)
	test("WhatIsOlderIsRefused", nil, older)
	test("ConfirmationRenewsTheAge", nil, confirmed)
	test("ABaseIsStoredOnce", nil, bases)
	test("OneHasTheLock", nil, oneLock)
	test("ALockEndsWithItsHolder", nil, lease)
	test("ALockIsOfWhatWasSeen", nil, seen)
	test("APutEndsItsOwnLockOnly", nil, ownLock)
	test("WhatIsDroppedIsGone", nil, dropped)
	test("AnOldVersionStaysForItsGrace", &viewstore.Limits{Grace: time.Second}, grace)
	test("TheBudgetHolds", &viewstore.Limits{Budget: 16 << 20}, budget)
	test("ALargeVersionAmongSmallOnes", &viewstore.Limits{Budget: 16 << 20}, small)
	test("OldVersionsGoFirst", &viewstore.Limits{Budget: 16 << 20}, oldFirst)
	test("ARefusedVersionKeepsNothing", &viewstore.Limits{Budget: 16 << 20, Grace: 2 * time.Second}, refused)
	test("ANewVersionIsAnnounced", nil, announced)
	test("EveryCallObeysItsContext", nil, contexts)
	test("RandomCallsAgreeWithTheMemory", &viewstore.Limits{Budget: 16 * 40_000}, random)
}

// at is a position.
func at(epoch, seq, chain uint64) fence.Position {
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: fence.Seq(seq), Chain: fence.Chain(chain)}
}

// put stores a version of some bytes.
func (s *scene) put(tile fence.TileID, token viewstore.Token, at, base fence.Position, bytes int) viewstore.Verdict {
	s.Helper()
	p := viewstore.Put{Tile: tile, Token: token, At: at, Base: base, Tail: value(at, bytes)}
	if !base.IsZero() {
		p.Snapshot = value(base, bytes)
	}
	v, err := s.Put(s.Context(), p)
	require.NoError(s, err)
	return v
}

// value is some bytes that no other position has.
func value(of fence.Position, n int) []byte {
	return append([]byte(of.String()+"\x00\xff\r\n"), bytes.Repeat([]byte{byte(of.Seq)}, n)...)
}

// newest is the newest version, which there must be.
func (s *scene) newest(tile fence.TileID) viewstore.Version {
	s.Helper()
	v, ok, err := s.Find(s.Context(), tile)
	require.NoError(s, err)
	require.True(s, ok, "there is a version")
	return v
}

// has fails unless the store has these values of a version, or lacks them.
func (s *scene) has(tile fence.TileID, v viewstore.Version, base, tail bool) {
	s.Helper()
	b, t, err := s.Values(s.Context(), tile, v, true)
	require.NoError(s, err)
	require.Equal(s, base, b != nil, "the base of %s", v.At)
	require.Equal(s, tail, t != nil, "the tail of %s", v.At)
}

func found(s *scene) {
	_, ok, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.False(s, ok)
	base, v := at(3, 100, 0xfe), at(3, 120, 1<<63+5)
	require.Equal(s, viewstore.Stored, s.put(s.tile, 7, v, base, 1000))
	time.Sleep(2 * time.Millisecond)
	n := s.newest(s.tile)
	require.Equal(s, v, n.At)
	require.Equal(s, base, n.Base)
	require.NotZero(s, n.Stamp)
	require.Positive(s, n.Age)
	require.Less(s, n.Age, 10*time.Second)
	b, t, err := s.Values(s.Context(), s.tile, n, true)
	require.NoError(s, err)
	require.Equal(s, value(base, 1000), b)
	require.Equal(s, value(v, 1000), t)
	b, _, err = s.Values(s.Context(), s.tile, n, false)
	require.NoError(s, err)
	require.Nil(s, b, "it was not asked for")
	_, ok, err = s.Find(s.Context(), s.tile+1)
	require.NoError(s, err)
	require.False(s, ok, "it is of another tile")

	// A tile without a snapshot begins at the beginning. The largest numbers are exact.
	last := at(fence.MaxNumber, fence.MaxNumber, 1)
	require.Equal(s, viewstore.Stored, s.put(s.tile+1, 0, last, fence.Position{}, 0))
	require.Equal(s, last, s.newest(s.tile+1).At)
	u, err := s.Usage(s.Context())
	require.NoError(s, err)
	require.Equal(s, 2, u.Tiles)
	require.Equal(s, counted(value(base, 1000), value(v, 1000), value(last, 0)), u.Bytes)
}

func older(s *scene) {
	base := at(2, 10, 1)
	require.Equal(s, viewstore.Stored, s.put(s.tile, 50, at(2, 20, 7), base, 10))
	for _, p := range []struct {
		token viewstore.Token
		at    fence.Position
		want  viewstore.Verdict
	}{
		{99, at(2, 19, 7), viewstore.Older},
		{99, at(1, 9999, 7), viewstore.Older}, // a superseded owner went on for long
		{99, at(1, 20, 7), viewstore.Older},
		{50, at(2, 20, 8), viewstore.Older}, // the same numbers in another history, read before
		{49, at(2, 20, 8), viewstore.Older},
		{51, at(2, 20, 8), viewstore.Stored}, // and read after
		{99, at(2, 20, 8), viewstore.Confirmed},
		{1, at(2, 21, 9), viewstore.Stored}, // newer, whichever relay has read it
		{1, at(3, 5, 9), viewstore.Stored},  // numbers may decrease with a new epoch
		{99, at(2, 21, 9), viewstore.Older},
	} {
		require.Equal(s, p.want, s.put(s.tile, p.token, p.at, base, 10), "%s under token %d", p.at, p.token)
	}
	require.Equal(s, at(3, 5, 9), s.newest(s.tile).At)
	s.has(s.tile, s.newest(s.tile), true, true)

	// 2^53-1 and 2^53-2 are different numbers.
	require.Equal(s, viewstore.Stored, s.put(s.tile, 1, at(3, fence.MaxNumber-1, 1), base, 10))
	require.Equal(s, viewstore.Stored, s.put(s.tile, 1, at(3, fence.MaxNumber, 1), base, 10))
	require.Equal(s, viewstore.Older, s.put(s.tile, 99, at(3, fence.MaxNumber-1, 1), base, 10))
}

func confirmed(s *scene) {
	confirm := func(p fence.Position) viewstore.Verdict {
		v, err := s.Put(s.Context(), viewstore.Put{Tile: s.tile, At: p})
		require.NoError(s, err)
		return v
	}
	require.Equal(s, viewstore.Gone, confirm(at(1, 2, 3)))
	s.put(s.tile, 1, at(1, 2, 3), fence.Position{}, 10)
	time.Sleep(60 * time.Millisecond)
	before := s.newest(s.tile)
	require.GreaterOrEqual(s, before.Age, 50*time.Millisecond)
	require.Equal(s, viewstore.Confirmed, confirm(at(1, 2, 3)))
	after := s.newest(s.tile)
	require.Less(s, after.Age, before.Age)
	require.Greater(s, after.Stamp, before.Stamp)
	require.Equal(s, before.At, after.At)
	require.Equal(s, viewstore.Older, confirm(at(1, 1, 3)))
	require.Equal(s, viewstore.Gone, confirm(at(1, 3, 3)), "it was not stored")
	s.has(s.tile, after, false, true)
}

func bases(s *scene) {
	extend := func(p, base fence.Position) viewstore.Verdict {
		v, err := s.Put(s.Context(), viewstore.Put{Tile: s.tile, At: p, Base: base, Tail: value(p, 10)})
		require.NoError(s, err)
		return v
	}
	require.Equal(s, viewstore.NeedsBase, extend(at(1, 5, 1), at(1, 1, 1)))
	s.put(s.tile, 1, at(1, 5, 1), at(1, 1, 1), 10)
	require.Equal(s, viewstore.Stored, extend(at(1, 6, 1), at(1, 1, 1)))
	require.Equal(s, viewstore.NeedsBase, extend(at(1, 7, 1), at(1, 4, 1)))
	s.has(s.tile, s.newest(s.tile), true, true)
	require.Equal(s, at(1, 6, 1), s.newest(s.tile).At)
}

func (s *scene) lock(seen viewstore.Version, lease time.Duration) viewstore.Grant {
	s.Helper()
	g, err := s.Lock(s.Context(), s.tile, seen, lease)
	require.NoError(s, err)
	return g
}

func oneLock(s *scene) {
	var last viewstore.Token
	for range 20 {
		var wg sync.WaitGroup
		var held atomic.Int64
		var token atomic.Uint64
		for range 16 {
			wg.Go(func() {
				if g := s.lock(viewstore.Version{}, time.Minute); g.Token != 0 {
					held.Add(1)
					token.Store(uint64(g.Token))
				}
			})
		}
		wg.Wait()
		require.EqualValues(s, 1, held.Load(), "holders of one lock")
		now := viewstore.Token(token.Load())
		require.Greater(s, now, last, "tokens grow")
		require.NoError(s, s.Unlock(s.Context(), s.tile, last))
		require.Zero(s, s.lock(viewstore.Version{}, time.Minute), "the holder before cannot end it")
		require.NoError(s, s.Unlock(s.Context(), s.tile, now))
		last = now
	}
	// Another tile, also of the same group, has a lock of its own.
	require.NotZero(s, s.lock(viewstore.Version{}, time.Minute).Token)
	for other := s.tile + 1; other < s.tile+64; other++ {
		g, err := s.Lock(s.Context(), other, viewstore.Version{}, time.Minute)
		require.NoError(s, err)
		require.NotZero(s, g.Token, "a lock is of one tile")
	}
}

func lease(s *scene) {
	const short = 150 * time.Millisecond
	dead, err := s.Lock(s.Context(), s.tile+1, viewstore.Version{}, short)
	require.NoError(s, err)
	require.NotZero(s, dead.Token)
	renewed := time.Now() // or later
	first := s.lock(viewstore.Version{}, short)
	for kept := 0; kept < 4; {
		time.Sleep(short / 2)
		sent := time.Now()
		held, err := s.Renew(s.Context(), s.tile, first.Token, short)
		require.NoError(s, err)
		other := s.lock(viewstore.Version{}, short)
		if time.Since(renewed) >= short { // the holder was too slow to keep it
			require.NoError(s, s.Unlock(s.Context(), s.tile, max(first.Token, other.Token)))
			renewed, kept = time.Now(), 0
			first = s.lock(viewstore.Version{}, short)
			continue
		}
		require.True(s, held, "it is renewed in time")
		require.Zero(s, other)
		renewed = sent
		kept++
	}
	other, err := s.Lock(s.Context(), s.tile+1, viewstore.Version{}, time.Minute)
	require.NoError(s, err)
	require.NotZero(s, other.Token, "it was never renewed")
	var second viewstore.Grant
	waittest.Until(s, func() bool {
		second = s.lock(viewstore.Version{}, time.Minute)
		return second.Token != 0
	}, 10*time.Second, time.Millisecond, "it ends when it is not renewed")
	require.GreaterOrEqual(s, time.Since(renewed), short/2)
	require.Greater(s, second.Token, first.Token)
	held, err := s.Renew(s.Context(), s.tile, first.Token, time.Minute)
	require.NoError(s, err)
	require.False(s, held, "it is another's")
	require.NoError(s, s.Unlock(s.Context(), s.tile, first.Token))
	require.Zero(s, s.lock(viewstore.Version{}, short))
}

func seen(s *scene) {
	s.put(s.tile, 1, at(1, 2, 3), fence.Position{}, 10)
	changed := func(seen viewstore.Version) viewstore.Version {
		g := s.lock(seen, time.Minute)
		require.True(s, g.Changed)
		require.Zero(s, g.Token)
		return g.Newest
	}
	v := changed(viewstore.Version{}) // another relay has stored one
	require.Positive(s, v.Age)
	require.Equal(s, s.newest(s.tile).Stamp, v.Stamp)
	require.Equal(s, at(1, 2, 3), v.At)
	time.Sleep(2 * time.Millisecond)
	s.put(s.tile, 1, v.At, fence.Position{}, 10)
	confirmed := changed(v) // another relay has confirmed it
	require.Greater(s, confirmed.Stamp, v.Stamp)
	require.NotZero(s, s.lock(confirmed, time.Minute).Token)
	require.Zero(s, s.lock(confirmed, time.Minute))
	require.NoError(s, s.Drop(s.Context(), s.tile, v.At))
	require.Zero(s, changed(confirmed), "there is none any more")
	s.put(s.tile, 1, at(1, 3, 3), at(1, 1, 1), 10)
	require.Equal(s, at(1, 1, 1), changed(confirmed).Base)
}

func ownLock(s *scene) {
	mine := s.lock(viewstore.Version{}, time.Minute)
	s.put(s.tile, mine.Token-1, at(1, 2, 3), fence.Position{}, 10)
	require.Zero(s, s.lock(s.newest(s.tile), time.Minute), "the lock is not the late writer's")
	v, err := s.Put(s.Context(), viewstore.Put{Tile: s.tile, Token: mine.Token, At: at(1, 3, 3), Base: at(1, 1, 1),
		Tail: []byte("x")})
	require.NoError(s, err)
	require.Equal(s, viewstore.NeedsBase, v)
	require.Zero(s, s.lock(s.newest(s.tile), time.Minute), "the holder puts again")
	require.Equal(s, viewstore.Older, s.put(s.tile, mine.Token, at(1, 1, 3), fence.Position{}, 10))
	require.NotZero(s, s.lock(s.newest(s.tile), time.Minute).Token, "its holder has come to an end")
}

func dropped(s *scene) {
	s.put(s.tile, 1, at(1, 2, 3), at(1, 1, 1), 10)
	old := s.newest(s.tile)
	s.put(s.tile, 1, at(1, 3, 3), at(1, 1, 1), 10)
	require.NoError(s, s.Drop(s.Context(), s.tile, old.At))
	v := s.newest(s.tile)
	require.NoError(s, s.Drop(s.Context(), s.tile, at(1, 3, 4)), "another history")
	s.has(s.tile, v, true, true)
	require.NoError(s, s.Drop(s.Context(), s.tile, v.At))
	_, ok, err := s.Find(s.Context(), s.tile)
	require.NoError(s, err)
	require.False(s, ok)
	s.has(s.tile, v, false, false)
	require.Equal(s, viewstore.Stored, s.put(s.tile, 1, at(1, 2, 3), at(1, 1, 1), 10), "nothing is newer now")
}

func announced(s *scene) {
	heard := make(chan viewstore.Version, 1000)
	stop := s.Listen(s.tile, func(v viewstore.Version) { heard <- v })
	quiet := s.Listen(s.tile+1, func(viewstore.Version) { s.Errorf("another tile's version was announced") })
	defer quiet()
	seq := uint64(1)
	same := func(v viewstore.Version) {
		s.Helper()
		n := s.newest(s.tile)
		n.Age = 0
		require.Equal(s, n, v)
	}
	waittest.Until(s, func() bool { // the subscription takes a moment
		seq++
		s.put(s.tile, 1, at(1, seq, 1), fence.Position{}, 10)
		select {
		case v := <-heard:
			same(v)
			return true
		case <-time.After(20 * time.Millisecond):
			return false
		}
	}, 10*time.Second, time.Millisecond)
	s.put(s.tile, 1, at(1, seq, 1), fence.Position{}, 10)
	same(<-heard) // a confirmation
	s.put(s.tile, 1, at(1, seq+1, 1), at(1, 1, 1), 10)
	same(<-heard)
	s.put(s.tile, 1, at(1, 1, 1), fence.Position{}, 10) // refused
	time.Sleep(50 * time.Millisecond)
	require.Empty(s, heard)
	stop()
	stop()
	s.put(s.tile, 1, at(2, 1, 1), fence.Position{}, 10)
	time.Sleep(50 * time.Millisecond)
	require.Empty(s, heard)
}

func contexts(s *scene) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, _, err := s.Find(ctx, s.tile)
	require.ErrorIs(s, err, context.Canceled)
	_, err = s.Lock(ctx, s.tile, viewstore.Version{}, time.Minute)
	require.ErrorIs(s, err, context.Canceled)
	_, err = s.Put(ctx, viewstore.Put{Tile: s.tile, At: at(1, 1, 1), Tail: []byte("x")})
	require.ErrorIs(s, err, context.Canceled)
	_, err = s.Usage(ctx)
	require.ErrorIs(s, err, context.Canceled)
}

// random makes the same calls to the store and to a Memory, and wants the same answers.
func random(s *scene) {
	r := seed.Rand(s.T)
	model, err := viewstore.NewMemory(&viewstore.Limits{Budget: 16 * 40_000})
	require.NoError(s, err)
	stores := [2]viewstore.Store{s.Store, model}
	tiles := groupMates(6)
	ctx := s.Context()
	both := func(what string, call func(viewstore.Store) string) {
		require.Equal(s, call(model), call(s.Store), what)
	}
	tokens := [2]map[fence.TileID]viewstore.Token{{}, {}}
	for range 3000 {
		t := tiles[r.IntN(len(tiles))]
		p := at(1+r.Uint64N(3), 1+r.Uint64N(12), 1+r.Uint64N(2))
		size, late := r.IntN(5000), viewstore.Token(r.Uint64N(3))
		base := [...]fence.Position{{}, at(1, 1, 1), at(1, 2, 1)}[r.IntN(3)]
		switch r.IntN(6) {
		case 0, 1:
			put := viewstore.Put{Tile: t, Token: late, At: p, Base: base}
			if r.IntN(8) > 0 {
				put.Tail = value(p, size)
			}
			if !base.IsZero() && r.IntN(3) > 0 {
				put.Snapshot = value(base, size)
			}
			both(fmt.Sprintf("put %s on %s", p, base), func(st viewstore.Store) string {
				v, err := st.Put(ctx, put)
				return fmt.Sprint(v, err)
			})
		case 2:
			both("find", func(st viewstore.Store) string {
				v, ok, err := st.Find(ctx, t)
				b, tail, err2 := st.Values(ctx, t, v, true)
				return fmt.Sprint(v.At, v.Base, ok, err, len(b), len(tail), err2)
			})
		case 3:
			both("drop", func(st viewstore.Store) string { return fmt.Sprint(st.Drop(ctx, t, p)) })
		case 4:
			for i, st := range stores {
				v, _, err := st.Find(ctx, t)
				require.NoError(s, err)
				g, err := st.Lock(ctx, t, v, time.Hour)
				require.NoError(s, err)
				require.Equal(s, tokens[i][t] == 0, g.Token != 0)
				if g.Token != 0 {
					tokens[i][t] = g.Token
				}
			}
		case 5:
			for i, st := range stores {
				require.NoError(s, st.Unlock(ctx, t, tokens[i][t]))
				delete(tokens[i], t)
			}
		}
		both("usage", func(st viewstore.Store) string {
			u, err := st.Usage(ctx)
			return fmt.Sprint(u, err)
		})
	}
}
