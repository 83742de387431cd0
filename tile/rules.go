package tile

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Rules is the game: it holds one tile's state and says what happens in it. A TileProcessor calls it
// from one goroutine, one method at a time.
//
// State changes only in Restore and Apply. Resolve decides and changes nothing, so a batch that the
// fence refuses leaves no trace, and the owner, its successor and every watcher fold the same events
// into the same state.
type Rules interface {
	// Restore replaces the state with the one Snapshot wrote; nil means a new, empty tile. An error stops
	// the processor before it has served anything.
	Restore(snapshot []byte) error

	// Resolve plays one tick: from the state and the intents queued since the last tick it returns the
	// events that happen, and one outcome per intent, in order; another number of them is a failure of the rules, and
	// nothing happens. It must not change the state. No events and no intents is a quiet tick. Intents whose outcome
	// is not one of the four are Rejected. What costs something must be rejected without an ActionID: it has not been
	// paid for.
	Resolve(tick fence.Tick, intents []Intent) (events [][]byte, outcomes []stream.Outcome)

	// Apply folds committed events into the state. It must give the same state everywhere; an error means
	// that the stream and the rules disagree, and stops the processor.
	Apply(tick fence.Tick, events [][]byte) error

	// Snapshot encodes the whole state. Equal states give equal bytes.
	Snapshot() ([]byte, error)
}

// Divided is implemented by Rules whose tile has areas (see fence.Area), so that a watcher can be sent what it sees and
// no more. The state of an area must follow from its own events: a ship that flies from one area to another leaves the
// first in one event, and enters the second, with all that is known of it, in another.
//
// What Snapshot returns, and Restore is given, is then a list of parts, one for each area: see fence.AppendPart. Apply
// is given a tick's events ordered by area, those of one area in the order of Resolve.
type Divided interface {
	// Area is the area that an event of Resolve belongs to; 0 is the whole tile, which every watcher sees.
	Area(event []byte) fence.Area
}
