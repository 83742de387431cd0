package streamtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// another is another tile of the same log.
func (s *scene) another() *scene { return &scene{T: s.T, Harness: s.Harness, tile: newTile()} }

// tileMarks reads the tile's marks with what they come with.
func (s *scene) tileMarks() stream.TileMarks {
	s.Helper()
	m, err := s.Log.Marks(s.Context(), []fence.TileID{s.tile})
	require.NoError(s, err)
	require.Len(s, m, 1)
	require.NoError(s, m[0].Err)
	require.Equal(s, s.tile, m[0].Tile)
	return m[0]
}

// markMany: marks of many consumers and tiles go out together, in any order; what is wrong with one, the others do
// not feel.
func markMany(s *scene) {
	require.Empty(s, s.Log.Mark(s.Context(), nil))
	const tiles = 40
	var writes []stream.MarkWrite
	var all []fence.TileID
	for i := range tiles {
		all = append(all, newTile())
		for j, c := range consumers() {
			writes = append(writes, stream.MarkWrite{Tile: all[i], Consumer: c, Seq: fence.Seq(100*i + j)})
		}
	}
	require.Nil(s, s.Log.Mark(s.Context(), writes), "nothing was wrong")
	bad := map[int]stream.MarkWrite{
		3:           {Tile: 0, Consumer: stream.BridgeAcked, Seq: 1},
		4:           {Tile: all[1], Consumer: "nobody", Seq: 1},
		50:          {Tile: all[12], Consumer: stream.BridgeAcked, Seq: fence.MaxNumber + 1},
		4*tiles - 1: {Tile: all[tiles-1], Consumer: stream.RelayFloor, Seq: 1},
	}
	for i := range writes {
		writes[i].Seq++
		if w, is := bad[i]; is {
			writes[i] = w
		}
	}
	errs := s.Log.Mark(s.Context(), writes)
	require.Len(s, errs, len(writes))
	for i, err := range errs {
		if _, is := bad[i]; is {
			require.ErrorIs(s, err, fence.ErrInvalidArgument, i)
			continue
		}
		require.NoError(s, err, i)
	}
	marks, err := s.Log.Marks(s.Context(), all)
	require.NoError(s, err)
	require.Len(s, marks, tiles)
	for i, m := range marks {
		require.Equal(s, all[i], m.Tile)
		require.Len(s, m.Marks, 4)
		for j, c := range consumers() {
			want := fence.Seq(100*i + j + 1)
			if _, is := bad[4*i+j]; is {
				want--
			}
			require.Equal(s, want, m.Marks[c].Seq, "tile %d, %s", i, c)
		}
	}
}

// markTurns: writes to one consumer act in the order given, also when more than one call has to be made of them.
func markTurns(s *scene) {
	var writes []stream.MarkWrite
	for i := range 40 {
		writes = append(writes, stream.MarkWrite{Tile: s.tile, Consumer: relay, Seq: fence.Seq(40 - i)})
	}
	require.Nil(s, s.Log.Mark(s.Context(), writes))
	require.EqualValues(s, 40, s.marks()[relay].Seq)
	require.Nil(s, s.Log.Mark(s.Context(), []stream.MarkWrite{
		{Tile: s.tile, Consumer: relay, Seq: 7, Rewind: true}, {Tile: s.tile, Consumer: relay, Seq: 5},
		{Tile: s.tile, Consumer: relay, Seq: 9}}))
	require.EqualValues(s, 9, s.marks()[relay].Seq)
}

// markRelease: a consumer that leaves in good order holds nothing, is not reported, and makes room.
func markRelease(s *scene) {
	s.save(s.commit(1, 9)[8])
	s.mark(relay, 2)
	s.mark(stream.Checkpointed, 5)
	other := stream.RelayMember("other")
	require.Nil(s, s.Log.Mark(s.Context(), []stream.MarkWrite{{Tile: s.tile, Consumer: relay, Release: true},
		{Tile: s.tile, Consumer: other, Seq: 1}, {Tile: s.tile, Consumer: other, Release: true},
		{Tile: s.tile, Consumer: stream.BridgeAcked, Release: true}}))
	require.Len(s, s.marks(), 1)
	s.trim(stream.Trimmed{Floor: 5, Removed: 4, Held: stream.Checkpointed})
	// A consumer that comes back begins anew.
	require.Nil(s, s.Log.Mark(s.Context(), []stream.MarkWrite{{Tile: s.tile, Consumer: stream.Checkpointed,
		Release: true},
		{Tile: s.tile, Consumer: stream.Checkpointed, Seq: 4}}))
	require.EqualValues(s, 4, s.marks()[stream.Checkpointed].Seq)
	require.ErrorIs(s, s.markErr(s.Context(), s.tile, relay, 2), stream.ErrResync)
}

// markResync: a consumer that lost entries is notified each time it asks for them; others are not.
func markResync(s *scene) {
	s.save(s.commit(1, 20)[9])
	s.trim(stream.Trimmed{Floor: 10, Removed: 9})
	for _, c := range consumers() {
		for range 2 {
			for _, seq := range []fence.Seq{0, 5, 8} {
				var resync *stream.ResyncError
				require.ErrorAs(s, s.markErr(s.Context(), s.tile, c, seq), &resync, "%s at %d", c, seq)
				require.Equal(s, stream.ResyncError{Tile: s.tile, Consumer: c, Seq: seq, Trimmed: 10}, *resync)
				require.Contains(s, s.marks(), c, "it is in force, so that the rest is kept meanwhile")
			}
		}
		s.mark(c, 9) // the entry at the floor is still there
		s.mark(c, 12)
		require.ErrorIs(s, s.markErr(s.Context(), s.tile, c, 8), stream.ErrResync,
			"a mark that does not move tells all the same")
		require.EqualValues(s, 12, s.marks()[c].Seq)
	}
	errs := s.Log.Mark(s.Context(), []stream.MarkWrite{{Tile: s.tile, Consumer: relay, Seq: 13},
		{Tile: s.tile, Consumer: stream.RelayMember("new"), Seq: 3},
		{Tile: s.tile, Consumer: stream.Checkpointed, Seq: 13}})
	require.Len(s, errs, 3)
	require.NoError(s, errs[0])
	require.ErrorIs(s, errs[1], stream.ErrResync)
	require.NoError(s, errs[2])
	s.trim(stream.Trimmed{Floor: 3, Held: stream.RelayMember("new")})
	require.EqualValues(s, 10, s.tileMarks().Trimmed, "what is gone stays gone")
	require.Equal(s, fence.Seq(10), s.read(0, 1).Entries[0].Seq)
}

// markFull: a tile has only so many relays, and they keep neither bridge nor checkpointer out.
func markFull(s *scene) {
	s.save(s.commit(1, 9)[8])
	s.mark(stream.BridgeAcked, 3)
	s.trim(stream.Trimmed{Floor: 3, Removed: 2, Held: stream.BridgeAcked}) // what is recorded of trims takes no place
	var writes []stream.MarkWrite
	for i := range stream.MaxMarks + 4 {
		writes = append(writes, stream.MarkWrite{Tile: s.tile, Consumer: stream.RelayMember(fmt.Sprint("r", i)),
			Seq: 5})
	}
	errs := s.Log.Mark(s.Context(), writes)
	require.Len(s, errs, len(writes))
	for i, err := range errs {
		if i < stream.MaxRelayMarks {
			require.NoError(s, err)
		} else {
			require.ErrorIs(s, err, stream.ErrTooManyMarks)
		}
	}
	require.Len(s, s.marks(), stream.MaxRelayMarks+1)
	s.mark(stream.BridgeAcked, 4)
	s.mark(writes[7].Consumer, 6)
	s.mark(stream.Checkpointed, 5)
	s.mark(stream.BridgePending, 5)
	require.Len(s, s.marks(), stream.MaxMarks)
	another := stream.RelayMember("another")
	require.ErrorIs(s, s.markErr(s.Context(), s.tile, another, 5), stream.ErrTooManyMarks)
	s.another().mark(another, 1)
	// A consumer that is expired makes room.
	s.AgeMarks(s.tile, 2*lease)
	require.Nil(s, s.Log.Mark(s.Context(), writes[:16]))
	s.trim(stream.Trimmed{Floor: 4, Removed: 1, Held: stream.BridgeAcked}) // notes which are silent
	require.ErrorIs(s, s.markErr(s.Context(), s.tile, another, 5), stream.ErrTooManyMarks)
	s.AgeMarks(s.tile, lease/2+time.Second)
	require.Nil(s, s.Log.Mark(s.Context(), writes[:16]))
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
	require.NoError(s, err)
	require.Len(s, got.Expired, stream.MaxMarks-16)
	require.True(s, slices.IsSortedFunc(got.Expired, stream.CompareConsumers))
	s.mark(another, 6)
}

// markLast: the bridge's mark keeps the position of its entry, as long as it is at that entry.
func markLast(s *scene) {
	at := func(seq fence.Seq) fence.Position {
		return fence.Position{Epoch: 3, Seq: seq, Chain: 7 + fence.Chain(seq)}
	}
	write := func(w stream.MarkWrite) error {
		w.Tile, w.Consumer = s.tile, stream.BridgeAcked
		return stream.MarkOne(s.Context(), s.Log, w)
	}
	last := func(want fence.Position) {
		s.Helper()
		require.Equal(s, want, s.marks()[stream.BridgeAcked].Last)
	}
	require.NoError(s, write(stream.MarkWrite{Seq: 4, Last: at(4)}))
	last(at(4))
	require.NoError(s, write(stream.MarkWrite{Seq: 4})) // renewed
	last(at(4))
	require.NoError(s, write(stream.MarkWrite{Seq: 3, Last: at(3)})) // late: the higher mark stays
	last(at(4))
	require.NoError(s, write(stream.MarkWrite{Seq: 5}))
	last(fence.Position{})
	require.NoError(s, write(stream.MarkWrite{Seq: 2, Last: at(2), Rewind: true}))
	last(at(2))
	require.Nil(s, s.Log.Mark(s.Context(), []stream.MarkWrite{
		{Tile: s.tile, Consumer: stream.BridgePending, Seq: 6, Last: at(6)},
		{Tile: s.tile, Consumer: stream.BridgeAcked, Seq: 6, Last: at(6)}}))
	last(at(6))
	require.Zero(s, s.marks()[stream.BridgePending].Last)
	require.NoError(s, write(stream.MarkWrite{Release: true}))
	require.NoError(s, write(stream.MarkWrite{Seq: 6}))
	last(fence.Position{})
	require.ErrorIs(s, write(stream.MarkWrite{Seq: 7, Last: at(6)}), fence.ErrInvalidArgument)
}

// markShown: the highest epoch that any consumer has reported is kept, whatever is written or released later.
func markShown(s *scene) {
	shown := func(want fence.Epoch) {
		s.Helper()
		require.Equal(s, want, s.tileMarks().Shown)
		got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
		require.NoError(s, err)
		require.Equal(s, want, got.Shown)
	}
	write := func(w stream.MarkWrite) {
		s.Helper()
		w.Tile = s.tile
		require.NoError(s, stream.MarkOne(s.Context(), s.Log, w))
	}
	shown(0)
	write(stream.MarkWrite{Consumer: relay, Seq: 3})
	shown(0)
	write(stream.MarkWrite{Consumer: relay, Seq: 4, Shown: 7})
	shown(7)
	write(stream.MarkWrite{Consumer: stream.BridgeAcked, Seq: 9, Shown: 5})
	write(stream.MarkWrite{Consumer: relay, Seq: 1, Shown: 6, Rewind: true})
	write(stream.MarkWrite{Consumer: relay, Seq: 9})
	shown(7)
	write(stream.MarkWrite{Consumer: relay, Release: true})
	write(stream.MarkWrite{Consumer: stream.BridgeAcked, Release: true})
	shown(7)
	require.Nil(s, s.Log.Mark(s.Context(), []stream.MarkWrite{{Tile: s.tile, Consumer: relay, Shown: 9},
		{Tile: s.tile, Consumer: stream.BridgeAcked, Shown: 12},
		{Tile: s.tile, Consumer: stream.BridgePending, Shown: 10}}))
	shown(12)
	err := stream.MarkOne(s.Context(), s.Log,
		stream.MarkWrite{Tile: s.tile, Consumer: relay, Shown: fence.MaxNumber + 1})
	require.ErrorIs(s, err, fence.ErrInvalidArgument)
	shown(12)
}
