// Package plantest is the contract of plan.Store as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { plantest.Run(t, newStore) }
//
// The tests claim whatever waits: each has a store of its own, on which nothing else runs. Leases and pauses that have
// to end are short, those that must not are long.
package plantest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/plan"
)

const (
	long     = time.Hour
	short    = 20 * time.Millisecond
	patience = 15 * time.Second
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
	require.Eventually(b, func() bool {
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

// Run tests the back end that open opens, once a test. Each store is empty.
func Run(t *testing.T, open func(t *testing.T) plan.Store) {
	for _, c := range []struct {
		name string
		test func(*Bench)
	}{
		{"LifeOfARequest", lifeOfARequest},
		{"OneInFlight", oneInFlight},
		{"APlayerTakesThePlace", playerTakesThePlace},
		{"TakingCannotDeleteANewer", takingCannotDeleteNewer},
		{"TakeOver", takeOver},
		{"StaleOwner", staleOwner},
		{"Expired", expired},
		{"Tiers", tiers},
		{"LeaseOver", leaseOver},
		{"LostClaim", lostClaim},
		{"Renewed", renewed},
		{"FailedAndRetried", failedAndRetried},
		{"DeadLetters", deadLetters},
		{"LastLeaseOver", lastLeaseOver},
		{"NoSubject", noSubject},
		{"UsageOnce", usageOnce},
		{"UsageIsMoved", usageIsMoved},
		{"Full", full},
		{"ManyAnswers", manyAnswers},
		{"Woken", woken},
		{"EndedContext", endedContext},
		{"Depths", depths},
		{"Concurrent", concurrent},
		{"RandomTurns", randomTurns},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(NewBench(t, open(t))) })
	}
}

func lifeOfARequest(b *Bench) {
	r := b.PlayerRequest("ship ☃ {1}")
	r.Words = "binary \x00\xff and \r\n lines"
	first := b.Turn(plan.Turn{Ask: []plan.Request{r}})
	require.Equal(b, []plan.AskReply{{Taken: true, ID: r.ID}}, first.Asked)
	require.Equal(b, 1, first.InStore)
	again := b.Turn(plan.Turn{Ask: []plan.Request{r}}) // the answer was lost
	require.Equal(b, []plan.AskReply{{Taken: true, ID: r.ID}}, again.Asked)
	require.Equal(b, 1, again.InStore)

	got := b.Claim(5)
	require.Len(b, got, 1)
	want := r
	want.Epoch, want.Attempt, want.Running = 1, 1, true
	require.Less(b, got[0].Age, patience)
	got[0].Age = 0
	require.Equal(b, want, got[0])
	require.Empty(b, b.Claim(5))
	used := plan.Usage{Model: "m", Input: 3, Output: 2, Cached: 1}
	require.True(b, b.Finish(got[0], plan.End{Body: []byte("plan\x00"), Usage: used}))
	require.False(b, b.Finish(got[0], plan.End{Body: []byte("again")}), "it has ended")

	for range 2 { // until its receipt comes
		require.Equal(b, plan.TurnReply{InStore: 1, Answers: []plan.Answer{{Entity: r.Entity, ID: r.ID,
			Kind: plan.Planned, Body: []byte("plan\x00")}}}, b.Turn(plan.Turn{}))
	}
	seen := []plan.Receipt{{Entity: r.Entity, ID: r.ID}}
	require.Zero(b, b.Turn(plan.Turn{Seen: seen}))
	require.Zero(b, b.Turn(plan.Turn{Seen: seen}))
}

func oneInFlight(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	refused := func() {
		b.Helper()
		require.Equal(b, []plan.AskReply{{ID: r.ID}}, b.Turn(plan.Turn{Ask: []plan.Request{b.Request("ship")}}).Asked)
	}
	refused()
	got := b.Claim(1)
	refused()
	require.Equal(b, []plan.AskReply{{ID: r.ID}},
		b.Turn(plan.Turn{Ask: []plan.Request{b.PlayerRequest("ship")}}).Asked, "nor a player while it runs")
	b.Epoch = 2
	refused()
	require.True(b, b.Finish(got[0], plan.End{Kind: plan.Failed, Pause: time.Millisecond}))
	refused()
	got = b.Await(1, plan.Claim{})
	require.True(b, b.Finish(got[0], plan.End{}))
	refused()
	b.Turn(plan.Turn{Seen: []plan.Receipt{{Entity: "ship", ID: r.ID}}})
	b.Ask(b.Request("ship"))
}

func playerTakesThePlace(b *Bench) {
	r, p := b.Request("ship"), b.PlayerRequest("ship")
	b.Ask(r, b.Request("other"))
	b.Ask(p)
	b.Ask(p) // the answer was lost
	require.Equal(b, []plan.AskReply{{ID: p.ID}}, b.Turn(plan.Turn{Ask: []plan.Request{b.PlayerRequest("ship")}}).Asked)
	got := b.Claim(5)
	require.Len(b, got, 2)
	require.Equal(b, []string{p.ID, "other"}, []string{got[0].ID, got[1].Entity})
	require.Equal(b, p.Words, got[0].Words)
	require.Empty(b, b.Claim(5), "the one before is gone")

	// A request that rests after a failure waits, too.
	require.True(b, b.Finish(got[1], plan.End{Kind: plan.Failed, Pause: long}))
	q := b.PlayerRequest("other")
	b.Ask(q)
	require.Equal(b, []string{q.ID}, ids(b.Claim(5)))
}

func takingCannotDeleteNewer(b *Bench) {
	old := b.Plan("ship", "old")
	seen := []plan.Receipt{{Entity: "ship", ID: old.ID}}
	b.Turn(plan.Turn{Seen: seen})
	newer := b.Plan("ship", "new")
	r := b.Turn(plan.Turn{Seen: seen}) // late, or a repetition
	require.Equal(b, []plan.Answer{{Entity: "ship", ID: newer.ID, Kind: plan.Planned, Body: []byte("new")}}, r.Answers)
}

func takeOver(b *Bench) {
	waits, rests, runs, done := b.Request("waits"), b.Request("rests"), b.Request("runs"), b.Plan("done", "x")
	b.Ask(rests)
	got := b.Claim(1)
	require.True(b, b.Finish(got[0], plan.End{Kind: plan.Failed, Pause: long}))
	b.Ask(runs)
	running := b.Claim(1)
	b.Ask(waits)

	b.Epoch = 3
	r := b.Turn(plan.Turn{List: true, Ask: []plan.Request{b.Request("fresh")}})
	require.Equal(b, []plan.Answer{{Entity: "done", ID: done.ID, Kind: plan.Stale}}, r.Answers)
	require.Equal(b, 5, r.InStore)
	epochs := map[string]fence.Epoch{}
	for _, l := range r.Listed {
		require.Equal(b, l.Entity == "runs", l.Running)
		require.Equal(b, b.Tile, l.Tile)
		epochs[l.Entity] = l.Epoch
	}
	require.Equal(b, map[string]fence.Epoch{"waits": 3, "rests": 3, "runs": 1, "fresh": 3}, epochs)

	// What ran under the old epoch is stale; what waited is not.
	require.True(b, b.Finish(running[0], plan.End{Body: []byte("y")}))
	for _, g := range b.Claim(5) {
		require.EqualValues(b, 3, g.Epoch)
		require.True(b, b.Finish(g, plan.End{Body: []byte("z")}))
	}
	kinds := map[string]plan.AnswerKind{}
	for _, a := range b.Turn(plan.Turn{}).Answers {
		kinds[a.Entity] = a.Kind
	}
	require.Equal(b, map[string]plan.AnswerKind{"done": plan.Stale, "runs": plan.Stale, "waits": plan.Planned,
		"fresh": plan.Planned}, kinds)
}

func staleOwner(b *Bench) {
	r := b.Plan("ship", "x")
	b.Epoch = 2
	b.Turn(plan.Turn{})
	replies := b.Store.Turn(b.Context(), b.Shard, []plan.Turn{{Tile: b.Tile, Epoch: 1, List: true,
		Seen: []plan.Receipt{{Entity: "ship", ID: r.ID}}, Ask: []plan.Request{b.Request("other")}}})
	require.ErrorIs(b, replies[0].Err, fence.ErrStale)
	require.Equal(b, 1, b.Turn(plan.Turn{}).InStore, "it has changed nothing")
}

func expired(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{Body: []byte("x"), Keep: short}))
	time.Sleep(2 * short)
	require.Equal(b, []plan.Answer{{Entity: "ship", ID: r.ID, Kind: plan.Expired}}, b.Turn(plan.Turn{}).Answers)
}

func tiers(b *Bench) {
	var background, players []plan.Request
	for i := range 6 {
		background = append(background, b.Request(fmt.Sprint("b", i)))
		players = append(players, b.PlayerRequest(fmt.Sprint("p", i)))
	}
	b.Ask(background...)
	b.Ask(players...)
	claim := func(c plan.Claim, want ...plan.Request) plan.Claimed {
		b.Helper()
		got := b.ClaimAs(c)
		require.Equal(b, ids(want), ids(got.Requests))
		return got
	}
	claim(plan.Claim{Any: 1}, players[0])
	claim(plan.Claim{Any: 1, Players: 1}, players[1], players[2])
	claim(plan.Claim{Any: 1, Players: 1, Background: true}, players[3], background[0])
	claim(plan.Claim{Any: 2, Background: true}, background[1], background[2])
	got := claim(plan.Claim{Any: 3}, players[4], players[5], background[3])
	require.Equal(b, []int{0, 2}, []int{got.Players, got.Background})
	claim(plan.Claim{Players: 3})
	claim(plan.Claim{})
	claim(plan.Claim{Any: 9, Background: true}, background[4], background[5])
}

func leaseOver(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	b.ClaimAs(plan.Claim{Worker: "dead", Any: 1, Lease: short})
	b.Ask(b.Request("later"))
	got := b.Await(2, plan.Claim{})
	i := slices.IndexFunc(got, func(g plan.Request) bool { return g.ID == r.ID })
	require.GreaterOrEqual(b, i, 0)
	require.Equal(b, 2, got[i].Attempt)
	require.True(b, b.Finish(got[i], plan.End{}))
}

func lostClaim(b *Bench) {
	b.Ask(b.Request("ship"))
	mine := b.ClaimAs(plan.Claim{Any: 1, Lease: short}).Requests[0]
	other := *b
	other.Worker += "-other"
	theirs := other.Await(1, plan.Claim{})[0]
	for name, claim := range map[string]plan.Request{"mine, in my attempt": mine, "mine, in theirs": theirs} {
		require.False(b, b.Finish(claim, plan.End{Body: []byte("late"), Usage: plan.Usage{Model: "m"}}), name)
		require.False(b, b.Finish(claim, plan.End{Kind: plan.Failed}), name)
		lost, err := b.Renew(b.Context(), b.Shard, b.Worker, long, []plan.Held{{ID: claim.ID, Attempt: claim.Attempt}})
		require.NoError(b, err)
		require.Equal(b, []string{mine.ID}, lost, name)
	}
	require.Empty(b, b.Events())
	require.Empty(b, b.Turn(plan.Turn{}).Answers)
	require.True(b, other.Finish(theirs, plan.End{Body: []byte("theirs"), Usage: plan.Usage{Model: "m"}}))
	require.False(b, b.Finish(mine, plan.End{Body: []byte("late"), Usage: plan.Usage{Model: "m"}}))
	require.Equal(b, "theirs", string(b.Turn(plan.Turn{}).Answers[0].Body))
	require.Len(b, b.Events(), 1)

	// The same worker, paused, may get its own request again: the attempt tells its claims apart.
	b.Ask(b.Request("again"))
	first := b.ClaimAs(plan.Claim{Any: 1, Lease: short}).Requests[0]
	second := b.Await(1, plan.Claim{})[0]
	require.False(b, b.Finish(first, plan.End{}))
	require.True(b, b.Finish(second, plan.End{}))
}

func renewed(b *Bench) {
	b.Ask(b.Request("ship"))
	r := b.ClaimAs(plan.Claim{Any: 1, Lease: 5 * time.Second}).Requests[0]
	claims := []plan.Held{{ID: r.ID, Attempt: 1}, {ID: "no", Attempt: 1}}
	lost, err := b.Renew(b.Context(), b.Shard, b.Worker, long, claims)
	require.NoError(b, err)
	require.Equal(b, []string{"no"}, lost)
	_, err = b.Renew(b.Context(), b.Shard, b.Worker, time.Millisecond, []plan.Held{{ID: r.ID, Attempt: 1}})
	require.NoError(b, err)
	require.Equal(b, r.ID, b.Await(1, plan.Claim{})[0].ID, "a lease can be shortened, too")
}

func failedAndRetried(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	for attempt := 1; attempt <= 3; attempt++ {
		got := b.Await(1, plan.Claim{})[0]
		require.Equal(b, attempt, got.Attempt)
		require.True(b, b.Finish(got, plan.End{Kind: plan.Failed, Error: "busy", Pause: short}))
	}
	require.Equal(b, 1, b.Turn(plan.Turn{}).InStore)
	got := b.Await(1, plan.Claim{})[0]
	require.True(b, b.Finish(got, plan.End{Kind: plan.Failed, Error: "busy", Pause: long}))
	require.Empty(b, b.Claim(1), "it rests")
}

// die makes a dead letter.
func (b *Bench) die(entity, why string) plan.Request {
	b.Helper()
	r := b.Request(entity)
	b.Ask(r)
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{Kind: plan.Failed, Error: why, Attempts: 1}))
	return r
}

// letters are the dead letters of the tile.
func (b *Bench) letters() (mine []plan.Letter) {
	b.Helper()
	all, err := b.Letters(b.Context(), b.Shard)
	require.NoError(b, err)
	for _, l := range all {
		if l.Request.Tile == b.Tile {
			mine = append(mine, l)
		}
	}
	return mine
}

func deadLetters(b *Bench) {
	r := b.die("ship", "model says no")
	time.Sleep(2 * time.Millisecond) // they are listed in the order of their milliseconds
	gone := b.die("gone", "x")
	letters := b.letters()
	require.Len(b, letters, 2)
	require.Equal(b, "model says no", letters[0].Error)
	require.Equal(b, r.Words, letters[0].Request.Words)
	require.WithinDuration(b, time.Now(), letters[0].At, time.Minute)
	answers := b.Turn(plan.Turn{}).Answers
	require.Len(b, answers, 2)
	require.Equal(b, []plan.AnswerKind{plan.Died, plan.Died}, []plan.AnswerKind{answers[0].Kind, answers[1].Kind})
	b.Turn(plan.Turn{Seen: []plan.Receipt{{Entity: "ship", ID: r.ID}, {Entity: "gone", ID: gone.ID}}})
	require.Empty(b, b.Claim(1))

	ctx := b.Context()
	newer := b.Request("ship")
	b.Ask(newer)
	require.ErrorIs(b, b.Replay(ctx, b.Shard, r.ID), plan.ErrInFlight)
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{}))
	require.ErrorIs(b, b.Replay(ctx, b.Shard, r.ID), plan.ErrInFlight)
	b.Turn(plan.Turn{Seen: []plan.Receipt{{Entity: "ship", ID: newer.ID}}})
	b.Epoch = 4
	b.Turn(plan.Turn{})
	require.NoError(b, b.Replay(ctx, b.Shard, r.ID))
	require.ErrorIs(b, b.Replay(ctx, b.Shard, r.ID), plan.ErrNoLetter)
	got := b.Claim(1)[0]
	require.Equal(b, []any{r.ID, 1, fence.Epoch(4)}, []any{got.ID, got.Attempt, got.Epoch})
	require.True(b, b.Finish(got, plan.End{Body: []byte("late")}))
	require.Equal(b, plan.Planned, b.Turn(plan.Turn{}).Answers[0].Kind)

	require.ErrorIs(b, b.Drop(ctx, b.Shard, r.ID), plan.ErrNoLetter)
	require.NoError(b, b.Drop(ctx, b.Shard, gone.ID))
	require.ErrorIs(b, b.Drop(ctx, b.Shard, gone.ID), plan.ErrNoLetter)
	require.Empty(b, b.letters())
}

func lastLeaseOver(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	b.ClaimAs(plan.Claim{Any: 1, Lease: short})
	require.Eventually(b, func() bool {
		b.ClaimAs(plan.Claim{Attempts: 1})
		return len(b.letters()) == 1
	}, patience, 5*time.Millisecond)
	require.Contains(b, b.letters()[0].Error, "lease")
	answers := b.Turn(plan.Turn{}).Answers
	require.Len(b, answers, 1, "the owner is notified")
	require.Equal(b, plan.Died, answers[0].Kind)
	require.NoError(b, b.Drop(b.Context(), b.Shard, r.ID))
}

func noSubject(b *Bench) {
	r := b.Request("wreck")
	b.Ask(r)
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{Kind: plan.NoSubject, Usage: plan.Usage{Model: "m"}}))
	require.Equal(b, []plan.Answer{{Entity: "wreck", ID: r.ID, Kind: plan.Discarded}}, b.Turn(plan.Turn{}).Answers)
	require.Empty(b, b.Events())
}

func usageOnce(b *Bench) {
	r := b.Request("ship")
	b.Ask(r)
	used := plan.Usage{Model: "model-1", Input: 1000, Output: 200, Cached: 30}
	one := b.ClaimAs(plan.Claim{Any: 1, Lease: short}).Requests[0]
	two := b.Await(1, plan.Claim{})[0]
	require.True(b, b.Finish(two, plan.End{Usage: used}))
	require.False(b, b.Finish(one, plan.End{Usage: used}), "it was run twice")
	require.False(b, b.Finish(two, plan.End{Usage: used}))
	events := b.Events()
	require.Len(b, events, 1)
	require.NotEmpty(b, events[0].Position)
	require.WithinDuration(b, time.Now(), events[0].At, time.Minute)
	events[0].Position, events[0].At = "", time.Time{}
	require.Equal(b, plan.UsageEvent{Request: r.ID, Tile: b.Tile, Entity: "ship", Requester: "ann", Usage: used},
		events[0])

	b.Ask(b.Request("free"))
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{}))
	require.Len(b, b.Events(), 1, "nothing was used")
}

func usageIsMoved(b *Bench) {
	var want []string
	for i := range 5 {
		r := b.Request(fmt.Sprint("ship", i))
		b.Ask(r)
		require.True(b, b.Finish(b.Claim(1)[0], plan.End{Usage: plan.Usage{Model: "m", Input: int64(i)}}))
		want = append(want, r.ID)
	}
	var got []string
	after := ""
	for {
		events, err := b.Usage(b.Context(), b.Shard, after, 2)
		require.NoError(b, err)
		if len(events) == 0 {
			break
		}
		require.LessOrEqual(b, len(events), 2)
		for _, e := range events {
			after = e.Position
			if e.Tile == b.Tile {
				got = append(got, e.Request)
			}
		}
	}
	require.Equal(b, want, got)
	require.Empty(b, b.Events())
}

func full(b *Bench) {
	for at := 0; at < plan.MaxOutstanding; at += plan.MaxAsks {
		var some []plan.Request
		for i := range plan.MaxAsks {
			some = append(some, b.Request(fmt.Sprint("ship", at+i)))
		}
		b.Ask(some...)
	}
	r := b.Turn(plan.Turn{Ask: []plan.Request{b.Request("one more")}})
	require.Equal(b, []plan.AskReply{{}}, r.Asked)
	require.Equal(b, plan.MaxOutstanding, r.InStore)
	require.Len(b, b.Turn(plan.Turn{List: true}).Listed, plan.MaxOutstanding)
	for n := 0; n < plan.MaxOutstanding; {
		n += len(b.Claim(128))
	}
}

func manyAnswers(b *Bench) {
	const n = 600
	want := map[string]bool{}
	for at := 0; at < n; at += 100 {
		var some []plan.Request
		for i := range 100 {
			some = append(some, b.Request(fmt.Sprint("ship", at+i)))
			want[some[i].ID] = true
		}
		b.Ask(some...)
		ends := make([]plan.End, 100)
		for i, r := range b.Claim(100) {
			ends[i] = plan.End{Held: plan.Held{ID: r.ID, Attempt: 1}, Kind: plan.Succeeded, Keep: long}
		}
		held, err := b.Store.Finish(b.Context(), b.Shard, b.Worker, ends)
		require.NoError(b, err)
		require.NotContains(b, held, false)
	}
	require.Len(b, b.Turn(plan.Turn{List: true}).Answers, n)
	var seen []plan.Receipt
	for left := n; ; {
		r := b.Turn(plan.Turn{Seen: seen})
		if left -= len(seen); left == 0 {
			require.Zero(b, r)
			return
		}
		require.Equal(b, left, r.InStore)
		require.NotEmpty(b, r.Answers)
		seen = nil
		for _, a := range r.Answers {
			require.True(b, want[a.ID])
			delete(want, a.ID)
			seen = append(seen, plan.Receipt{Entity: a.Entity, ID: a.ID})
		}
	}
}

func woken(b *Bench) {
	ctx, cancel := context.WithCancel(b.Context())
	heard, done := make(chan [2]int, 1000), make(chan error, 1)
	go func() {
		done <- b.Wake(ctx, func(shard int, t plan.Tier) {
			select {
			case heard <- [2]int{shard, int(t)}:
			default:
			}
		})
	}()
	for i, tier := range []plan.Tier{plan.Player, plan.Background} {
		require.Eventually(b, func() bool { // the subscription takes its time
			r := b.Request(fmt.Sprint("ship", i, rand.Text()))
			r.Tier = tier
			b.Ask(r)
			for {
				select {
				case h := <-heard:
					if h == [2]int{b.Shard, int(tier)} {
						return true
					}
				case <-time.After(50 * time.Millisecond):
					return false
				}
			}
		}, patience, time.Millisecond)
	}
	cancel()
	require.NoError(b, <-done)
	for len(b.Claim(100)) > 0 {
	}
}

func endedContext(b *Bench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	_, err := b.Store.Claim(ctx, b.Shard, plan.Claim{Worker: "w", Lease: long, Any: 1, Attempts: 1})
	require.ErrorIs(b, err, context.Canceled)
	var failed *fence.StoreError
	require.ErrorAs(b, err, &failed)
	require.ErrorIs(b, b.Store.Turn(ctx, b.Shard, []plan.Turn{{Tile: b.Tile, Epoch: 1}})[0].Err, context.Canceled)
	_, err = b.Store.Finish(ctx, b.Shard, "w", []plan.End{{Kind: plan.Succeeded}})
	require.ErrorIs(b, err, context.Canceled)
	_, err = b.Usage(ctx, b.Shard, "", 1)
	require.ErrorIs(b, err, context.Canceled)
}

func depths(b *Bench) {
	before, err := b.Depth(b.Context(), b.Shard)
	require.NoError(b, err)
	b.Ask(b.Request("b1"), b.Request("b2"), b.PlayerRequest("p1"), b.Request("b3"))
	b.Claim(1)
	got, err := b.Depth(b.Context(), b.Shard)
	require.NoError(b, err)
	require.Equal(b, []int{before.Players, before.Background + 3, before.Busy + 1, before.Dead, before.Usage},
		[]int{got.Players, got.Background, got.Busy, got.Dead, got.Usage})
	b.Claim(3)
}

// concurrent has workers race for requests: each is claimed once.
func concurrent(b *Bench) {
	const n = 200
	var all []plan.Request
	for i := range n {
		all = append(all, b.Request(fmt.Sprint("ship", i)))
	}
	b.Ask(all...)
	claimed := make(chan string, 2*n)
	var g errgroup.Group
	for w := range 8 {
		g.Go(func() error {
			for {
				got, err := b.Store.Claim(b.Context(), b.Shard, plan.Claim{Worker: fmt.Sprint(b.Worker, w), Lease: long,
					Any: 1 + w, Attempts: 5})
				if err != nil || len(got.Requests) == 0 {
					return err
				}
				for _, r := range got.Requests {
					claimed <- r.ID
				}
			}
		})
	}
	require.NoError(b, g.Wait())
	close(claimed)
	seen := map[string]bool{}
	for id := range claimed {
		require.False(b, seen[id], "claimed twice")
		seen[id] = true
	}
	require.Len(b, seen, n)
}
