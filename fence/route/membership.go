package route

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// Membership reports to the processes of a group which of them are alive, and carries what owners announce into the
// tables of all members. Implementations are safe for concurrent use.
type Membership interface {
	// Run takes part until ctx is done, then notifies the others that it leaves, and returns nil. It owns
	// all goroutines. An error means that it could not take part at all; a second call returns
	// fence.ErrAlreadyRun.
	Run(ctx context.Context) error

	// Announce merges entries into this process's own table and spreads those that were news. It does not
	// block, and may be called before Run. Announce what this process knows for certain: the tile it has
	// begun to serve, the tile it has released, and the successor that superseded it. An invalid entry is a
	// *fence.ArgumentError; then nothing is announced.
	Announce(entries ...Entry) error

	// AnnounceLoad notifies the others of this process's load, in place of what it was; it does not block, and may be
	// called before Run. Small changes may not be spread. Errors: a *fence.ArgumentError, see Load.Validate.
	AnnounceLoad(l Load) error

	// Members returns the members believed to be alive, ordered by contact, this process included while it runs.
	Members() []Member
}

// Member is a process that takes part.
type Member struct {
	Contact string // where it takes intents
	// Name distinguishes the lives of a process: a restarted process has the same contact and another name.
	Name string
	Load Load // as it was announced last; zero: it was not
}

// Load is how much a process that runs tiles has to do.
type Load struct {
	Tiles int           // that it serves
	Work  time.Duration // that their ticks take in each second; more than a second with several processors
}

// maxWork bounds Load.Work: no machine has a million processors.
const maxWork = 1_000_000 * time.Second

// Validate checks a load without any I/O: nil, or a *fence.ArgumentError.
func (l Load) Validate() error {
	switch {
	case l.Tiles < 0 || l.Tiles > math.MaxInt32:
		return &fence.ArgumentError{Field: "Tiles", Value: l.Tiles, Want: "from 0 to 2^31-1"}
	case l.Work < 0 || l.Work > maxWork:
		return &fence.ArgumentError{Field: "Work", Value: l.Work, Want: "from 0 to 1,000,000 s in each second"}
	}
	return nil
}

// EventKind is what happened to a member.
type EventKind uint8

// The kinds of events.
const (
	// Joined: the member takes part, perhaps again.
	Joined EventKind = 1
	// Died: the member is presumed dead. It may be unreachable or slow instead, so this is a reason to take
	// over its tiles, not a proof that it has stopped writing.
	Died EventKind = 2
	// Left: the member ended cleanly and has released its tiles.
	Left EventKind = 3
)

// String returns "joined", "died" or "left".
func (k EventKind) String() string { return enum.Name(k, "event", "joined", "died", "left") }

// LogValue implements slog.LogValuer with the form of String.
func (k EventKind) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Event is something that happened to a member other than this process.
//
// Implementations call a func(Event) for each event, one at a time, in the order in which they learned of
// them, from a goroutine of Run. If the function blocks, only later events wait.
type Event struct {
	Kind   EventKind
	Member Member
}
