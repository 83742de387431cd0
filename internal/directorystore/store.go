// Package directorystore is where records of players are kept: what a back end of package directory does, and one in
// memory.
package directorystore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

const (
	// TTL is how long a lease lasts that is not renewed. Leases are renewed three times in it.
	TTL = 30 * time.Second

	// Keep is how long a record is kept that nothing is written to.
	Keep = 30 * 24 * time.Hour

	// Slack is by how much the clock of a gateway may differ from that of a tile's owner before a sighting counts more
	// than an arrival that was later.
	Slack = 2 * time.Second

	// MaxMessage is the most bytes of a message to a player.
	MaxMessage = 8 << 10

	// MaxActor is the most bytes of a player's name.
	MaxActor = 64
)

// ErrOverloaded means: too many look-ups wait for the server that has the record. This one was not sent.
var ErrOverloaded = errors.New("too many look-ups wait")

// Store keeps records, and carries messages between the processes that use it. It is safe for concurrent use by any
// number of processes. Errors are *fence.StoreErrors.
type Store interface {
	// Look returns the records of actors, in their order. One that is not known has the zero Record. The error of a
	// look-up that finds too many others waiting is ErrOverloaded, too.
	Look(ctx context.Context, actors ...string) ([]Record, error)

	// Renew enters that holder has sessions of the actors, for TTL from now by the clock of the store, and returns
	// their records. With an error, some may be renewed, and the records of the others are zero.
	Renew(ctx context.Context, holder string, actors ...string) ([]Record, error)

	// Leave takes holder out of the records of actors.
	Leave(ctx context.Context, holder string, actors ...string) error

	// Place writes where actors are, in order: those of the moves that are newer than the record, as Move says.
	Place(ctx context.Context, moves ...Move) error

	// End notes that the sessions that an actor has are to end, and returns the record.
	End(ctx context.Context, actor string) (Record, error)

	// Post sends a message to the process that listens under a name; false: none does. It is sent at most once.
	Post(ctx context.Context, holder string, message []byte) (bool, error)

	// Listen calls heard for each message to holder, one at a time, until ctx ends or messages may be missed. ready is
	// called when it begins.
	Listen(ctx context.Context, holder string, ready func(), heard func(message []byte)) error
}

// Record is what is known of a player.
type Record struct {
	Place   Place
	Holders []string // processes that have sessions of the player, ascending

	// Ended is how long ago the sessions that the player had then were to end, by the clock of the store. EverEnded is
	// false if that was never said.
	Ended     time.Duration
	EverEnded bool
}

// Place is where a player is.
type Place struct {
	Tile fence.TileID // zero: not known
	Came fence.Position
	At   time.Time // to the millisecond
}

// Move says that a player is in a tile now. Either the tile has committed the arrival there, or, without Came, a
// process has seen the player act there.
//
// Two moves are not ordered by clocks where the numbers of a tile order them: of two arrivals in one tile the one with
// the higher position is newer; and an arrival from the tile of the record is newer if the player left that tile at or
// after the position of the record. Otherwise the later At is newer, and an arrival counts Slack more than a sighting.
// So arrivals that are written in order are never mistaken. What is written late is mistaken only if clocks differ by
// more than the time between two crossings.
type Move struct {
	Actor string
	To    fence.TileID
	At    time.Time // by the writer's clock

	// Of an arrival. Of the positions epoch and sequence count, and Came has an epoch.
	Came fence.Position // the commit of To with the arrival
	From fence.TileID
	Left fence.Position // the commit of From with the departure
}

// Newer reports whether a move replaces what is recorded.
func (m *Move) Newer(held Place) bool {
	arrived, seen := m.Came.Epoch > 0, held.Came.Epoch == 0
	switch {
	case held.Tile == 0:
		return true
	case !arrived && held.Tile == m.To:
		return false
	case arrived && !seen && held.Tile == m.To:
		return compare(m.Came, held.Came) > 0
	case arrived && !seen && held.Tile == m.From:
		return compare(m.Left, held.Came) >= 0
	case arrived && seen:
		return m.At.After(held.At.Add(-Slack))
	case !arrived && !seen:
		return m.At.After(held.At.Add(Slack))
	}
	return m.At.After(held.At)
}

func compare(a, b fence.Position) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
}

// Recorded is what is recorded then. Its time never decreases.
func (m *Move) Recorded(held Place) Place {
	at := m.At.Truncate(time.Millisecond)
	if !at.After(held.At) {
		at = held.At.Add(time.Millisecond)
	}
	return Place{Tile: m.To, Came: fence.Position{Epoch: m.Came.Epoch, Seq: m.Came.Seq}, At: at}
}

// Validate returns a *fence.ArgumentError for a name that is none.
func Validate(actor string) error {
	if !fence.IsName(actor, MaxActor) {
		return &fence.ArgumentError{Field: "actor", Value: actor, Want: "a name of 1 to 64 bytes that can be seen"}
	}
	return nil
}
