package streamtest

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// lease is long enough for no mark of a test to expire by itself.
const lease = time.Hour

// relay is one of a tier.
var relay = stream.RelayMember("relay-1_A")

// consumers are all that mark, in the order in which ties hold the floor.
func consumers() []stream.Consumer {
	return []stream.Consumer{stream.BridgeAcked, stream.BridgePending, relay, stream.Checkpointed}
}

func (s *scene) markErr(ctx context.Context, tile fence.TileID, c stream.Consumer, seq fence.Seq) error {
	return stream.MarkOne(ctx, s.Log, stream.MarkWrite{Tile: tile, Consumer: c, Seq: seq})
}

func (s *scene) mark(c stream.Consumer, seq fence.Seq) {
	s.Helper()
	require.NoError(s, s.markErr(s.Context(), s.tile, c, seq))
}

func (s *scene) marks() map[stream.Consumer]stream.Mark {
	s.Helper()
	return s.tileMarks().Marks
}

// trim trims and requires the answer, and what is left of the stream.
func (s *scene) trim(want stream.Trimmed) {
	s.Helper()
	before := s.read(0, 1<<20).Entries
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
	require.NoError(s, err)
	require.Len(s, s.read(0, 1<<20).Entries, got.Entries)
	require.Equal(s, got.Entries > 0, got.Bytes > 0)
	got.Entries, got.Bytes = 0, 0
	require.Equal(s, want, got)
	after := s.read(0, 1<<20).Entries
	require.Equal(s, before[want.Removed:], after)
	for _, e := range before[:want.Removed] {
		require.Less(s, e.Seq, want.Floor)
	}
	if len(after) > 0 {
		require.GreaterOrEqual(s, after[0].Seq, want.Floor)
	}
}

func markClimbs(s *scene) {
	require.Empty(s, s.marks())
	for i, c := range consumers() {
		s.mark(c, fence.Seq(10*i))
	}
	require.Len(s, s.marks(), 4)
	for i, c := range consumers() {
		m := s.marks()[c]
		require.EqualValues(s, 10*i, m.Seq)
		require.InDelta(s, time.Now().UnixMilli(), m.Moved, float64(time.Minute.Milliseconds()))
	}
	for _, step := range []struct{ mark, want fence.Seq }{
		{5, 5}, {9, 9}, {8, 9}, {0, 9}, {10, 10}, {9, 10}, {100, 100}, {99, 100},
		{fence.MaxNumber - 1, fence.MaxNumber - 1}, {fence.MaxNumber, fence.MaxNumber},
		{fence.MaxNumber - 1, fence.MaxNumber},
	} {
		s.mark(stream.BridgeAcked, step.mark)
		require.Equal(s, step.want, s.marks()[stream.BridgeAcked].Seq)
	}
	require.EqualValues(s, 10, s.marks()[stream.BridgePending].Seq, "the other marks stay")
	// Who may mark need not own anything: the tile has no owner and no stream.
	require.Empty(s, s.read(0, 0).Entries)
}

// markLease: every mark renews the lease, also one that moves nothing.
func markLease(s *scene) {
	s.mark(relay, 7)
	s.AgeMarks(s.tile, lease/2)
	aged := s.marks()[relay].Moved
	require.Less(s, aged, time.Now().Add(-lease/2).Add(time.Minute).UnixMilli())
	s.mark(relay, 3)
	m := s.marks()[relay]
	require.EqualValues(s, 7, m.Seq)
	require.Greater(s, m.Moved, aged)
}

func trimNoSnapshot(s *scene) {
	s.trim(stream.Trimmed{})
	s.commit(1, 5)
	s.trim(stream.Trimmed{})
	for _, c := range consumers() {
		s.mark(c, 4)
	}
	s.trim(stream.Trimmed{})
	// Expired leases are still told.
	s.AgeMarks(s.tile, 2*lease)
	s.trim(stream.Trimmed{Expired: consumers()})
	require.Empty(s, s.marks())
}

func trimSnapshot(s *scene) {
	entries := s.commit(1, 6)
	s.save(entries[3])
	s.trim(stream.Trimmed{Floor: 4, Removed: 3})
	s.trim(stream.Trimmed{Floor: 4})
	s.save(entries[5])
	s.trim(stream.Trimmed{Floor: 6, Removed: 2})
	// The stream goes on from what is left.
	s.commit(1, 1)
	s.DropOwner(s.tile)
	s.commit(2, 1)
	s.trim(stream.Trimmed{Floor: 6})
}

// trimEachMark: each consumer by itself holds the floor, for as long as it is the lowest.
func trimEachMark(s *scene) {
	for _, c := range consumers() {
		one := &scene{T: s.T, Harness: s.Harness, tile: newTile()}
		one.save(one.commit(1, 9)[7])
		others := slices.DeleteFunc(consumers(), func(o stream.Consumer) bool { return o == c })
		for _, o := range others {
			one.mark(o, 6)
		}
		one.mark(c, 0) // it needs everything
		one.trim(stream.Trimmed{Held: c})
		one.mark(c, 3)
		one.trim(stream.Trimmed{Floor: 3, Removed: 2, Held: c})
		one.mark(c, 5)
		one.trim(stream.Trimmed{Floor: 5, Removed: 2, Held: c})
		one.mark(c, 9)
		one.trim(stream.Trimmed{Floor: 6, Removed: 1, Held: others[0]})
		for _, o := range others {
			one.mark(o, 100)
		}
		one.trim(stream.Trimmed{Floor: 8, Removed: 2}) // past the snapshot nobody holds it
	}
}

func trimTies(s *scene) {
	s.save(s.commit(1, 9)[4])
	for _, c := range consumers() {
		s.mark(c, 5)
	}
	s.trim(stream.Trimmed{Floor: 5, Removed: 4}) // as far as the snapshot: nobody holds it
	s.save(s.read(8, 1).Entries[0])
	for i, c := range consumers() {
		s.trim(stream.Trimmed{Floor: 5, Held: c})
		s.mark(c, fence.Seq(100+i))
	}
	s.trim(stream.Trimmed{Floor: 9, Removed: 4})
}

func trimLease(s *scene) {
	s.save(s.commit(1, 9)[8])
	s.mark(stream.BridgeAcked, 2)
	s.mark(stream.Checkpointed, 3)
	s.trim(stream.Trimmed{Floor: 2, Removed: 1, Held: stream.BridgeAcked})
	s.AgeMarks(s.tile, lease+time.Second)
	s.mark(stream.Checkpointed, 1) // renewed, though not moved
	s.trim(stream.Trimmed{Floor: 3, Removed: 1, Held: stream.Checkpointed,
		Expired: []stream.Consumer{stream.BridgeAcked}})
	require.NotContains(s, s.marks(), stream.BridgeAcked)
	s.trim(stream.Trimmed{Floor: 3, Held: stream.Checkpointed})
	// Who comes back begins anew, also lower than before.
	var resync *stream.ResyncError
	require.ErrorAs(s, s.markErr(s.Context(), s.tile, stream.BridgeAcked, 1), &resync)
	require.Equal(s, stream.ResyncError{Tile: s.tile, Consumer: stream.BridgeAcked, Seq: 1, Trimmed: 3}, *resync)
	require.EqualValues(s, 1, s.marks()[stream.BridgeAcked].Seq)
	s.trim(stream.Trimmed{Floor: 1, Held: stream.BridgeAcked})
	s.AgeMarks(s.tile, lease+time.Second)
	s.trim(stream.Trimmed{Floor: 9, Removed: 6, Expired: []stream.Consumer{stream.BridgeAcked, stream.Checkpointed}})
}

// trimClockPutBack: the store's clock steps back, or a node with a slower one takes over. A lease that began in what is
// now the future counts from the next trim on, instead of being longer by as much as the clock stepped back.
func trimClockPutBack(s *scene) {
	s.save(s.commit(1, 9)[8])
	s.mark(relay, 2)
	s.AgeMarks(s.tile, -50*lease)
	s.trim(stream.Trimmed{Floor: 2, Removed: 1, Held: relay})
	s.AgeMarks(s.tile, lease/2)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
	s.AgeMarks(s.tile, lease/2+time.Second)
	s.trim(stream.Trimmed{Floor: 9, Removed: 7, Expired: []stream.Consumer{relay}})
}

func trimGroup(s *scene) {
	if s.Group == nil {
		return
	}
	s.save(s.commit(1, 9)[8])
	s.Group(s.tile, 6, 2) // 5 and 6 are pending
	s.trim(stream.Trimmed{Floor: 5, Removed: 4, Held: stream.ConsumerGroup})
	s.mark(relay, 4)
	s.trim(stream.Trimmed{Floor: 4, Held: relay})
	s.mark(relay, 5)
	s.trim(stream.Trimmed{Floor: 5, Held: relay})
	require.Error(s, s.markErr(s.Context(), s.tile, stream.ConsumerGroup, 5))
	idle := &scene{T: s.T, Harness: s.Harness, tile: newTile()}
	idle.save(idle.commit(1, 4)[3])
	idle.Group(idle.tile, 4, 0) // nothing pending
	idle.trim(stream.Trimmed{Floor: 4, Removed: 3})
}

// trimGroupLease: what a group has had pending for a lease holds nothing any more; what it was given since does.
func trimGroupLease(s *scene) {
	if s.Group == nil {
		return
	}
	s.save(s.commit(1, 9)[8])
	s.Group(s.tile, 4, 2) // 3 and 4 are pending
	s.AgeGroups(s.tile, lease+time.Second)
	s.Group(s.tile, 6, 1) // 6, of another group
	s.mark(relay, 2)
	s.trim(stream.Trimmed{Floor: 2, Removed: 1, Held: relay}) // nothing of the group's is gone yet
	s.mark(relay, 9)
	s.trim(stream.Trimmed{Floor: 6, Removed: 4, Held: stream.ConsumerGroup,
		Expired: []stream.Consumer{stream.ConsumerGroup}})
	s.trim(stream.Trimmed{Floor: 6, Held: stream.ConsumerGroup}) // told once
	s.AgeGroups(s.tile, lease/2)
	s.trim(stream.Trimmed{Floor: 6, Held: stream.ConsumerGroup})
	s.AgeGroups(s.tile, lease)
	s.trim(stream.Trimmed{Floor: 9, Removed: 3, Expired: []stream.Consumer{stream.ConsumerGroup}})
}

// trimGroups: the lowest of all groups counts, and a long backlog is seen through.
func trimGroups(s *scene) {
	if s.Group == nil {
		return
	}
	s.save(s.commit(1, 400)[399])
	s.Group(s.tile, 390, 390)
	s.AgeGroups(s.tile, 2*lease)
	s.Group(s.tile, 310, 10) // 301 to 310
	var removed int
	for range 5 {
		got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
		require.NoError(s, err)
		require.Equal(s, stream.ConsumerGroup, got.Held)
		require.LessOrEqual(s, got.Floor, fence.Seq(301))
		removed += got.Removed
	}
	require.Equal(s, 300, removed)
}

// trimRebase: a rebase is a snapshot, so what lies before it goes.
func trimRebase(s *scene) {
	s.commit(1, 3)
	s.rebase(2, 100)
	s.commit(2, 1)
	s.trim(stream.Trimmed{Floor: 100, Removed: 3})
	r, err := stream.Recover(s.Context(), s.Log, s.tile)
	require.NoError(s, err)
	require.Equal(s, s.last, r.Position)
}
