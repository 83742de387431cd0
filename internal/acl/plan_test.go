package acl_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// plansAs is a plan store of one user. It has a name of its own, so that no other test takes its requests.
func plansAs(t *testing.T, c *cluster, actor, name string) *redisplan.Store {
	t.Helper()
	s, err := redisplan.New(c.as(t, actor), &redisplan.Config{Name: name})
	require.NoError(t, err)
	return s
}

// TestPlansUnderTheirUsers: a request goes through its life, each step under its own user, and what the others may do
// is refused to each.
func TestPlansUnderTheirUsers(t *testing.T) {
	c := withUsers(t, "coordination.acl", stacktest.Redis(t))
	name := rand.Text()
	actors := []string{"plandesk", "planworker", "planbiller", "planoperator"}
	as := map[string]*redisplan.Store{}
	for _, actor := range append(actors, "owner", "relay") {
		as[actor] = plansAs(t, c, actor, name)
	}
	desk, worker, biller, operator := as["plandesk"], as["planworker"], as["planbiller"], as["planoperator"]
	require.NoError(t, desk.Load(t.Context()))
	require.NoError(t, worker.Load(t.Context()))

	const id fence.TileID = 77
	ctx, shard := t.Context(), plan.ShardOf(id, desk.Shards())
	request := func(entity string) plan.Request {
		return plan.Request{ID: rand.Text(), Tile: id, Entity: entity, Tier: plan.Background}
	}
	turn := func(s *redisplan.Store, epoch fence.Epoch, t plan.Turn) plan.TurnReply {
		t.Tile, t.Epoch = id, epoch
		return s.Turn(ctx, shard, []plan.Turn{t})[0]
	}
	claim := plan.Claim{Worker: "w", Lease: time.Hour, Any: 4, Attempts: 1}
	ship, poison := request("ship"), request("poison")
	require.NoError(t, turn(desk, 1, plan.Turn{List: true,
		Ask: []plan.Request{ship, poison, request("promoted")}}).Err)
	player := request("promoted")
	player.Tier = plan.Player
	require.NoError(t, turn(desk, 2, plan.Turn{List: true, Ask: []plan.Request{player}}).Err)
	got, err := worker.Claim(ctx, shard, claim)
	require.NoError(t, err)
	require.Len(t, got.Requests, 3)
	_, err = worker.Renew(ctx, shard, "w", time.Hour, []plan.Held{{ID: ship.ID, Attempt: 1}})
	require.NoError(t, err)
	ends := []plan.End{
		{Held: plan.Held{ID: ship.ID, Attempt: 1}, Kind: plan.Succeeded, Keep: time.Hour,
			Usage: plan.Usage{Model: "m"}},
		{Held: plan.Held{ID: poison.ID, Attempt: 1}, Kind: plan.Failed, Attempts: 1},
		{Held: plan.Held{ID: player.ID, Attempt: 1}, Kind: plan.Failed, Attempts: 2, Pause: time.Millisecond}}
	held, err := worker.Finish(ctx, shard, "w", ends)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, true}, held)
	time.Sleep(5 * time.Millisecond)
	got, err = worker.Claim(ctx, shard, claim)
	require.NoError(t, err)
	require.Len(t, got.Requests, 1, "what was due is swept")

	letters, err := operator.Letters(ctx, shard)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	_, err = operator.Depth(ctx, shard)
	require.NoError(t, err)
	require.NoError(t, operator.Replay(ctx, shard, poison.ID))
	got, err = worker.Claim(ctx, shard, claim)
	require.NoError(t, err)
	require.Len(t, got.Requests, 1)
	events, err := biller.Usage(ctx, shard, "", 10)
	require.NoError(t, err)
	require.Len(t, events, 1)
	_, err = biller.Usage(ctx, shard, events[0].Position, 10)
	require.NoError(t, err)
	r := turn(desk, 2, plan.Turn{})
	require.NoError(t, r.Err)
	require.NotEmpty(t, r.Answers)
	seen := []plan.Receipt{{Entity: r.Answers[0].Entity, ID: r.Answers[0].ID}}
	require.NoError(t, turn(desk, 2, plan.Turn{Seen: seen}).Err)
	held, err = worker.Finish(ctx, shard, "w", ends[1:2])
	require.NoError(t, err)
	require.Equal(t, []bool{true}, held, "it is dead again")
	before, err := operator.Depth(ctx, shard)
	require.NoError(t, err)

	for _, actor := range append(actors, "owner", "relay") {
		if actor != "plandesk" {
			denied(t, turn(as[actor], 2, plan.Turn{Ask: []plan.Request{request("x")}}).Err, actor)
		}
		if actor != "planworker" {
			_, err := as[actor].Claim(ctx, shard, claim)
			denied(t, err, actor)
			held, err := as[actor].Finish(ctx, shard, "w", ends)
			if actor == "plandesk" { // it reads requests, and finds none that is claimed
				require.NoError(t, err)
				require.NotContains(t, held, true)
			} else {
				denied(t, err, actor)
			}
			_, err = as[actor].Renew(ctx, shard, "w", time.Hour, []plan.Held{{ID: player.ID, Attempt: 2}})
			denied(t, err, actor)
		}
		if actor != "planbiller" {
			_, err := as[actor].Usage(ctx, shard, "", 10)
			denied(t, err, actor)
		}
		if actor != "planoperator" && actor != "planworker" { // a worker makes dead letters, and has their keys
			_, err := as[actor].Letters(ctx, shard)
			denied(t, err, actor)
			denied(t, as[actor].Drop(ctx, shard, poison.ID), actor)
		}
	}
	after, err := operator.Depth(ctx, shard)
	require.NoError(t, err)
	require.Equal(t, before, after, "what was refused has changed nothing")
	key := "{tilefence:plan:" + name + ":0}:"
	for _, actor := range actors {
		for _, command := range [][]any{{"del", key + "requests"}, {"set", key + "requests", "1"}, {"get", "other"},
			{"hset", "{tile:1}:owner", "epoch", "9"}, {"hget", "{tile:1}:owner", "epoch"}, {"flushall"}, {"keys", "*"},
			{"function", "flush"}, {"eval", "return 1", "0"}, {"config", "get", "*"}, {"acl", "list"},
			{"xadd", "{tile:1}:stream", "*", "f", "v"}, {"spublish", "{tile:1}:frames", "forged"}} {
			requireRefused(t, c.as(t, actor), actor, command)
		}
	}
	requireRefused(t, c.as(t, "planworker"), "planworker", []any{"xrange", key + "usage", "-", "+"})
	requireRefused(t, c.as(t, "plandesk"), "plandesk", []any{"ssubscribe", key + "wake"})
}

// denied: the user may not call the function on its keys, or the function stopped at a command or key of which its
// caller has no right.
func denied(t *testing.T, err error, actor string) {
	t.Helper()
	require.Error(t, err, actor)
	require.Regexp(t, "NOPERM|can't (run this command|access at least one of the keys)", err.Error(), actor)
}
