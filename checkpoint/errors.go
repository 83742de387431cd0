package checkpoint

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

var (
	// ErrOlder means that the store holds a snapshot which the one presented does not supersede; an
	// *OlderError says which. Nothing was written.
	ErrOlder = errors.New("the stored checkpoint is not older")
	// ErrNoSnapshot means that the coordination store has no snapshot of the tile yet.
	ErrNoSnapshot = errors.New("the tile has no snapshot yet")
	// ErrUnserved means that a claimant has rebased the tile, and no owner has had a tick since: the rebase may not be
	// confirmed, and is not made durable. The next attempt finds that it was, or that it is gone.
	ErrUnserved = errors.New("no owner has served on the rebased snapshot yet")
	// ErrThrottled means that the durable store refused for want of capacity. It comes inside a
	// *fence.StoreError.
	ErrThrottled = errors.New("throttled")
)

// OlderError is a Put that was refused because of what is stored.
type OlderError struct {
	Tile      fence.TileID
	Stored    fence.Position
	Presented fence.Position
}

// Covers reports whether nothing is missing: what is stored is the presented position or a later one, as
// when another checkpointer was faster. It is false in two cases that an operator should know of: the
// sequence regressed under a higher epoch, or another history stands at the same numbers.
func (e *OlderError) Covers() bool { return covers(e.Stored, e.Presented) }

func (e *OlderError) Error() string {
	why := ErrOlder.Error()
	switch {
	case e.Covers():
	case e.Presented.Epoch > e.Stored.Epoch:
		why = "the sequence regressed under a higher epoch"
	case e.Presented.Epoch == e.Stored.Epoch && e.Presented.Seq == e.Stored.Seq:
		why = "another history stands at the same sequence"
	}
	return fmt.Sprintf("tile %s: checkpoint at %s refused: %s (stored: %s)", e.Tile, e.Presented, why, e.Stored)
}

// Is matches ErrOlder.
func (e *OlderError) Is(target error) bool { return target == ErrOlder }

// covers reports whether a checkpoint at stored makes one at p unnecessary.
func covers(stored, p fence.Position) bool {
	return stored == p || Supersedes(stored, p) || stored.Epoch > p.Epoch
}

// FloorError is a snapshot of a lower epoch than its Checkpointer has seen before: what a coordination
// store shows that has failed over to an older state. It is not written.
type FloorError struct {
	Tile      fence.TileID
	Floor     fence.Epoch // highest epoch seen
	Presented fence.Position
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("tile %s: snapshot at %s is of an older epoch than %d, seen before: %v", e.Tile, e.Presented,
		e.Floor, fence.ErrStale)
}

// Is matches fence.ErrStale.
func (e *FloorError) Is(target error) bool { return target == fence.ErrStale }
