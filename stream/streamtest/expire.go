package streamtest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
)

// shortest is the shortest time to live that Expire takes.
const shortest = time.Second

func (s *scene) expire(at fence.Position) bool {
	s.Helper()
	answer := s.expireOne(s.Context(), s.tile, at, shortest)
	require.NoError(s, answer.Err)
	return answer.Expires
}

func (s *scene) expireOne(
	ctx context.Context, tile fence.TileID, at fence.Position, after time.Duration,
) stream.Expiry {
	s.Helper()
	answers := s.Log.(stream.Collector).Expire(ctx, []stream.Quiet{{Tile: tile, Durable: at}}, after)
	require.Len(s, answers, 1)
	return answers[0]
}

// quiet makes a tile that may go: its last entry is in its snapshot, and it has no owner.
func (s *scene) quiet() fence.Position {
	s.Helper()
	s.save(s.commit(1, 3)[2])
	s.mark(relay, 2)
	require.NoError(s, s.Log.DeadLetter(s.Context(), stream.Poison{Tile: s.tile, Seq: 2, Reason: "test"}))
	s.DropOwner(s.tile)
	return s.last
}

// requireGone waits until the store has nothing of the tile.
func (s *scene) requireGone() {
	s.Helper()
	waittest.Until(s.T, func() bool {
		st := s.stat()
		require.Equal(s, st.Entries > 0, st.HasSnapshot, "it goes in one step: %+v", st)
		return st.Entries == 0 && !st.HasSnapshot && len(st.Marks) == 0 && st.DeadLetters == 0 && st.Trimmed == 0
	}, 10*time.Second, 50*time.Millisecond)
	require.Equal(s, fence.Position{}, s.readLast())
}

// expireGoes: a quiet tile goes as a whole, and the next owner begins it anew above its checkpoint.
func expireGoes(s *scene) {
	s.Parallel()
	at := s.quiet()
	require.True(s, s.expire(at))
	require.True(s, s.expire(at), "again: the earliest counts")
	require.Equal(s, at, s.readLast(), "not at once")
	s.requireGone()
	require.False(s, s.expire(at), "there is nothing to expire")
	r := fence.Rebase{Tile: s.tile, Epoch: 2, Contact: "b:1", Seq: at.Seq + fence.RebaseJump,
		Blob: []byte("from the checkpoint"), Replaces: &fence.Position{}}
	_, err := s.Store.Rebase(s.Context(), r)
	require.NoError(s, err)
}

// expireStays: what is owned, or not durable as a whole, stays.
func expireStays(s *scene) {
	s.Parallel()
	entries := s.commit(1, 3)
	s.save(entries[2])
	require.False(s, s.expire(s.last), "it has an owner")
	s.DropOwner(s.tile)
	require.False(s, s.expire(entries[1].Position), "an entry after the checkpoint")
	forked := s.last
	forked.Chain++
	require.False(s, s.expire(forked), "another history")
	s.commit(2, 1) // after the snapshot
	s.DropOwner(s.tile)
	require.False(s, s.expire(s.last), "the store's own snapshot ends before")
	require.False(s, s.expire(entries[2].Position))
	time.Sleep(shortest + 200*time.Millisecond)
	require.Equal(s, s.last, s.readLast())
	require.Len(s, s.read(0, 0).Entries, 4)
}

// expireWakes: an owner that comes back in time finds all of it, and keeps it.
func expireWakes(s *scene) {
	s.Parallel()
	woken := map[string]*scene{}
	before := map[string][]fence.Entry{}
	for name, wake := range map[string]func(s *scene, at fence.Position){
		"install": func(s *scene, _ fence.Position) { s.commit(2, 2) },
		"its own batch again": func(s *scene, at fence.Position) {
			last := s.read(at.Seq-1, 0).Entries[0]
			r, err := s.Store.Commit(s.Context(), fence.Commit{Tile: s.tile, Epoch: 1, Contact: "owner:1",
				Prev: last.Prev, Tick: last.Tick, Payload: last.Payload, Install: true})
			require.NoError(s, err)
			require.True(s, r.Duplicate)
		},
		"rebase": func(s *scene, at fence.Position) { s.rebase(2, at.Seq+10) },
	} {
		tile := s.another()
		at := tile.quiet()
		require.True(s, tile.expire(at), name)
		wake(tile, at)
		woken[name], before[name] = tile, tile.read(0, 0).Entries
	}
	time.Sleep(shortest + 200*time.Millisecond)
	for name, tile := range woken {
		s.requireEntries(before[name], tile.read(0, 0).Entries)
		st := tile.stat()
		require.True(s, st.HasSnapshot, name)
		require.Len(s, st.Marks, 1, name)
		require.Equal(s, 1, st.DeadLetters, name)
	}
}

// expireRacesAClaim: a claimant that has replayed what then goes away is refused, and learns that there is nothing.
func expireRacesAClaim(s *scene) {
	s.Parallel()
	at := s.quiet()
	require.True(s, s.expire(at))
	h, err := stream.Recover(s.Context(), s.Log, s.tile)
	require.NoError(s, err)
	s.requireGone()
	_, err = s.Store.Commit(s.Context(),
		fence.Commit{Tile: s.tile, Epoch: 2, Contact: "b:1", Prev: h.Position, Tick: 9, Install: true})
	require.ErrorIs(s, err, fence.ErrBehind)
	_, err = s.Store.Commit(s.Context(),
		fence.Commit{Tile: s.tile, Epoch: 1, Contact: "owner:1", Prev: at, Tick: 9, Payload: []byte("late")})
	require.ErrorIs(s, err, fence.ErrNoOwner, "the former owner proves its epoch first")
	var refused *fence.RefusedError
	require.True(s, errors.As(err, &refused))
	require.Equal(s, fence.Position{}, refused.Current.Position)
	h, err = stream.Recover(s.Context(), s.Log, s.tile)
	require.NoError(s, err)
	require.Zero(s, h)
}

func expireArguments(s *scene) {
	at := s.quiet()
	for what, answer := range map[string]stream.Expiry{
		"tile":     s.expireOne(s.Context(), 0, at, shortest),
		"position": s.expireOne(s.Context(), s.tile, fence.Position{}, shortest),
		"time":     s.expireOne(s.Context(), s.tile, at, shortest-1),
	} {
		require.ErrorIs(s, answer.Err, fence.ErrInvalidArgument, what)
		require.False(s, answer.Expires)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	require.ErrorIs(s, s.expireOne(ctx, s.tile, at, shortest).Err, fence.ErrNotApplied)
	require.Equal(s, at, s.readLast())
	require.Empty(s, s.Log.(stream.Collector).Expire(s.Context(), nil, shortest))
}

// expireMany: each of many tiles has its own answer, whatever becomes of the others.
func expireMany(s *scene) {
	var asked []stream.Quiet
	for range 3 {
		s.tile, s.last = newTile(), fence.Position{}
		asked = append(asked, stream.Quiet{Tile: s.tile, Durable: s.quiet()})
	}
	asked[1].Durable = fence.Position{}
	asked[2].Durable.Chain++
	answers := s.Log.(stream.Collector).Expire(s.Context(), asked, shortest)
	require.Len(s, answers, len(asked))
	require.Equal(s, stream.Expiry{Expires: true}, answers[0])
	require.ErrorIs(s, answers[1].Err, fence.ErrInvalidArgument)
	require.Equal(s, stream.Expiry{}, answers[2])
}
