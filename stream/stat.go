package stream

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// SnapshotHead is a snapshot without its blob.
type SnapshotHead struct {
	fence.Position
	Tick    fence.Tick
	Contact string    // owner that wrote it
	Taken   time.Time // by the store's clock
	Size    int       // bytes of the blob
}

// Stat is what the store holds of a tile, without payloads: for operators, and for programs that need to know
// how far a tile is.
type Stat struct {
	Tile        fence.TileID
	Owner       fence.Owner    // not Present when the owner hash is gone
	Last        fence.Position // as Log.Last
	Entries     int            // in the stream
	First       fence.Seq      // sequence of the stream's oldest entry; zero when it has none
	Memory      int64          // bytes the stream takes in the store, roughly; zero when the store cannot tell
	Snapshot    SnapshotHead
	HasSnapshot bool
	Marks       map[Consumer]Mark
	Trimmed     fence.Seq // the highest floor at which a trim removed entries
	DeadLetters int
	// Err says why this tile could not be read, or what is damaged; what could be read is there.
	Err error
}

// Floor is the sequence a trim would keep from now, and what holds it there: the consumer whose mark is the
// lowest, or empty when the snapshot is. Zero without a snapshot. It knows nothing of consumer groups,
// nor of leases that have run out; Log.Trim judges those in the store.
func (s *Stat) Floor() (seq fence.Seq, held Consumer) {
	if !s.HasSnapshot {
		return 0, ""
	}
	seq = s.Snapshot.Seq
	for c, m := range s.Marks {
		if m.Seq < seq || m.Seq == seq && held != "" && CompareConsumers(c, held) < 0 {
			seq, held = m.Seq, c
		}
	}
	return seq, held
}

// Inspector reads what an operator asks for. The Logs of this module are Inspectors. streamtest.Run
// states the contract as tests.
type Inspector interface {
	// Stat describes tiles, in the order asked, in as few round trips as the store allows. A tile the store
	// knows nothing of gives a Stat with nothing in it. Errors: a *fence.ArgumentError for a tile that is
	// zero; a *fence.StoreError with fence.ErrNotApplied when no tile could be read.
	Stat(ctx context.Context, tiles []fence.TileID) ([]Stat, error)
}
