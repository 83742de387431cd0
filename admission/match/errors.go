package match

import (
	"errors"
	"fmt"
	"time"
)

// Reasons of errors, which are a *DeniedError with the facts, or an *OpenError.
var (
	// ErrStale: the worker's lease ended and its claims were returned. Claim again without an epoch.
	ErrStale = errors.New("the worker's epoch is stale")
	// ErrUnknown: the store has no such ticket or match: never created, or ended longer ago than Kept.
	ErrUnknown = errors.New("unknown")
	// ErrReused: the ticket ID belongs to another ticket. Choose a new random ID for each request.
	ErrReused = errors.New("ticket ID was used for another ticket")
	// ErrOpen: a player has an open ticket in the queue. Follow that one, or cancel it.
	ErrOpen = errors.New("the player has an open ticket")
	// ErrCrowded: the queue, or the share of it that one source of tickets has, is full; or a ticket has too many
	// followers. Ask again later.
	ErrCrowded = errors.New("too many at once")
	// ErrLineup: a Strategy returned a group that cannot be a match of the queue. Its tickets wait.
	ErrLineup = errors.New("not a lineup of this queue")
	// ErrGone: a ticket left the claim, or the match was dissolved, before the call.
	ErrGone = errors.New("gone")
	// ErrNoSeat: no tile that serves has enough free seats. The tickets wait.
	ErrNoSeat = errors.New("no free seat")
	// ErrLapsed: the seat was not taken in time and went back.
	ErrLapsed = errors.New("the seat has gone back")
	// ErrStaleOffer: a higher epoch offers the tile.
	ErrStaleOffer = errors.New("the offer's epoch is stale")
)

// DeniedError is a call that was refused for one of the reasons above but ErrOpen. Nothing was done.
type DeniedError struct {
	Err  error  // the reason
	What string // what was refused, with its values, such as "shard ranked/0: epoch 7"
}

// advice says what to do about each reason.
var advice = map[error]string{
	ErrStale:      "its claims were returned to the queue; claim again without an epoch",
	ErrUnknown:    fmt.Sprintf("never created in this queue, or ended more than %v ago", Kept),
	ErrReused:     "choose a new random ID for each request",
	ErrCrowded:    "ask again in a few seconds",
	ErrLineup:     "mend the queue's Strategy",
	ErrGone:       "cancelled, returned or dissolved; release the other tickets of a claim",
	ErrNoSeat:     "offer more tiles",
	ErrLapsed:     "follow the ticket, which waits again",
	ErrStaleOffer: "stand down",
}

func (e *DeniedError) Error() string { return fmt.Sprintf("%s: %v: %s", e.What, e.Err, advice[e.Err]) }

// Unwrap returns the reason.
func (e *DeniedError) Unwrap() error { return e.Err }

// OpenError is a ticket of a player who has another one open in the same queue. The ticket was not created.
type OpenError struct {
	Player string
	Ticket string // the open one
	// Until is when the ticket stops counting, if it has a seat that is held, or was cancelled after it was matched; or
	// if it has been announced in a queue of several shards and is not there yet.
	Until time.Time
}

func (e *OpenError) Error() string {
	until := "follow that ticket, or cancel it"
	if !e.Until.IsZero() {
		until = "it counts until " + e.Until.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("player %s: %v, %s: %s", e.Player, ErrOpen, e.Ticket, until)
}

// Is matches ErrOpen.
func (e *OpenError) Is(target error) bool { return target == ErrOpen }
