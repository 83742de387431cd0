package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// ErrGap means: the stream no longer holds an entry that replay needs.
var ErrGap = errors.New("stream has a gap")

// GapError is a hole between what a reader holds and the stream's next entry.
type GapError struct {
	Tile fence.TileID
	Have fence.Position // what the reader holds
	Next fence.Entry    // the first entry after it, which does not follow it
}

func (e *GapError) Error() string {
	return fmt.Sprintf("tile %s: %v: have %s, the next entry is %s after %s", e.Tile, ErrGap, e.Have, e.Next.Position,
		e.Next.Prev)
}

// Is matches ErrGap.
func (e *GapError) Is(target error) bool { return target == ErrGap }

// Recovery is a tile's history as the store has it: a snapshot, and the entries after it, each following
// the one before.
type Recovery struct {
	Snapshot    fence.Snapshot // zero Position: none, replay from the beginning
	HasSnapshot bool
	Entries     []fence.Entry
	Position    fence.Position // where the history ends: the last entry's, else the snapshot's
}

// recoverAttempts bounds how often Recover starts again because the snapshot moved while it read.
const recoverAttempts = 5

// Recover reads a tile's snapshot and the whole tail after it, verifying checksum, chains and
// continuity. A tail that does not meet the snapshot is read again, since a newer snapshot and a trim
// may have come between; if it still does not, the error is a *GapError. A poison entry is a
// *fence.CorruptError. A tile the store knows nothing of gives a zero Recovery.
func Recover(ctx context.Context, log Log, tile fence.TileID) (Recovery, error) {
	var last error
	for range recoverAttempts {
		r, err := recoverOnce(ctx, log, tile)
		if err == nil || !errors.Is(err, ErrGap) {
			return r, err
		}
		last = err
	}
	return Recovery{}, last
}

func recoverOnce(ctx context.Context, log Log, tile fence.TileID) (Recovery, error) {
	var r Recovery
	var err error
	if r.Snapshot, r.HasSnapshot, err = log.Snapshot(ctx, tile); err != nil {
		return Recovery{}, err
	}
	r.Position = r.Snapshot.Position
	err = Follow(ctx, log, tile, r.Position, func(e *fence.Entry) error {
		if e.Kind == fence.KindRebase {
			// A rebase that came after the snapshot was read replaces it: read again.
			return &GapError{Tile: tile, Have: r.Position, Next: *e}
		}
		r.Entries = append(r.Entries, *e)
		r.Position = e.Position
		return nil
	})
	if err != nil {
		return Recovery{}, err
	}
	return r, nil
}

// Follow calls f for every entry after from, to the end of the stream, checking that each follows the
// one before and that its chain is its content's. It stops at the first error. An entry that does not
// follow is a *GapError; a rebase marker is passed to f, which decides.
func Follow(ctx context.Context, log Log, tile fence.TileID, from fence.Position, f func(*fence.Entry) error) error {
	at := from
	for {
		chunks, err := log.Read(ctx, []Cursor{{Tile: tile, After: at.Seq}})
		if err != nil {
			return err
		}
		c := &chunks[0]
		if c.Err != nil {
			return c.Err
		}
		for i := range c.Entries {
			e := &c.Entries[i]
			if err := e.Verify(); err != nil {
				return err
			}
			if e.Prev != at && e.Kind != fence.KindRebase {
				return &GapError{Tile: tile, Have: at, Next: *e}
			}
			if err := f(e); err != nil {
				return err
			}
			at = e.Position
		}
		if c.Poison != nil {
			return c.Poison.Damage()
		}
		if len(c.Entries) < DefaultLimit {
			return nil
		}
	}
}
