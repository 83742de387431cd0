package plantest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

// randomTurns makes the same random calls on the store and on memplan, and compares all replies.
func randomTurns(b *Bench) {
	t := &twins{Bench: b, model: memplan.New(), rng: seed.Rand(b.TB)}
	t.modelShard = plan.ShardOf(b.Tile, t.model.Shards())
	for range 400 {
		switch t.rng.IntN(10) {
		case 0, 1, 2, 3:
			t.turn()
		case 4, 5:
			t.claim()
		case 6, 7:
			t.finish()
		case 8:
			t.letter()
		case 9:
			if t.Epoch > 0 && t.rng.IntN(5) == 0 {
				t.Epoch++
			}
		}
		if b.Failed() {
			return
		}
	}
	for t.claim() > 0 { // or they would be found by the next test
	}
	t.drop()
}

// twins are a store and its model.
type twins struct {
	*Bench
	model      plan.Store
	modelShard int
	rng        *rand.Rand
	last       int // of the requests made

	claims []plan.Request
	seen   []plan.Receipt // every answer there ever was
	dead   []string
}

func (t *twins) turn() {
	turn := plan.Turn{Tile: t.Tile, Epoch: t.Epoch, List: t.rng.IntN(4) == 0}
	if t.rng.IntN(20) == 0 && t.Epoch > 1 {
		turn.Epoch-- // the owner before
	}
	for range t.rng.IntN(4) {
		t.last++
		r := t.Request(fmt.Sprint("ship", t.rng.IntN(8)))
		r.ID = fmt.Sprintf("%s-%d", t.Worker, t.last)
		r.Tier = plan.Tier(1 + t.rng.IntN(2))
		turn.Ask = append(turn.Ask, r)
	}
	for range t.rng.IntN(3) {
		if len(t.seen) > 0 {
			turn.Seen = append(turn.Seen, t.seen[t.rng.IntN(len(t.seen))])
		}
	}
	got := t.Store.Turn(t.Context(), t.Shard, []plan.Turn{turn})[0]
	want := t.model.Turn(t.Context(), t.modelShard, []plan.Turn{turn})[0]
	for _, r := range []*plan.TurnReply{&got, &want} {
		slices.SortFunc(r.Answers, func(a, b plan.Answer) int { return cmp.Compare(a.Entity, b.Entity) })
		slices.SortFunc(r.Listed, func(a, b plan.Request) int { return cmp.Compare(a.Entity, b.Entity) })
		ageless(r.Listed)
	}
	require.Equal(t, want, got, "%+v", turn)
	for _, a := range got.Answers {
		t.seen = append(t.seen, plan.Receipt{Entity: a.Entity, ID: a.ID})
	}
}

func (t *twins) claim() int {
	c := plan.Claim{Worker: fmt.Sprint(t.Worker, t.rng.IntN(2)), Lease: long, Any: t.rng.IntN(3),
		Players: t.rng.IntN(3), Background: t.rng.IntN(2) == 0, Attempts: 2}
	got, err := t.Store.Claim(t.Context(), t.Shard, c)
	require.NoError(t, err)
	want, err := t.model.Claim(t.Context(), t.modelShard, c)
	require.NoError(t, err)
	ageless(got.Requests)
	ageless(want.Requests)
	require.Equal(t, want, got)
	for _, r := range got.Requests {
		r.Requester = c.Worker // whose claim it is
		t.claims = append(t.claims, r)
	}
	return len(got.Requests) + got.Players + got.Background
}

func (t *twins) finish() {
	if len(t.claims) == 0 {
		return
	}
	i := t.rng.IntN(len(t.claims))
	r := t.claims[i]
	if t.rng.IntN(4) > 0 { // else it is ended once more
		t.claims = slices.Delete(t.claims, i, i+1)
	}
	e := plan.End{Held: plan.Held{ID: r.ID, Attempt: r.Attempt}, Kind: plan.EndKind(1 + t.rng.IntN(3)), Keep: long,
		Body: []byte(r.ID), Error: "x", Pause: time.Duration(t.rng.IntN(2)) * long, Attempts: 2,
		Usage: plan.Usage{Model: "m", Input: int64(t.rng.IntN(9))}}
	if e.Kind == plan.Failed && r.Attempt >= 2 {
		t.dead = append(t.dead, r.ID)
	}
	got, err := t.Store.Finish(t.Context(), t.Shard, r.Requester, []plan.End{e})
	require.NoError(t, err)
	want, err := t.model.Finish(t.Context(), t.modelShard, r.Requester, []plan.End{e})
	require.NoError(t, err)
	require.Equal(t, want, got)
	if e.Kind == plan.Failed && e.Pause == 0 {
		time.Sleep(2 * time.Millisecond) // requests return to the queue in the order of the stores' milliseconds
	}
}

func (t *twins) letter() {
	if len(t.dead) == 0 {
		return
	}
	id := t.dead[t.rng.IntN(len(t.dead))]
	if t.rng.IntN(3) == 0 {
		require.Equal(t, t.model.Drop(t.Context(), t.modelShard, id), t.Drop(t.Context(), t.Shard, id))
		return
	}
	require.Equal(t, t.model.Replay(t.Context(), t.modelShard, id), t.Replay(t.Context(), t.Shard, id))
}

func (t *twins) drop() {
	for _, id := range t.dead {
		_ = t.Drop(t.Context(), t.Shard, id)
	}
	require.Empty(t, t.letters())
}

func ageless(requests []plan.Request) {
	for i := range requests {
		requests[i].Age = 0
	}
}
