package match

import (
	"context"
	"time"
)

// Epoch is the fencing token of a worker in one shard. The store gives it with the worker's first claim; it only
// rises. When the worker is presumed dead its epoch is, too, and whatever carries it is refused with ErrStale.
type Epoch uint64

// Store is the back-end interface: it keeps the tickets of each shard. Each method is one atomic step in one shard, by
// the store's own clock. Implementations: memmatch, redismatch, which pass one conformance suite.
//
// All methods may be repeated after an unknown outcome with the same arguments. Errors: a *fence.StoreError if the
// store could not be asked or its answer was lost; those that methods name; a *fence.ArgumentError.
type Store interface {
	// Enqueue adds a ticket to the back of the queue. A ticket that is there already, the same one, is returned as
	// it is; another one with its ID gives ErrReused. It can be read at once. Other errors: an *OpenError for a
	// player who has an open ticket in the shard; ErrCrowded.
	//
	// A ticket is open until it is Cancelled or TimedOut; if it was Seated, until Assignment.TakeBy; if it was
	// cancelled after it was matched, until the TakeBy of that match, or until that is dissolved.
	Enqueue(ctx context.Context, shard string, t Ticket, e Entry) (Status, error)
	// Hold notes that a ticket is the player's in the whole queue, unless another one is noted, and returns the one
	// that is noted then. It is for queues of several shards, and Lobby.Enqueue asks for it.
	Hold(ctx context.Context, shard string, h Hold) (Held, error)
	// Open returns the open ticket that a player has in the shard, or "" for none, and until when it is open at the
	// latest, or zero.
	Open(ctx context.Context, shard, player string) (ticket string, until time.Time, err error)
	// Status reads a ticket. Errors: ErrUnknown.
	Status(ctx context.Context, shard, ticket string) (Status, error)
	// Cancel ends a ticket, whatever its state, and returns it. The state is then Cancelled, or TimedOut if it was.
	// Errors: ErrUnknown.
	Cancel(ctx context.Context, shard, ticket string) (Status, error)
	// List returns up to limit tickets that wait or are claimed, those that wait longest first.
	List(ctx context.Context, shard string, limit int) ([]Status, error)
	// Depth counts the tickets of a shard.
	Depth(ctx context.Context, shard string) (Depth, error)

	// Claim gives the worker what it holds already under its epoch and, up to limit tickets in all, more of those
	// that wait, after it has ended those past their deadline: in bands of neighbours by rating around those that have
	// waited longest unseen and those that were looked at longest ago. It renews the worker's lease.
	Claim(ctx context.Context, shard string, c Claim) (Holding, error)
	// Heartbeat renews a worker's lease, and with it all of its claims. Errors: ErrStale.
	Heartbeat(ctx context.Context, shard string, e Epoch, lease time.Duration) error
	// Record makes matches of claimed tickets: the match is stored, and its tickets leave the claim, in one step.
	// The result has an error for each match: nil, or ErrGone if a ticket of it is not in the claim any more,
	// for instance because it was cancelled. A match that was recorded before stays as it is. Errors: ErrStale,
	// and then nothing was recorded.
	Record(ctx context.Context, shard string, e Epoch, matches []Match) ([]error, error)
	// Release gives tickets of a claim back to the queue; those that are not in the claim any more are ignored.
	// It returns the shard's count of arrivals (Holding.Arrivals). Errors: ErrStale.
	Release(ctx context.Context, shard string, e Epoch, tickets []Unmatched) (arrivals uint64, err error)
	// Leave ends a worker's epoch. What it still holds goes back to the queue with the next Reclaim.
	Leave(ctx context.Context, shard string, e Epoch) error

	// Publish gives recorded matches their assignment: their tickets are Seated. The result has an error for each:
	// nil, also if the match was published before, or ErrGone if it was dissolved.
	Publish(ctx context.Context, shard string, assignments []Assignment) ([]error, error)
	// Dissolve ends a recorded match that has no assignment: its tickets have their places in the queue again, and
	// say why. It is ignored if the match is published or dissolved.
	Dissolve(ctx context.Context, shard, match string, why Why) error
	// Requeue gives a ticket that did not take its seat its place in the queue again. The third time it ends TimedOut
	// instead; and it ends Cancelled if a player of it has another open ticket by now. It is ignored if the ticket is
	// not seated in that match any more. done is false while the match is not published, and the caller must try
	// again.
	Requeue(ctx context.Context, shard, match, ticket string) (done bool, err error)
	// Reclaim returns claims whose epoch has no lease any more to the queue, ends tickets past their deadline, at
	// most limit of each, and returns up to limit matches that were recorded longer ago than their
	// worker's lease and are not finished, those that no supervisor has had for longest first. One that was returned
	// is not returned again for PendingAgain. It takes nothing from a worker whose lease lasts. Any number of
	// supervisors may call it.
	Reclaim(ctx context.Context, shard string, limit int) (Reclaim, error)

	// Arrivals calls f when tickets may have arrived, until ctx ends. A hint may be lost, and one may stand for many.
	Arrivals(ctx context.Context, shard string, f func()) error
	// Changes calls f with the IDs of tickets that were matched, seated, returned or ended, until ctx ends. One
	// may be lost. ready, if not nil, is called when the subscription is in force.
	Changes(ctx context.Context, shard string, ready func(), f func(tickets []string)) error
}

// Hold is the argument of Store.Hold.
type Hold struct {
	Player, Ticket string
	Instead        string        // a ticket that this one replaces, or ""
	For            time.Duration // how long the note lasts; zero removes it, if it is of this ticket
}

// Held is a ticket that is noted as a player's, and for how long it has been so.
type Held struct {
	Ticket string
	Age    time.Duration
}

// Entry is what a queue says of a new ticket. Zero fields mean the defaults of Queue.
type Entry struct {
	MaxWait   time.Duration
	Room      int // open tickets of the shard
	PerSource int // of them, of one Ticket.Source; never more than an eighth of the room that is left
}

// PendingAgain is how long a supervisor has for the matches that Reclaim returned, before they are returned again.
const PendingAgain = time.Second

// MaxLapses is how many seats a ticket may leave empty: with the last of them it ends.
const MaxLapses = 3

// Claim asks for tickets.
type Claim struct {
	Worker string        // name, for people
	Epoch  Epoch         // zero: give the worker an epoch
	Lease  time.Duration // at least 1 ms
	Limit  int           // tickets, 1 to MaxClaim
}

// MaxClaim is the most tickets that a claim, and a call of Record or Release, has.
const MaxClaim = 1000

// Holding is the answer to a Claim: all that the worker holds.
type Holding struct {
	Epoch   Epoch
	Tickets []Candidate // in no order
	// Arrivals counts the tickets that have come to the shard. If it has risen when the claim is released, the worker
	// should claim again at once.
	Arrivals uint64
	// Busy: few tickets wait, and another worker is comparing the rest. It claims again when it is done, so that
	// they meet; there is nothing for this one to do.
	Busy bool
}

// Candidate is a claimed ticket.
type Candidate struct {
	Ticket
	Waited time.Duration // since it was enqueued, by the store's clock
}

// Unmatched is a ticket that goes back to the queue.
type Unmatched struct {
	Ticket string
	Why    Why
}

// Reclaim is what one reclaim found.
type Reclaim struct {
	Returned []string // tickets of claims without a lease
	TimedOut []string // tickets past their deadline
	Pending  []Match  // to be finished: allocate, then publish or dissolve
	More     bool     // a limit was met
}

// Depth counts the tickets of a shard by state. Created is the sum of all others except Matches, Workers and Pending.
type Depth struct {
	Created   uint64 // tickets enqueued, ever
	Waiting   uint64
	Claimed   uint64 // the processing depth
	Matched   uint64
	Seated    uint64 // ever, less those whose seat lapsed or that were cancelled
	Cancelled uint64 // ever
	TimedOut  uint64 // ever
	Matches   uint64 // matches recorded, ever
	Pending   uint64 // matches recorded and not finished
	Workers   uint64 // epochs that have a lease
}

// Add adds another shard's depth.
func (d Depth) Add(o Depth) Depth {
	return Depth{d.Created + o.Created, d.Waiting + o.Waiting, d.Claimed + o.Claimed, d.Matched + o.Matched,
		d.Seated + o.Seated, d.Cancelled + o.Cancelled, d.TimedOut + o.TimedOut, d.Matches + o.Matches,
		d.Pending + o.Pending, d.Workers + o.Workers}
}
