package streamtest

import (
	"context"
	"fmt"
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
	before := s.read(0, everything).Entries
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
	require.NoError(s, err)
	require.Len(s, s.read(0, everything).Entries, got.Entries)
	require.Equal(s, got.Entries > 0, got.Bytes > 0)
	got.Entries, got.Bytes = 0, 0
	require.Equal(s, want, got)
	after := s.read(0, everything).Entries
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
		{fence.FarSeq - 1, fence.FarSeq - 1}, {fence.FarSeq, fence.FarSeq},
		{fence.FarSeq - 1, fence.FarSeq},
	} {
		s.mark(stream.BridgeAcked, step.mark)
		require.Equal(s, step.want, s.marks()[stream.BridgeAcked].Seq)
	}
	require.EqualValues(s, 10, s.marks()[stream.BridgePending].Seq, "the other marks stay")
	// A consumer need not own anything: the tile has no owner and no stream.
	require.Empty(s, s.read(0, 0).Entries)
}

func trimTies(s *scene) {
	s.save(s.commit(1, 9)[4])
	for _, c := range consumers() {
		s.mark(c, 5)
	}
	s.trim(stream.Trimmed{Floor: 5, Removed: 4}) // as far as the snapshot: no consumer holds it
	s.save(s.read(8, 1).Entries[0])
	for i, c := range consumers() {
		s.trim(stream.Trimmed{Floor: 5, Held: c})
		s.mark(c, fence.Seq(100+i))
	}
	s.trim(stream.Trimmed{Floor: 9, Removed: 4})
}

// trimClockPutBack: the store's clock steps back, or a node with a slower one takes over. A lease that began in what is
// now the future counts from the next trim on, instead of being longer by as much as the clock stepped back.
func trimClockPutBack(s *scene) {
	s.save(s.commit(1, 9)[8])
	s.mark(relay, 2)
	s.AgeMarks(s.tile, -50*lease)
	s.trim(stream.Trimmed{Floor: 2, Removed: 1, Held: relay})
	s.AgeMarks(s.tile, lease/3)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
	s.AgeMarks(s.tile, lease/3)
	s.trim(stream.Trimmed{Floor: 2, Held: relay}) // notes that it is silent
	s.AgeMarks(s.tile, lease/2+time.Second)
	s.trim(stream.Trimmed{Floor: 9, Removed: 7, Expired: []stream.Consumer{relay}})
}

// trimClockPutAhead: the store's clock steps ahead by many leases. Consumers that live renew their marks within half a
// lease and lose nothing; one that died before the step, or does after, loses its hold half a lease later.
func trimClockPutAhead(s *scene) {
	s.save(s.commit(1, 9)[8])
	dead := stream.RelayMember("dead")
	s.mark(relay, 2)
	s.mark(dead, 3)
	s.AgeMarks(s.tile, 50*lease)
	s.trim(stream.Trimmed{Floor: 2, Removed: 1, Held: relay})
	s.trim(stream.Trimmed{Floor: 2, Held: relay}) // the next trim, at once
	require.NotZero(s, s.marks()[relay].Silent)
	s.AgeMarks(s.tile, lease/3)
	s.mark(relay, 2)
	require.Zero(s, s.marks()[relay].Silent)
	s.AgeMarks(s.tile, lease/3)
	s.trim(stream.Trimmed{Floor: 2, Held: relay, Expired: []stream.Consumer{dead}})
	// A second step right after the first, and one whose end is corrected.
	s.AgeMarks(s.tile, 50*lease)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
	s.mark(relay, 2)
	s.AgeMarks(s.tile, 50*lease)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
	s.AgeMarks(s.tile, -50*lease)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
	s.AgeMarks(s.tile, 50*lease)
	s.trim(stream.Trimmed{Floor: 2, Held: relay})
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
	s.trim(stream.Trimmed{Floor: 6, Held: stream.ConsumerGroup}) // reported once
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

// largeEntry is the payload of the entries that fill a stream, in bytes; with what any store adds to it, less than
// largeEntryTakes.
const (
	largeEntry      = 60_000
	largeEntryTakes = 66_000
)

// fill commits n large batches.
func (s *scene) fill(n int) (entries []fence.Entry) {
	s.Helper()
	for range n {
		entries = append(entries, s.append(max(s.last.Epoch, 1), make([]byte, largeEntry), nil))
	}
	return entries
}

// squeeze trims under a bound and requires the answer, what is left, and that it is within the bound if it can be.
func (s *scene) squeeze(bytes int64, want stream.Trimmed) stream.Trimmed {
	s.Helper()
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease, MaxBytes: bytes})
	require.NoError(s, err)
	left := s.read(0, everything).Entries
	require.Len(s, left, got.Entries)
	require.GreaterOrEqual(s, got.Bytes, int64(len(left)*largeEntry))
	require.LessOrEqual(s, got.Bytes, int64(len(left)*largeEntryTakes+16<<10))
	require.True(s, got.Bytes <= bytes || got.Held == "", "%d bytes, held by %s", got.Bytes, got.Held)
	if len(left) > 0 {
		require.GreaterOrEqual(s, left[0].Seq, want.Floor)
	}
	require.Equal(s, s.stat().Memory, got.Bytes)
	answer := got
	answer.Entries, answer.Bytes = 0, 0
	require.Equal(s, want, answer)
	return got
}

// boundInAGap: marks that are evicted where the sequence has a gap cost no entries, so the floor that is remembered
// is the one below which entries were removed, however many calls the store takes.
func boundInAGap(s *scene) {
	s.fill(20)
	s.rebase(2, 5000)
	s.fill(30)
	s.mark(relay, 10)
	evicted := []stream.Consumer{relay}
	for i := range 20 {
		c := stream.RelayMember(fmt.Sprintf("%02d", i))
		s.mark(c, fence.Seq(3000+i))
		evicted = append(evicted, c)
	}
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease, MaxBytes: 1 << 20})
	require.NoError(s, err)
	got.Bytes = 0
	require.Equal(s, stream.Trimmed{Floor: 5000, Removed: 20, Evicted: evicted, Entries: 31}, got)
	require.EqualValues(s, 3000, s.tileMarks().Trimmed)
	s.mark(evicted[2], 3001) // it has lost its hold and no entry
	require.ErrorIs(s, s.markErr(s.Context(), s.tile, relay, 10), stream.ErrResync)
}

// boundGroup: a consumer group counts like any consumer.
func boundGroup(s *scene) {
	if s.Group == nil {
		return
	}
	s.save(s.fill(40)[37])
	s.Group(s.tile, 12, 3) // 10 to 12 are pending
	s.mark(stream.Checkpointed, 30)
	s.squeeze(4<<20, stream.Trimmed{Floor: 10, Removed: 9, Held: stream.ConsumerGroup})
	s.squeeze(1<<20, stream.Trimmed{Floor: 30, Removed: 20, Held: stream.Checkpointed,
		Evicted: []stream.Consumer{stream.ConsumerGroup}})
	s.squeeze(1<<20, stream.Trimmed{Floor: 30, Held: stream.Checkpointed})
}
