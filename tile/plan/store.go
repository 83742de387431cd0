package plan

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// ErrNoLetter: there is no dead letter of this ID.
var ErrNoLetter = errors.New("no such dead letter")

// ErrInFlight: the entity has another request in flight; one at a time.
var ErrInFlight = errors.New("the entity has a request in flight")

// Store keeps requests, results and usage events in shards. Everything of a tile is in one shard (ShardOf), and every
// call is one atomic step in one shard. All times are by the store's clock.
//
// Except for the errors named at a method, an error is a *fence.StoreError. Calling again with the same
// arguments is safe: asks, receipts and ends are recognised by their request's ID. What a Claim took whose answer was
// lost returns to the queue when the lease ends.
type Store interface {
	// Shards is how many shards there are: the same number in every process, 1 to 64.
	Shards() int

	// Turn does what an owner has to do between two ticks, for several tiles of one shard: one round trip. The
	// replies are in the order of the turns.
	Turn(ctx context.Context, shard int, turns []Turn) []TurnReply

	// Claim first returns to the queue what has waited out its pause or lost its lease, and then claims. Each tile has
	// a queue of its own for each tier, and they have their turns: a tile with a thousand requests does not delay those
	// of the others. What returns is the first of its own tile.
	Claim(ctx context.Context, shard int, c Claim) (Claimed, error)

	// Renew extends the leases of a worker's claims, and returns the IDs of those that it has lost.
	Renew(ctx context.Context, shard int, worker string, lease time.Duration, claims []Held) (lost []string, err error)

	// Finish ends a worker's claims, at most MaxAsks. For each it says whether the claim was the worker's; if not,
	// nothing was stored by this call: another worker has the claim or had it last, or an earlier call has stored the
	// same end.
	Finish(ctx context.Context, shard int, worker string, ends []End) (held []bool, err error)

	// Wake calls heard whenever a request may be waiting in a shard, and for every shard and tier when it begins to
	// listen there, from one goroutine or several, until ctx ends; it then returns nil. Calls may be lost, so a worker
	// looks for itself now and then.
	Wake(ctx context.Context, heard func(shard int, t Tier)) error

	// Usage removes the events up to and including the position after, if that is not empty, and returns the next
	// ones, in order, at most limit.
	Usage(ctx context.Context, shard int, after string, limit int) ([]UsageEvent, error)

	// Depth counts what a shard holds.
	Depth(ctx context.Context, shard int) (Depth, error)

	// Letters are the dead letters of a shard, oldest first.
	Letters(ctx context.Context, shard int) ([]Letter, error)

	// Replay queues a dead letter anew, with all its attempts. Errors: ErrNoLetter, ErrInFlight.
	Replay(ctx context.Context, shard int, id string) error

	// Drop deletes a dead letter. Error: ErrNoLetter.
	Drop(ctx context.Context, shard int, id string) error
}

// ShardOf is the shard of a tile, of so many.
func ShardOf(t fence.TileID, shards int) int {
	x := uint64(t) // splitmix64: the indexes of neighbours differ in few bits
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(shards))
}

// Turn is what an owner asks and removes. In this order: what the receipts name is removed; with List everything
// outstanding is listed and what waits is adopted; requests are queued; answers are read.
type Turn struct {
	Tile  fence.TileID
	Epoch fence.Epoch // the owner's; a lower one than the store has seen is refused
	Seen  []Receipt   // answers that it has, at most MaxOutstanding
	List  bool        // the owner's first turn, or it lacks something
	Ask   []Request   // at most MaxAsks
}

// Receipt names an answer, which the store removes. An answer to another request of the entity is not removed.
//
// The receipt of a plan that was taken up says what its call has used, if that is to be billed. A store that does not
// have the answer, since it has lost its last moments, stores the usage event again, and ends the request if it has
// that one still. A receipt that comes twice may store it twice, with the same Request, by which billing's sink tells.
type Receipt struct {
	Entity, ID string
	Requester  string
	Usage      Usage // an empty Model: there is nothing to store again
}

// TurnReply is the answer to a Turn.
type TurnReply struct {
	// Err says why nothing was done: a *fence.RefusedError (fence.ErrStale) if a later owner has had a turn, a
	// *fence.ArgumentError, or a *fence.StoreError.
	Err error

	Asked   []AskReply // one for each of Turn.Ask
	Answers []Answer   // some of those not yet removed, at least one if there is one; with List all of them
	InStore int        // requests in flight and answers not yet removed
	Listed  []Request  // with List: those in flight, those of Ask included
}

// AskReply is the answer to a Request.
type AskReply struct {
	Taken bool   // it is queued, or has taken the place of the entity's background request
	ID    string // of the entity's request in flight, or of its answer; empty if the tile has MaxOutstanding
}

// AnswerKind says how a request ended. Zero is none.
type AnswerKind int

// The kinds of answer.
const (
	Planned   AnswerKind = 1 // Body is the plan
	Discarded AnswerKind = 2 // the planner found nothing to plan for
	Died      AnswerKind = 3 // the last attempt failed; there is a dead letter
	Expired   AnswerKind = 4 // there was a plan, for AnswerTTL
	Stale     AnswerKind = 5 // there is a plan of an older epoch
)

// String returns the kind's lower-case name.
func (k AnswerKind) String() string {
	return enum.Name(k, "answer", "planned", "discarded", "died", "expired", "stale")
}

// LogValue implements slog.LogValuer with the form of String.
func (k AnswerKind) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Answer is how a request ended. It stays in the store until its receipt comes, or AnswerTTL has passed.
type Answer struct {
	Entity, ID string
	Kind       AnswerKind
	Body       []byte // of Planned
	Usage      Usage  // of Planned: what the call has used, as its End said
}

// Claim says what a worker takes.
type Claim struct {
	Worker     string        // unique over all workers, 1 to 64 bytes
	Lease      time.Duration // at least 1 ms
	Any        int           // slots for requests of either tier
	Players    int           // slots for players' requests, filled before
	Background bool          // Any begins with the background
	Attempts   int           // a request whose lease ended in this attempt is dead; at least 1
}

// Claimed is what a worker got, and what a shard still has for it.
type Claimed struct {
	Requests            []Request
	Players, Background int // tiles that have some waiting, at most
}

// Held names a claim.
type Held struct {
	ID      string
	Attempt int
}

// End ends a claim.
type End struct {
	Held
	Kind  EndKind
	Body  []byte        // Succeeded: the plan, at most MaxBody bytes
	Usage Usage         // Succeeded: stored in the same step
	Keep  time.Duration // how long the answer is kept; usually AnswerTTL

	Error    string        // Failed: why; at most MaxError bytes
	Pause    time.Duration // Failed: until the next attempt
	Attempts int           // Failed: the request is dead if this was attempt number so many
}

// EndKind is how a call ended. Zero is none.
type EndKind int

// The kinds of end.
const (
	Succeeded EndKind = 1
	Failed    EndKind = 2
	NoSubject EndKind = 3
)

// Depth is what a shard holds at one instant.
type Depth struct {
	Players, Background int           // waiting, at most: what was promoted counts in both until its turn comes
	Busy                int           // running, or failed and waiting for the next attempt
	Dead                int           // dead letters
	Usage               int           // events that billing has not taken
	Oldest              time.Duration // age of the oldest request at the head of a queue
}
