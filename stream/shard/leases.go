package shard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Bounds of a Request.
const (
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = time.Hour
	MaxHolders = 256 // of a group, those that left within the last TTL included
)

// Errors of Leases.Sync, besides *RangesError and *fence.ArgumentError.
var (
	// ErrLate is the answer to a request that was overtaken by a later one of the same holder.
	ErrLate = errors.New("a later request of this holder was answered already")
	// ErrFull is the answer to a newcomer to a group of MaxHolders.
	ErrFull = errors.New("the group has too many holders")
)

// Token numbers the leases of a group in the order in which they were granted: of two leases of one shard
// the later has the higher token. Tokens start at 1 and are for logs and metrics; nothing is fenced by
// them.
type Token uint64

// Lease is one shard under one grant.
type Lease struct {
	Shard int
	Token Token
}

// Grant is a lease in a Reply.
type Grant struct {
	Lease
	GiveBack bool // the holder is to cease work on the shard and then to release it
}

// Leases is the book of who holds which shard. It is safe for concurrent use by any number of processes.
// Back ends: memshard in one process, redisshard on Redis. Both pass shardtest.Run.
type Leases interface {
	// Sync is one heartbeat, applied atomically by the clock of the store:
	//
	//   - The ranges of a group are those of its first holder. While one is alive, a request with others is
	//     refused with a *RangesError.
	//   - A holder that was not heard for its TTL is struck off, and its shards are free. But if nobody was
	//     heard for more than half a TTL, it was the store that could not be reached: then all get a whole
	//     TTL from now on, so that an outage moves no shard.
	//   - Shards in Release are free.
	//   - A free shard in Held is kept by its holder if nobody had it since, which its token tells.
	//   - Shards are shared evenly among the holders that are not leaving: s shards among n holders are
	//     s/n for each, rounded up for as many as it takes and down for the others. A holder below its
	//     share is granted free shards; of one above it, so many are marked GiveBack. That mark stays until
	//     the shard is released or its lease runs out, so no shard is granted before it is free.
	//   - A clock that was put back takes all times with it, so that leases last no longer for it.
	//   - A group that the store knows nothing of, while the holder says it holds shards, was lost. Then
	//     free shards are only granted after another TTL, so that every holder can say what it holds.
	//
	// Besides those above, errors are a *fence.ArgumentError from Request.Validate, ErrLate, ErrFull, and a
	// *fence.StoreError if the store could not be asked. The same request may be presented again.
	Sync(ctx context.Context, r Request) (Reply, error)
}

// Request is what a holder says.
type Request struct {
	Group   string        // what is shared: 1 to 64 of a-z, A-Z, 0-9, ".", "_" and "-"
	Holder  string        // unique, also against earlier runs of the same process; 1 to 255 bytes
	Beat    uint64        // climbs from 1 with each request of the holder; below 2^53
	Ranges  Ranges        // what the shards are
	TTL     time.Duration // how long the holder's leases last from now on; MinTTL to MaxTTL
	Held    []Lease       // what the holder works on
	Release []int         // shards it has ceased to work on; none that is in Held
	Leaving bool          // it wants no more shards, and is to give back all it has
}

// Reply is what the book says.
type Reply struct {
	Held    []Grant // all leases of the holder, by ascending shard
	Share   int     // how many shards the holder may have now
	Holders int     // how many holders share, this one included unless it leaves
	Free    int     // shards that nobody holds
}

// RangesError is the refusal of a holder whose ranges are not those of the group.
type RangesError struct {
	Group   string
	Holder  string
	Digest  string // of the holder's ranges
	Shards  int
	Current string // of the group's
	// CurrentShards is how many shards the group has.
	CurrentShards int
}

func (e *RangesError) Error() string {
	return fmt.Sprintf("group %q is divided into %d shards (%s), not into the %d (%s) of %s: give new ranges a new group",
		e.Group, e.CurrentShards, e.Current, e.Shards, e.Digest, e.Holder)
}

var groupName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// Validate checks the bounds of all fields. A *fence.ArgumentError names the first that is wrong. Back
// ends call it first.
func (r *Request) Validate() error {
	switch {
	case !groupName.MatchString(r.Group):
		return &fence.ArgumentError{Field: "Group", Value: r.Group, Want: "1 to 64 letters, digits, dots, underscores and hyphens"}
	case len(r.Holder) < 1 || len(r.Holder) > 255:
		return &fence.ArgumentError{Field: "Holder", Value: r.Holder, Want: "1 to 255 bytes"}
	case r.Beat < 1 || r.Beat > fence.MaxNumber:
		return &fence.ArgumentError{Field: "Beat", Value: r.Beat, Want: "1 to 2^53-1"}
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return &fence.ArgumentError{Field: "TTL", Value: r.TTL, Want: MinTTL.String() + " to " + MaxTTL.String()}
	}
	return r.validateShards()
}

func (r *Request) validateShards() error {
	named := make([]bool, r.Ranges.Len())
	name := func(field string, shard int) error {
		if shard < 0 || shard >= len(named) || named[shard] {
			return &fence.ArgumentError{Field: field, Value: shard, Want: fmt.Sprintf("a shard, 0 to %d, that is not named twice", len(named)-1)}
		}
		named[shard] = true
		return nil
	}
	for _, l := range r.Held {
		if err := name("Held", l.Shard); err != nil {
			return err
		}
		if l.Token < 1 || l.Token > fence.MaxNumber {
			return &fence.ArgumentError{Field: "Held", Value: l.Token, Want: "a token that was granted"}
		}
	}
	for _, s := range r.Release {
		if err := name("Release", s); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the grant of a shard, if there is one.
func (r *Reply) Find(shard int) (Grant, bool) {
	i := slices.IndexFunc(r.Held, func(g Grant) bool { return g.Shard == shard })
	if i < 0 {
		return Grant{}, false
	}
	return r.Held[i], true
}
