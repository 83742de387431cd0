package redisshard

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
)

//go:embed sync.lua
var source string

var script = redis.NewScript(source)

// Leases keeps the books of any number of groups on Redis, one hash each. It implements shard.Leases.
type Leases struct {
	client redis.UniversalClient
}

var _ shard.Leases = (*Leases)(nil)

// New returns a Leases on client, a *redis.ClusterClient or a *redis.Client; it does no I/O. A
// *fence.ArgumentError names a client of another kind, or one that does not obey deadlines
// (ContextTimeoutEnabled, see redisfanout.Options).
func New(client redis.UniversalClient) (*Leases, error) {
	var known, obeys bool
	switch c := client.(type) {
	case *redis.ClusterClient:
		if known = c != nil; known {
			obeys = c.Options().ContextTimeoutEnabled
		}
	case *redis.Client:
		if known = c != nil; known {
			obeys = c.Options().ContextTimeoutEnabled
		}
	}
	if !known {
		return nil, &fence.ArgumentError{Field: "client", Value: fmt.Sprintf("%T", client), Want: "a *redis.ClusterClient or a *redis.Client"}
	}
	if !obeys {
		return nil, &fence.ArgumentError{Field: "client", Value: "ContextTimeoutEnabled: false",
			Want: "a client that obeys deadlines, or a heartbeat could outlast the lease"}
	}
	return &Leases{client: client}, nil
}

// Key is the key of a group's book. It is part of the wire contract (docs/wire.md).
func Key(group string) string { return "{tilefence:shards:" + group + "}" }

// Sync implements shard.Leases: one script on one key, in one round trip. The client may retry it, which
// does no harm.
func (l *Leases) Sync(ctx context.Context, r shard.Request) (shard.Reply, error) {
	if err := r.Validate(); err != nil {
		return shard.Reply{}, err
	}
	if ctx.Err() != nil {
		return shard.Reply{}, &fence.StoreError{Op: "sync shards", Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	args := []any{r.Holder, r.Beat, r.Ranges.Digest(), r.Ranges.Len(), r.TTL.Milliseconds(), bit(r.Leaving), len(r.Held)}
	for _, held := range r.Held {
		args = append(args, held.Shard, uint64(held.Token))
	}
	for _, s := range r.Release {
		args = append(args, s)
	}
	answer, err := script.Run(ctx, l.client, []string{Key(r.Group)}, args...).Slice()
	if err != nil {
		return shard.Reply{}, &fence.StoreError{Op: "sync shards", Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	reply, err := parse(answer, &r)
	if err != nil {
		return shard.Reply{}, err
	}
	return reply, nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func parse(answer []any, r *shard.Request) (shard.Reply, error) {
	if len(answer) == 0 {
		return shard.Reply{}, unexpected(answer)
	}
	switch code, _ := answer[0].(string); {
	case code == "late":
		return shard.Reply{}, shard.ErrLate
	case code == "full":
		return shard.Reply{}, shard.ErrFull
	case code == "ranges" && len(answer) == 3:
		current, _ := answer[1].(string)
		n, _ := answer[2].(int64)
		return shard.Reply{}, &shard.RangesError{Group: r.Group, Holder: r.Holder, Digest: r.Ranges.Digest(), Shards: r.Ranges.Len(),
			Current: current, CurrentShards: int(n)}
	case code != "ok" || len(answer) < 4 || (len(answer)-4)%3 != 0:
		return shard.Reply{}, unexpected(answer)
	}
	numbers := make([]int64, len(answer)-1)
	for i := range numbers {
		n, isNumber := answer[i+1].(int64)
		if !isNumber || n < 0 {
			return shard.Reply{}, unexpected(answer)
		}
		numbers[i] = n
	}
	reply := shard.Reply{Holders: int(numbers[0]), Share: int(numbers[1]), Free: int(numbers[2])}
	for rest := numbers[3:]; len(rest) > 0; rest = rest[3:] {
		if rest[0] >= int64(r.Ranges.Len()) {
			return shard.Reply{}, unexpected(answer)
		}
		reply.Held = append(reply.Held, shard.Grant{
			Lease: shard.Lease{Shard: int(rest[0]), Token: shard.Token(rest[1])}, GiveBack: rest[2] == 1})
	}
	return reply, nil
}

// unexpected is an answer this release cannot read: the book was damaged, or written by another program.
func unexpected(answer []any) error {
	text := fmt.Sprint(answer...)
	return &fence.StoreError{Op: "sync shards", Outcome: fence.ErrUnknownOutcome,
		Err: fmt.Errorf("the book cannot be read: answer %s", strconv.Quote(text[:min(len(text), 100)]))}
}
