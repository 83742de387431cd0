package route

import (
	"context"
	"fmt"
)

// Membership is how a process knows of its peers and they of it. It carries what owners announce into the
// tables of all members. Implementations are safe for concurrent use; routetest.Run states the contract as
// tests.
type Membership interface {
	// Run takes part until ctx is done, then leaves, which the others are told, and returns nil. It owns
	// all goroutines. An error means that it could not take part at all. Call it once.
	Run(ctx context.Context) error

	// Announce merges entries into this process's own table and spreads those that were news. It does not
	// wait for anybody, and may be called before Run. Announce what this process knows for certain: the
	// tile it has begun to serve, the tile it has released, and the successor that superseded it. Errors: a
	// *fence.ArgumentError, when nothing was announced.
	Announce(entries ...Entry) error

	// Members returns who is believed to be alive, this process included while it takes part, by contact.
	Members() []Member
}

// Member is a process that takes part.
type Member struct {
	Contact string // where it takes intents
	// Name tells apart the lives of a process: a process that is started again has the same contact and
	// another name.
	Name string
}

// EventKind is what happened to a member.
type EventKind uint8

// The kinds of events.
const (
	// Joined: the member takes part, perhaps again.
	Joined EventKind = 1
	// Died: the member gives no sign of life. It may be alive and unreachable, or slow: a reason to look
	// after its tiles, not a proof that it has stopped writing.
	Died EventKind = 2
	// Left: the member said that it was leaving. It has given up its tiles.
	Left EventKind = 3
)

// String returns "joined", "died" or "left".
func (k EventKind) String() string {
	switch k {
	case Joined:
		return "joined"
	case Died:
		return "died"
	case Left:
		return "left"
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is something that happened to a member other than this process.
//
// Implementations call a func(Event) for each, one after the other, in the order in which they learned of
// them, from a goroutine of Run. The function may block; then later events wait, and nothing else does.
type Event struct {
	Kind   EventKind
	Member Member
}
