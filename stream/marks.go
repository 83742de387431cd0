package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// Consumer names what moves a watermark: a kind, and for kinds of which there are many a member's name after a
// colon. The trim floor is the lowest of all watermarks and the snapshot.
type Consumer string

// The kinds of consumers of a tile's stream. Each consumer owns one field of the tile's marks.
const (
	BridgeAcked   Consumer = "bridge"     // last entry published to fan-out
	BridgePending Consumer = "pending"    // entry before the oldest one read but not yet published
	RelayFloor    Consumer = "relay"      // position from which a relay may still replay; marked by RelayMember
	Checkpointed  Consumer = "checkpoint" // last snapshot sequence in the durable store

	// ConsumerGroup is the oldest pending entry of a Redis consumer group: read, and not acknowledged. The store
	// tracks it by itself: it can hold the trim floor, and cannot be marked. Its lease counts for each entry from when
	// it was last delivered. What a group has not read yet holds nothing. Redis gives a pending entry that was removed
	// to the consumer that asks for it again, without its fields: that is how a member of the group learns of it.
	ConsumerGroup Consumer = "group"
)

// RelayMember is the mark of one relay of the tier: "relay:" and the relay's id, 1 to 64 ASCII letters,
// digits, hyphens and underscores. Each relay holds the floor by itself and for its own lease, so one that is
// behind cannot be overtaken by the others.
func RelayMember(id string) Consumer { return RelayFloor + ":" + Consumer(id) }

// Kind is the consumer without its member's name.
func (c Consumer) Kind() Consumer {
	kind, _, _ := strings.Cut(string(c), ":")
	return Consumer(kind)
}

// MaxMarks is how many consumers a tile can have at once, and MaxRelayMarks how many of them are relays, which keep
// neither bridge nor checkpointer out. It keeps the work of a trim bounded.
const (
	MaxMarks      = 256
	MaxRelayMarks = MaxMarks - 3
)

// Kinds lists the kinds of consumers that mark. Watermarks that tie hold the trim floor in this order, and
// within a kind by name.
func Kinds() []Consumer {
	return []Consumer{BridgeAcked, BridgePending, RelayFloor, Checkpointed}
}

// CompareConsumers orders consumers as ties do: by kind, consumer groups last, then by name.
func CompareConsumers(a, b Consumer) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func rank(c Consumer) int {
	kinds := Kinds()
	if i := slices.Index(kinds, c.Kind()); i >= 0 {
		return i
	}
	return len(kinds)
}

var relayMember = regexp.MustCompile(`^relay:[A-Za-z0-9_-]{1,64}$`)

// MarkWrite moves one consumer's watermark of one tile to Seq: the consumer needs no entry at or below it.
type MarkWrite struct {
	Tile     fence.TileID
	Consumer Consumer
	Seq      fence.Seq

	// Rewind lets the mark decrease. It is for a consumer that has seen the tile's history regress, after a
	// failover, and reads again what was written in its place. Without it a lower sequence only renews the lease of
	// the mark that is in force. A consumer with a name of its own may always set it.
	//
	// One that is sent again by a client library, or arrives late, may lower a mark that has climbed meanwhile.
	// That is safe: a lower mark removes nothing, it keeps entries longer, until the consumer's next mark.
	Rewind bool

	// Shown is the highest epoch of which the consumer has handed anything on; zero if it says nothing. It refuses
	// what is of a lower one, for good, so an owner must not serve below it: see Trimmed.Shown.
	Shown fence.Epoch

	// Last is the position of the entry at Seq, if the consumer knows it. It is kept for BridgeAcked, so that the
	// next bridge knows whether the tile's history is still the one of which Seq was forwarded.
	Last fence.Position

	// Release removes the mark, because the consumer leaves in good order: it holds nothing any more, and is not
	// reported as one that stopped. Seq and Rewind then say nothing.
	Release bool
}

// Validate validates what Log.Mark takes: nil, or a *fence.ArgumentError. For implementations.
func (w *MarkWrite) Validate() error {
	switch {
	case w.Consumer != BridgeAcked && w.Consumer != BridgePending && w.Consumer != Checkpointed &&
		!relayMember.MatchString(string(w.Consumer)):
		return &fence.ArgumentError{Field: "consumer", Value: w.Consumer,
			Want: "bridge, pending, checkpoint, or relay: and an id of 1 to 64 letters, digits, - and _"}
	case w.Seq > fence.FarSeq:
		return &fence.ArgumentError{Field: "seq", Value: w.Seq, Want: "at most 2^52: no tile comes to a higher one"}
	case !w.Last.IsZero() && (w.Last.Seq != w.Seq || w.Last.Epoch > fence.MaxNumber):
		return &fence.ArgumentError{Field: "last", Value: w.Last, Want: "the position of the entry at Seq, or zero"}
	case w.Shown > fence.MaxNumber:
		return &fence.ArgumentError{Field: "shown", Value: w.Shown, Want: "an epoch, at most 2^53-1"}
	}
	return guard.Tile(w.Tile)
}

// ErrResync means: entries that a consumer has not seen are gone.
var ErrResync = errors.New("entries were trimmed that this consumer had not seen: resync from the snapshot")

// ResyncError is the answer to a mark that says "I need everything after Seq" when the stream has been
// trimmed past that: the consumer's lease had run out, or it was too slow for the memory bound. The mark is in
// force all the same, so that what is left is kept while the consumer reads the snapshot.
type ResyncError struct {
	Tile     fence.TileID
	Consumer Consumer
	Seq      fence.Seq // what the consumer marked
	Trimmed  fence.Seq // entries below it are gone
}

func (e *ResyncError) Error() string {
	return fmt.Sprintf("tile %s: %s is at %d and the stream begins at %d: %v", e.Tile, e.Consumer, e.Seq, e.Trimmed,
		ErrResync)
}

// Is matches ErrResync.
func (e *ResyncError) Is(target error) bool { return target == ErrResync }

// ErrTooManyMarks means: the tile has MaxRelayMarks relays. One whose mark is refused holds no entry, and has to
// resync when it meets a gap.
var ErrTooManyMarks = errors.New("the tile has as many relays as it can have")

// Mark is a consumer's watermark.
type Mark struct {
	Seq   fence.Seq // the consumer needs no entry at or below it
	Moved int64     // store clock when it was last written, milliseconds since 1970

	// Last is the position of the entry at Seq, if the consumer reported it; see MarkWrite.Last.
	Last fence.Position

	// Silent is the store clock, milliseconds since 1970, at which a trim first found that the mark had not been
	// written for half a lease; zero if none has since it was. See TrimRequest.Lease.
	Silent int64
}

// TileMarks are the watermarks of one tile.
type TileMarks struct {
	Tile    fence.TileID
	Marks   map[Consumer]Mark
	Trimmed fence.Seq   // the highest floor at which a trim removed entries: those below it are gone
	Shown   fence.Epoch // the highest that any consumer has reported, see MarkWrite.Shown
	Err     error       // why this tile's could not be read although others' could
}

// MarkOne moves one watermark; see Log.Mark.
func MarkOne(ctx context.Context, log Log, w MarkWrite) error {
	for _, err := range log.Mark(ctx, []MarkWrite{w}) {
		return err
	}
	return nil
}
