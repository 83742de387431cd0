package streamtest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

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
		c := fence.Commit{Tile: s.tile, Epoch: max(s.last.Epoch, 1), Contact: "owner:1", Prev: s.last,
			Tick:    fence.Tick(s.last.Seq + 1),
			Payload: make([]byte, largeEntry), Install: s.last.IsZero()}
		r, err := s.Store.Commit(s.Context(), c)
		require.NoError(s, err)
		entries = append(entries, c.Entry())
		s.last = r.Position
	}
	return entries
}

// squeeze trims under a bound and requires the answer, what is left, and that it is within the bound if it can be.
func (s *scene) squeeze(bytes int64, want stream.Trimmed) stream.Trimmed {
	s.Helper()
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease, MaxBytes: bytes})
	require.NoError(s, err)
	left := s.read(0, 1<<20).Entries
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

// boundEvicts: past the bound the consumers furthest behind lose their hold, one sequence after the other, and only as
// many as must.
func boundEvicts(s *scene) {
	s.save(s.fill(40)[37])
	first, second := stream.RelayMember("1"), stream.RelayMember("2")
	s.mark(second, 5)
	s.mark(first, 5)
	s.mark(stream.BridgeAcked, 20)
	s.mark(stream.Checkpointed, 30)
	s.squeeze(100<<20, stream.Trimmed{Floor: 5, Removed: 4, Held: first})
	got := s.squeeze(3<<19, stream.Trimmed{Floor: 20, Removed: 15, Held: stream.BridgeAcked,
		Evicted: []stream.Consumer{first, second}})
	require.True(s, got.Alarming(3<<19))
	require.False(s, got.Alarming(4<<20))
	require.Len(s, s.marks(), 2)
	require.EqualValues(s, 20, s.tileMarks().Trimmed)
	// Who was evicted is told; who was not is not.
	require.ErrorIs(s, s.markErr(s.Context(), s.tile, second, 5), stream.ErrResync)
	s.mark(second, 19)
	s.mark(stream.BridgeAcked, 20)
	s.squeeze(3<<19, stream.Trimmed{Floor: 19, Held: second})
	s.squeeze(1<<20, stream.Trimmed{Floor: 30, Removed: 10, Held: stream.Checkpointed,
		Evicted: []stream.Consumer{second, stream.BridgeAcked}})
	s.squeeze(1<<20, stream.Trimmed{Floor: 30, Held: stream.Checkpointed})
}

// boundKeepsTheTail: what comes after the snapshot stays, whatever it takes.
func boundKeepsTheTail(s *scene) {
	entries := s.fill(40)
	s.mark(relay, 3)
	got := s.squeeze(1<<20, stream.Trimmed{})
	require.True(s, got.Alarming(1<<20), "also without a snapshot it is told")
	s.save(entries[9])
	got = s.squeeze(1<<20, stream.Trimmed{Floor: 10, Removed: 9, Evicted: []stream.Consumer{relay}})
	require.Greater(s, got.Bytes, int64(1<<20))
	require.True(s, got.Alarming(1<<20))
	s.mark(stream.BridgeAcked, 10) // as far as the snapshot, it costs nothing
	s.mark(stream.Checkpointed, 25)
	s.squeeze(1<<20, stream.Trimmed{Floor: 10})
	require.Len(s, s.marks(), 2)
	r, err := stream.Recover(s.Context(), s.Log, s.tile)
	require.NoError(s, err)
	s.requireEntries(entries[10:], r.Entries)
}

// boundEvictsMany: more consumers, each a step further, than a store might drop in one call.
func boundEvictsMany(s *scene) {
	s.save(s.fill(40)[39])
	var evicted []stream.Consumer
	for i := range 12 {
		c := stream.RelayMember(fmt.Sprintf("%02d", i))
		s.mark(c, fence.Seq(1+i))
		evicted = append(evicted, c)
	}
	s.mark(stream.Checkpointed, 38)
	s.squeeze(1<<20, stream.Trimmed{Floor: 38, Removed: 37, Held: stream.Checkpointed, Evicted: evicted})
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

// boundUneven: a stream whose first entries are small is measured as what it is.
func boundUneven(s *scene) {
	s.commit(1, 60)
	s.save(s.fill(30)[29])
	s.mark(relay, 1)
	s.mark(stream.Checkpointed, 89)
	got, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease, MaxBytes: 1 << 20})
	require.NoError(s, err)
	require.Equal(s, []stream.Consumer{relay}, got.Evicted)
	require.EqualValues(s, 89, got.Floor)
	require.Equal(s, stream.Checkpointed, got.Held)
	require.Equal(s, 2, got.Entries)
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
