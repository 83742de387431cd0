// Package plantest is the contract of plan.Store as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { plantest.Run(t, newStore) }
//
// The tests claim whatever waits: each has a store of its own, on which nothing else runs. Leases and pauses that have
// to end are short, those that must not are long.
package plantest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
)

const (
	long     = time.Hour
	short    = 20 * time.Millisecond
	patience = 15 * time.Second
)

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
		{"TilesHaveTheirTurns", turns},
		{"LeaseOver", leaseOver},
		{"LostClaim", lostClaim},
		{"Renewed", renewed},
		{"FailedAndRetried", failedAndRetried},
		{"DeadLetters", deadLetters},
		{"LastLeaseOver", lastLeaseOver},
		{"NoSubject", noSubject},
		{"UsageOnce", usageOnce},
		{"UsageOfWhatTheStoreLost", usageOfWhatTheStoreLost},
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
			Kind: plan.Planned, Body: []byte("plan\x00"), Usage: used}}}, b.Turn(plan.Turn{}))
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
	require.Equal(b, []int{0, 1}, []int{got.Players, got.Background}, "tiles that have some")
	claim(plan.Claim{Players: 3})
	claim(plan.Claim{})
	claim(plan.Claim{Any: 9, Background: true}, background[4], background[5])
}

// turns: a tile with many requests, and with many that fail, does not delay those of the others.
func turns(b *Bench) {
	other := *b
	for other.Tile == b.Tile || plan.ShardOf(other.Tile, b.Shards()) != b.Shard {
		other.Tile = NewTile()
	}
	var many []plan.Request
	for i := range 50 {
		many = append(many, b.PlayerRequest(fmt.Sprint("ship", i)))
	}
	b.Ask(many...)
	few := []plan.Request{other.PlayerRequest("a"), other.PlayerRequest("b"), other.PlayerRequest("c")}
	other.Ask(few...)
	require.Equal(b, []string{many[0].ID, few[0].ID, many[1].ID, few[1].ID}, ids(slices.Concat(b.Claim(1), b.Claim(1),
		b.Claim(1), b.Claim(1))))
	first := b.Claim(20)
	require.Len(b, first, 20)
	require.Contains(b, ids(first), few[2].ID)

	// What returns is the first of its own tile, and waits for that one's turn.
	failing := 0
	for _, r := range first {
		if r.Tile == b.Tile {
			require.True(b, b.Finish(r, plan.End{Kind: plan.Failed, Pause: time.Millisecond}))
			failing++
		}
	}
	time.Sleep(short)
	b.ClaimAs(plan.Claim{}) // returns them
	again := other.PlayerRequest("d")
	other.Ask(again)
	two := b.Claim(2)
	require.Contains(b, ids(two), again.ID)
	own := slices.IndexFunc(two, func(r plan.Request) bool { return r.Tile == b.Tile })
	require.Contains(b, ids(first), two[own].ID)
	d, err := b.Depth(b.Context(), b.Shard)
	require.NoError(b, err)
	require.Equal(b, 50-2-1, d.Players, "%d have failed, of which one runs again", failing)
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

// A store that has gone back to a moment before a plan was stored learns from the owner's receipt what it has used.
func usageOfWhatTheStoreLost(b *Bench) {
	waiting, running, died := b.Request("waiting"), b.Request("running"), b.Request("died")
	used := plan.Usage{Model: "model-1", Input: 1000, Output: 200, Cached: 30}
	receipt := func(entity, id string) plan.Receipt {
		return plan.Receipt{Entity: entity, ID: id, Requester: "ann", Usage: used}
	}
	b.Ask(died)
	last := b.Claim(1)[0]
	require.True(b, b.Finish(last, plan.End{Kind: plan.Failed, Error: "the last", Attempts: 1}))
	b.Ask(running)
	claim := b.Claim(1)[0]
	b.Ask(waiting)
	left := b.Turn(plan.Turn{Seen: []plan.Receipt{receipt("waiting", waiting.ID), receipt("running", running.ID),
		receipt("died", died.ID), receipt("gone", "the request is lost too")}})
	require.Zero(b, left.InStore, "nothing of them is left")
	require.False(b, b.Finish(claim, plan.End{Usage: used}))
	require.Empty(b, b.Claim(4))
	var charged []string
	for _, e := range b.Events() {
		require.Equal(b, plan.UsageEvent{Position: e.Position, Request: e.Request, Tile: b.Tile, Entity: e.Entity,
			Requester: "ann", Usage: used, At: e.At}, e)
		require.WithinDuration(b, time.Now(), e.At, time.Minute)
		charged = append(charged, e.Request)
	}
	require.Equal(b, []string{waiting.ID, running.ID, died.ID, "the request is lost too"}, charged)

	b.Ask(waiting)
	require.True(b, b.Finish(b.Claim(1)[0], plan.End{Usage: used}))
	require.Len(b, b.Events(), 5)
	b.Turn(plan.Turn{Seen: []plan.Receipt{receipt("waiting", waiting.ID)}})
	require.Len(b, b.Events(), 5, "the store has it")
	b.Ask(b.Request("waiting"), b.Request("running"), b.Request("died"))
	require.Len(b, b.Claim(4), 3, "they are free")
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
		waittest.Until(b, func() bool { // the subscription takes its time
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
