package streamtest

import (
	"math"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func readEntries(s *scene) {
	require.Empty(s, s.read(0, 0).Entries)
	want := s.commit(1, 3)
	want = append(want, s.rebase(2, 50))
	want = append(want, s.commit(2, 2)...)
	want = append(want, s.commit(3, 1)...)
	c := s.read(0, 0)
	s.requireEntries(want, c.Entries)
	require.Nil(s, c.Poison)
	for i := range c.Entries {
		require.NoError(s, c.Entries[i].Verify())
	}
	// After is exclusive, and need not be the sequence of an entry.
	for after, n := range map[fence.Seq]int{1: 6, 2: 5, 3: 4, 4: 4, 49: 4, 50: 3, 52: 1, 53: 0, 54: 0,
		fence.MaxNumber: 0, math.MaxUint64 - 1: 0, math.MaxUint64: 0} {
		s.requireEntries(want[len(want)-n:], s.read(after, 0).Entries)
	}
}

func readLimits(s *scene) {
	want := s.commit(1, stream.DefaultLimit+2)
	s.requireEntries(want[:stream.DefaultLimit], s.read(0, 0).Entries)
	s.requireEntries(want[:stream.DefaultLimit], s.read(0, -1).Entries)
	s.requireEntries(want, s.read(0, len(want)).Entries)
	s.requireEntries(want, s.read(0, math.MaxInt).Entries)
	s.requireEntries(want[1:], s.read(1, math.MaxInt).Entries)
	s.requireEntries(want[4:5], s.read(4, 1).Entries)
	// From chunk to chunk nothing is missing and nothing comes twice.
	var got []fence.Entry
	for {
		c := s.read(fence.Seq(len(got)), 7)
		if len(c.Entries) == 0 {
			break
		}
		got = append(got, c.Entries...)
	}
	s.requireEntries(want, got)
}

func readManyTiles(s *scene) {
	chunks, err := s.Log.Read(s.Context(), nil)
	require.NoError(s, err)
	require.Empty(s, chunks)
	const tiles = 40
	cursors := make([]stream.Cursor, tiles)
	want := make([][]fence.Entry, tiles)
	for i := range cursors {
		one := &scene{T: s.T, Harness: s.Harness, tile: newTile()}
		want[i] = one.commit(fence.Epoch(i+1), i%4)
		after := min(i%2, len(want[i]))
		cursors[i] = stream.Cursor{Tile: one.tile, After: fence.Seq(after), Limit: 1 + i%3}
		want[i] = want[i][after:]
		want[i] = want[i][:min(len(want[i]), cursors[i].Limit)]
	}
	// The same tile may be asked for more than once.
	cursors = append(cursors, cursors[3], stream.Cursor{Tile: cursors[3].Tile, Limit: 1})
	chunks, err = s.Log.Read(s.Context(), cursors)
	require.NoError(s, err)
	require.Len(s, chunks, tiles+2)
	for i, c := range chunks[:tiles] {
		require.Equal(s, cursors[i].Tile, c.Tile)
		s.requireEntries(want[i], c.Entries)
		if i%4 == 0 {
			require.Equal(s, fence.Owner{Tile: c.Tile}, c.Owner)
		} else {
			require.Equal(s, fence.Epoch(i+1), c.Owner.Epoch)
		}
	}
	require.Equal(s, chunks[3], chunks[tiles])
	require.EqualValues(s, 1, chunks[tiles+1].Entries[0].Seq)
}

func readOwner(s *scene) {
	require.Equal(s, fence.Owner{Tile: s.tile}, s.read(0, 0).Owner)
	s.commit(1, 2)
	owner, err := s.Store.Owner(s.Context(), s.tile)
	require.NoError(s, err)
	require.True(s, owner.Present())
	require.Equal(s, owner, s.read(0, 0).Owner)
	require.Equal(s, owner, s.read(2, 0).Owner, "also when there is nothing to read")
	s.commit(4, 1)
	require.EqualValues(s, 4, s.read(0, 0).Owner.Epoch)
	s.DropOwner(s.tile)
	c := s.read(0, 0)
	require.Equal(s, fence.Owner{Tile: s.tile}, c.Owner)
	require.Len(s, c.Entries, 3)
}

// readOwnMemory: what a reader does to what it was given, no other reader sees.
func readOwnMemory(s *scene) {
	want := s.commit(1, 2)
	snapshot := s.save(want[1])
	mine := s.read(0, 0)
	mine.Entries[0].Payload[0] = 'X'
	mine.Entries[1] = fence.Entry{}
	s.requireEntries(want, s.read(0, 0).Entries)
	got, _, err := s.Log.Snapshot(s.Context(), s.tile)
	require.NoError(s, err)
	got.Blob[0] = 'X'
	got, _, err = s.Log.Snapshot(s.Context(), s.tile)
	require.NoError(s, err)
	require.Equal(s, snapshot.Blob, got.Blob)
}

// readWhileWritten: the owner that comes with the entries is never below them, and no read sees a hole.
func readWhileWritten(s *scene) {
	const batches = 200
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var at fence.Position
			for {
				last := false
				select {
				case <-done:
					last = true
				default:
				}
				chunks, err := s.Log.Read(s.Context(), []stream.Cursor{{Tile: s.tile, After: at.Seq, Limit: 50}})
				if !assert.NoError(s, err) || !assert.NoError(s, chunks[0].Err) {
					return
				}
				for _, e := range chunks[0].Entries {
					assert.Equal(s, at, e.Prev)
					assert.GreaterOrEqual(s, chunks[0].Owner.Epoch, e.Epoch)
					at = e.Position
				}
				if last && len(chunks[0].Entries) == 0 {
					assert.EqualValues(s, batches, at.Seq)
					return
				}
			}
		})
	}
	for i := range batches {
		s.commit(fence.Epoch(1+i/10), 1)
	}
	close(done)
	wg.Wait()
}

// readDamage: one tile's damage is that tile's, and the others are read.
func readDamage(s *scene) {
	if s.CorruptOwner == nil {
		return
	}
	want := s.commit(1, 2)
	other := &scene{T: s.T, Harness: s.Harness, tile: newTile()}
	other.commit(1, 2)
	s.CorruptOwner(other.tile)
	chunks, err := s.Log.Read(s.Context(), []stream.Cursor{{Tile: other.tile}, {Tile: s.tile}})
	require.NoError(s, err)
	require.ErrorIs(s, chunks[0].Err, fence.ErrCorrupt)
	require.Equal(s, stream.Chunk{Tile: other.tile, Err: chunks[0].Err}, chunks[0])
	require.NoError(s, chunks[1].Err)
	s.requireEntries(want, chunks[1].Entries)

	_, err = s.Log.Last(s.Context(), other.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
	_, err = stream.Recover(s.Context(), s.Log, other.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
}

func snapshotRead(s *scene) {
	got, found, err := s.Log.Snapshot(s.Context(), s.tile)
	require.NoError(s, err)
	require.False(s, found)
	require.Zero(s, got)
	entries := s.commit(1, 3)
	for _, e := range entries[1:] {
		want := s.save(e)
		got, found, err = s.Log.Snapshot(s.Context(), s.tile)
		require.NoError(s, err)
		require.True(s, found)
		require.False(s, got.Taken.IsZero())
		want.Taken = got.Taken
		require.Equal(s, want, got)
	}
	marker := s.rebase(2, 70)
	got, found, err = s.Log.Snapshot(s.Context(), s.tile)
	require.NoError(s, err)
	require.True(s, found)
	require.Equal(s, marker.Position, got.Position)
	require.Equal(s, "rebased", string(got.Blob))
	require.Equal(s, string(marker.Private), got.Sum)
}

func snapshotDamaged(s *scene) {
	e := s.commit(1, 1)[0]
	s.save(e)
	s.DamageSnapshot(s.tile)
	got, found, err := s.Log.Snapshot(s.Context(), s.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
	var corrupt *fence.CorruptError
	require.ErrorAs(s, err, &corrupt)
	require.Equal(s, s.tile, corrupt.Tile)
	require.Equal(s, e.Position, corrupt.At)
	require.False(s, found)
	require.Zero(s, got)
	_, err = stream.Recover(s.Context(), s.Log, s.tile)
	require.ErrorIs(s, err, fence.ErrCorrupt)
	// The owner's next snapshot heals it.
	s.save(s.commit(1, 1)[0])
	_, found, err = s.Log.Snapshot(s.Context(), s.tile)
	require.NoError(s, err)
	require.True(s, found)
}

func lastRows(s *scene) {
	require.Equal(s, fence.Position{}, s.readLast())
	for _, step := range []func(){
		func() { s.commit(1, 3) },
		func() { s.DropOwner(s.tile) },
		func() { s.rebase(2, 40) },
		func() { s.DropOwner(s.tile) },
		func() { s.commit(3, 2) },
		func() {
			// After a trim there is still an entry to tell by.
			e := s.commit(3, 1)[0]
			s.save(e)
			_, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
			require.NoError(s, err)
			require.Len(s, s.read(0, 0).Entries, 1)
		},
		func() { s.DropOwner(s.tile) },
	} {
		step()
		require.Equal(s, s.last, s.readLast())
	}
}

func (s *scene) readLast() fence.Position {
	s.Helper()
	last, err := s.Log.Last(s.Context(), s.tile)
	require.NoError(s, err)
	return last
}

// stat describes the tile.
func (s *scene) stat() stream.Stat {
	s.Helper()
	stats, err := s.Log.(stream.Inspector).Stat(s.Context(), []fence.TileID{s.tile})
	require.NoError(s, err)
	require.Len(s, stats, 1)
	return stats[0]
}

// statRows: a tile's description at each stage of its life.
func statRows(s *scene) {
	st := s.stat()
	require.Equal(s, stream.Stat{Tile: s.tile, Owner: fence.Owner{Tile: s.tile},
		Marks: map[stream.Consumer]stream.Mark{}}, st)
	seq, held := st.Floor()
	require.Zero(s, seq)
	require.Empty(s, held)

	entries := s.commit(1, 5)
	saved := s.save(entries[3])
	s.mark(stream.BridgeAcked, 4)
	s.mark(stream.Checkpointed, 2)
	require.NoError(s, s.Log.DeadLetter(s.Context(), stream.Poison{Tile: s.tile, Seq: 9, Reason: "test"}))
	st = s.stat()
	require.NoError(s, st.Err)
	require.Equal(s, fence.Owner{Tile: s.tile, Epoch: 1, Contact: "owner:1", Position: s.last, Tick: 5}, st.Owner)
	require.Equal(s, s.last, st.Last)
	require.Equal(s, 5, st.Entries)
	require.Equal(s, fence.Seq(1), st.First)
	require.Positive(s, st.Memory)
	require.Equal(s, 1, st.DeadLetters)
	require.True(s, st.HasSnapshot)
	require.WithinDuration(s, time.Now(), st.Snapshot.Taken, time.Minute)
	st.Snapshot.Taken = time.Time{}
	require.Equal(s, stream.SnapshotHead{Position: saved.Position, Tick: saved.Tick, Contact: "owner:1",
		Size: len(saved.Blob)}, st.Snapshot)
	require.Equal(s, fence.Seq(2), st.Marks[stream.Checkpointed].Seq)
	seq, held = st.Floor()
	require.Equal(s, fence.Seq(2), seq)
	require.Equal(s, stream.Checkpointed, held)

	trimmed, err := s.Log.Trim(s.Context(), stream.TrimRequest{Tile: s.tile, Lease: lease})
	require.NoError(s, err)
	require.Equal(s, seq, trimmed.Floor, "what Floor says is what Trim does")
	require.Equal(s, held, trimmed.Held)
	st = s.stat()
	require.Equal(s, fence.Seq(2), st.First)
	require.Equal(s, 4, st.Entries)

	s.DropOwner(s.tile)
	st = s.stat()
	require.False(s, st.Owner.Present())
	require.Equal(s, s.last, st.Last)
}

// statMany: many tiles come back in the order asked; damage to one is reported with it.
func statMany(s *scene) {
	s.commit(1, 1)
	asked := []fence.TileID{newTile(), s.tile, newTile(), s.tile}
	stats, err := s.Log.(stream.Inspector).Stat(s.Context(), asked)
	require.NoError(s, err)
	for i, t := range asked {
		require.Equal(s, t, stats[i].Tile)
		require.Equal(s, t == s.tile, stats[i].Owner.Present())
	}
	if s.CorruptOwner != nil {
		s.CorruptOwner(s.tile)
		require.ErrorIs(s, s.stat().Err, fence.ErrCorrupt)
	}
	_, err = s.Log.(stream.Inspector).Stat(s.Context(), []fence.TileID{0})
	var bad *fence.ArgumentError
	require.ErrorAs(s, err, &bad)
}
