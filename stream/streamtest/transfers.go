package streamtest

import (
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfertest"
	"github.com/tilefence/tilefence/stream"
)

// What crosses a tile's border is in the private parts of its batches and snapshots. No store understands it: these
// cases require that it comes back byte for byte, and so says the same.

// cross commits the tile's next n ticks.
func (s *scene) cross(h *transfertest.Tile, epoch fence.Epoch, n int) (entries []fence.Entry) {
	s.Helper()
	for range n {
		payload, private := h.Next(s, fence.Position{Epoch: epoch, Seq: s.last.Seq + 1})
		entries = append(entries, s.append(epoch, payload, private))
	}
	return entries
}

// requireBorder requires that a new owner knows all that the tile does of its border.
func (s *scene) requireBorder(h *transfertest.Tile) {
	s.Helper()
	r := s.recover()
	require.Equal(s, s.last, r.Position)
	transfertest.RequireEqual(s, h.State, transfertest.Read(s, r.Snapshot.Blob, r.Entries))
}

// transfersKept: at each tick, with a snapshot of any age, trimmed to it or not, whether or not the tile has an owner.
func transfersKept(s *scene) {
	h := &transfertest.Tile{}
	var all []fence.Entry
	for i := range 24 {
		all = append(all, s.cross(h, fence.Epoch(1+i/6), 1)...)
		s.requireBorder(h)
		switch i % 6 {
		case 2:
			s.saveOf(all[i], h.Blob())
		case 4:
			_, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
			require.NoError(s, err)
			left := s.read(0, everything).Entries
			s.requireEntries(all[i-2:], left)
		case 5:
			s.DropOwner(s.tile)
		default:
			continue
		}
		s.requireBorder(h)
	}
}

// transfersRebase: an owner goes on from a state that has less than the stream. What follows is of that state.
func transfersRebase(s *scene) {
	h := &transfertest.Tile{}
	s.cross(h, 1, 5)
	was := *h
	s.cross(h, 1, 6)
	s.rebaseTo(2, s.last.Seq+fence.RebaseJump, was.Blob())
	s.requireBorder(&was)
	s.cross(&was, 2, 7)
	s.requireBorder(&was)
}

// transfersAppendedAgain: a failover loses what the owner has committed last, and the owner presents it again. Another
// epoch's is refused, and nothing of it is in the tile's state.
func transfersAppendedAgain(s *scene) {
	if s.Freeze == nil {
		return
	}
	h := &transfertest.Tile{}
	s.saveOf(s.cross(h, 1, 3)[2], h.Blob())
	thaw := s.Freeze(s.tile)
	lost := s.cross(h, 1, 6)
	thaw()
	present := func(e *fence.Entry) (fence.Receipt, error) {
		return s.Store.Commit(s.Context(), fence.Commit{Tile: s.tile, Epoch: e.Epoch, Contact: "owner:1", Prev: e.Prev,
			Tick: e.Tick, Payload: e.Payload, Private: e.Private})
	}
	for i := range lost[:5] {
		r, err := present(&lost[i])
		require.NoError(s, err)
		require.Equal(s, lost[i].Position, r.Position)
	}
	r, err := present(&lost[4])
	require.NoError(s, err)
	require.True(s, r.Duplicate)
	_, err = present(&lost[5])
	require.NoError(s, err)
	s.requireEntries(lost, s.read(lost[0].Prev.Seq, everything).Entries)
	s.requireBorder(h)

	stale := *h
	payload, private := stale.Next(s, fence.Position{Epoch: 1, Seq: s.last.Seq + 1})
	at := s.last
	s.cross(h, 2, 2)
	_, err = s.Store.Commit(s.Context(), fence.Commit{Tile: s.tile, Epoch: 1, Contact: "owner:1", Prev: at,
		Tick: fence.Tick(at.Seq + 1), Payload: payload, Private: private})
	require.ErrorIs(s, err, fence.ErrStale)
	s.requireBorder(h)
}

// transfersLarge: a batch may be all private. The most that an entry may have comes back whole.
func transfersLarge(s *scene) {
	private := make([]byte, fence.MaxPayload)
	for i := range private {
		private[i] = byte(i * i >> 8)
	}
	want := []fence.Entry{s.append(1, nil, private), s.append(1, nil, private[:1])}
	s.requireEntries(want, s.read(0, 0).Entries)
}
