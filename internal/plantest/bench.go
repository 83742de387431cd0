package plantest

import (
	"cmp"
	"crypto/rand"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
)

// Bench is one tile, its shard and a worker, on a store under test.
type Bench struct {
	plan.Store
	testing.TB
	Tile   fence.TileID
	Shard  int
	Worker string
	Epoch  fence.Epoch
}

// NewBench returns a bench with a tile of its own.
func NewBench(t testing.TB, s plan.Store) *Bench {
	id := NewTile()
	return &Bench{Store: s, TB: t, Tile: id, Shard: plan.ShardOf(id, s.Shards()), Worker: "w-" + rand.Text(), Epoch: 1}
}

// NewTile returns a tile that no other call returns.
func NewTile() fence.TileID { return fence.TileID(mathrand.Uint64()>>1 | 1) }

// Request is a background request of the tile.
func (b *Bench) Request(entity string) plan.Request {
	return plan.Request{ID: rand.Text(), Tile: b.Tile, Entity: entity, Requester: "ann", Tier: plan.Background,
		Words: "words of " + entity}
}

// PlayerRequest is a player's request.
func (b *Bench) PlayerRequest(entity string) plan.Request {
	r := b.Request(entity)
	r.Tier = plan.Player
	return r
}

// Turn makes a turn that must be answered. The tile and the epoch are the bench's.
func (b *Bench) Turn(turn plan.Turn) plan.TurnReply {
	b.Helper()
	turn.Tile, turn.Epoch = b.Tile, b.Epoch
	r := b.Store.Turn(b.Context(), b.Shard, []plan.Turn{turn})
	require.Len(b, r, 1)
	require.NoError(b, r[0].Err)
	require.Len(b, r[0].Asked, len(turn.Ask))
	return r[0]
}

// Ask queues requests, which must be taken.
func (b *Bench) Ask(requests ...plan.Request) {
	b.Helper()
	for i, a := range b.Turn(plan.Turn{Ask: requests}).Asked {
		require.Equal(b, plan.AskReply{Taken: true, ID: requests[i].ID}, a)
	}
}

// Claim claims any number of requests, with a long lease.
func (b *Bench) Claim(n int) []plan.Request {
	b.Helper()
	return b.ClaimAs(plan.Claim{Any: n}).Requests
}

// ClaimAs claims as it says; what is not set has a default.
func (b *Bench) ClaimAs(c plan.Claim) plan.Claimed {
	b.Helper()
	c.Worker, c.Lease = cmp.Or(c.Worker, b.Worker), cmp.Or(c.Lease, long)
	c.Attempts = cmp.Or(c.Attempts, 5)
	got, err := b.Store.Claim(b.Context(), b.Shard, c)
	require.NoError(b, err)
	return got
}

// Await claims until n requests have been claimed, which come back by themselves.
func (b *Bench) Await(n int, c plan.Claim) (all []plan.Request) {
	b.Helper()
	waittest.Until(b, func() bool {
		c.Any = n - len(all)
		all = append(all, b.ClaimAs(c).Requests...)
		return len(all) == n
	}, patience, 5*time.Millisecond)
	return all
}

// Finish ends one claim of the bench's worker, and says whether it was that.
func (b *Bench) Finish(r plan.Request, e plan.End) bool {
	b.Helper()
	e.Held, e.Keep, e.Attempts = plan.Held{ID: r.ID, Attempt: r.Attempt}, cmp.Or(e.Keep, long), cmp.Or(e.Attempts, 5)
	e.Kind = cmp.Or(e.Kind, plan.Succeeded)
	held, err := b.Store.Finish(b.Context(), b.Shard, b.Worker, []plan.End{e})
	require.NoError(b, err)
	require.Len(b, held, 1)
	return held[0]
}

// Plan asks for an entity, and answers.
func (b *Bench) Plan(entity, body string) plan.Request {
	b.Helper()
	r := b.Request(entity)
	b.Ask(r)
	got := b.Claim(1)
	require.Len(b, got, 1)
	require.Equal(b, r.ID, got[0].ID)
	require.True(b, b.Finish(got[0], plan.End{Body: []byte(body)}))
	return r
}

// Events are the usage events of the tile's shard that have not been taken.
func (b *Bench) Events() []plan.UsageEvent {
	b.Helper()
	all, err := b.Usage(b.Context(), b.Shard, "", 10000)
	require.NoError(b, err)
	return all
}

func ids(requests []plan.Request) (all []string) {
	for _, r := range requests {
		all = append(all, r.ID)
	}
	return all
}
