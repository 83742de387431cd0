package plantest

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/plan"
)

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
	waittest.Until(b, func() bool {
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
