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
