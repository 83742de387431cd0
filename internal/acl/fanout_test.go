package acl_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/spawn"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

// TestHintsUnderTheirUsers: an owner hints, a bridge and a checkpointer hear it.
func TestHintsUnderTheirUsers(t *testing.T) {
	delivery := withUsers(t, "fanout.acl", stacktest.Fanout(t))
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	owner, err := redisfanout.New(delivery.as(t, "owner"), nil)
	require.NoError(t, err)
	hinter, err := fanout.NewHinter(owner, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- hinter.Run(ctx) }()
	for _, actor := range []string{"bridge", "checkpointer"} {
		hears, err := redisfanout.New(delivery.as(t, actor), nil)
		require.NoError(t, err)
		heard, up := make(chan fence.TileID, 1000), make(chan bool, 10)
		stop, err := hears.SubscribeHints(fanout.HintGroupOf(tile), func(tiles []fence.TileID) {
			for _, hinted := range tiles {
				heard <- hinted
			}
		}, func(inForce bool) { up <- inForce })
		require.NoError(t, err)
		select {
		case <-up:
		case <-time.After(time.Minute):
			t.Fatalf("may the %s subscribe to hints?", actor)
		}
		waittest.Until(t, func() bool {
			hinter.Hint(tile)
			select {
			case got := <-heard:
				return got == tile
			case <-time.After(20 * time.Millisecond):
				return false
			}
		}, 20*time.Second, time.Millisecond, "may the owner publish hints?")
		stop()
	}
	cancel()
	require.NoError(t, <-done)
	require.Zero(t, hinter.Stats().Failed)
}

// TestSharingUnderItsUsers: bridges, checkpointers and owners are on the lists of their own groups, and cannot touch
// each other's. The names are those that the servers of the root package take.
func TestSharingUnderItsUsers(t *testing.T) {
	delivery := withUsers(t, "fanout.acl", stacktest.Fanout(t))
	for _, actor := range []string{"owner", "bridge", "checkpointer", "relay"} {
		members := redisshare.New(delivery.as(t, actor), fence.World{})
		_, _, err := members.Beat(t.Context(), spawn.AsleepGroup, "a", time.Minute)
		if actor == "owner" || actor == "checkpointer" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "NOPERM", "%s is on the list of tiles to begin", actor)
		}
		for of, name := range map[string]string{"bridge": "bridge", "checkpointer": "checkpoint", "owner": "address-"} {
			group := name + stacktest.UniqueName(t)
			_, _, err = members.Beat(t.Context(), group, "a", time.Minute)
			if actor != of {
				require.ErrorContains(t, err, "NOPERM", "%s is on the list of a %s", actor, of)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, members.Leave(t.Context(), group, "a"))
			key := membersKey + group + "}"
			require.NoError(t, delivery.as(t, actor).Eval(t.Context(), "return 1", []string{key}).Err(),
				"it may load the script itself")
			// In a script it has its own rights and no others.
			for _, code := range []string{"return redis.call('DEL', KEYS[1])",
				"return redis.call('SPUBLISH', '{tilefence:other:3}', 'forged')",
				"return redis.call('HSET', '{tilefence:members:other}', 'a', 'b')",
				"return redis.call('ZADD', '{tilefence:members:other}', 1, 'b')",
				"return redis.call('CONFIG', 'GET', '*')"} {
				require.Error(t, delivery.as(t, actor).Eval(t.Context(), code, []string{key}).Err(), code)
			}
		}
	}
}

// membersKey begins the key of a group's members, which its name and a brace follow (docs/wire.md).
const membersKey = "{tilefence:members:"

// TestWhatIsRefusedOnFanout: what an actor has no business with is NOPERM there, too.
func TestWhatIsRefusedOnFanout(t *testing.T) {
	delivery := withUsers(t, "fanout.acl", stacktest.Fanout(t))
	frames, hints := fence.World{}.Channel(7), fanout.HintChannel(3)
	list, others := membersKey+"bridge-x}", membersKey+"checkpoint-x}"
	for actor, commands := range map[string][][]any{
		"owner": {{"spublish", frames, "forged"}, {"ssubscribe", hints}, {"ssubscribe", frames},
			{"eval", "return redis.call('ZADD', KEYS[1], 1, 'b')", "1", list}, {"zrange", list, "0", "-1"},
			{"zadd", list, "9", "a"}},
		"bridge": {{"spublish", hints, "forged"}, {"ssubscribe", frames}, {"zadd", others, "9", "a"},
			{"hset", "{tile:1}:owner", "epoch", "9"}, {"hgetall", "{tile:1}:owner"}, {"del", list}, {"set", list, "1"},
			{"script", "flush"}, {"script", "load", "return 1"},
			{"eval", "return redis.call('ZADD', KEYS[1], 1, 'b')", "1", others}},
		"checkpointer": {{"spublish", frames, "forged"}, {"spublish", hints, "forged"}, {"ssubscribe", frames},
			{"zadd", list, "9", "a"}},
		"relay": {{"spublish", frames, "forged"}, {"spublish", hints, "forged"}, {"ssubscribe", hints},
			{"zrange", list, "0", "-1"}, {"eval", "return 1", "0"}},
	} {
		for _, command := range append(commands, []any{"spublish", "{tile:1}:other", "forged"},
			[]any{"publish", "other", "forged"}, []any{"set", "a", "b"}, []any{"flushall"}, []any{"keys", "*"},
			[]any{"config", "get", "*"}, []any{"acl", "list"},
			[]any{"function", "flush"}, []any{"shutdown", "nosave"}) {
			requireRefused(t, delivery.as(t, actor), actor, command)
		}
	}
}

// TestCountingSubscribers: bridges and operators count who listens, for the broker tier; others cannot.
func TestCountingSubscribers(t *testing.T) {
	delivery := withUsers(t, "fanout.acl", stacktest.Fanout(t))
	for _, actor := range []string{"bridge", "operator"} {
		f, err := redisfanout.New(delivery.as(t, actor), nil)
		require.NoError(t, err)
		counts, err := f.Audience(t.Context(), []fence.TileID{7, 8})
		require.NoError(t, err, actor)
		require.Equal(t, []int{0, 0}, counts)
	}
	requireRefused(t, delivery.as(t, "relay"), "relay", []any{"pubsub", "shardnumsub", fence.World{}.Channel(7)})
}

// TestTheDirectoryUnderItsUser: it does all that the directory needs, and can do nothing else.
func TestTheDirectoryUnderItsUser(t *testing.T) {
	delivery := withUsers(t, "fanout.acl", stacktest.Fanout(t))
	d := redisdirectory.New(delivery.as(t, "directory"), fence.World{})
	actor, ready, heard := stacktest.UniqueName(t), make(chan struct{}, 1), make(chan []byte, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Listen(ctx, actor, func() { ready <- struct{}{} }, func(b []byte) { heard <- b }) }()
	require.NoError(t, d.Place(ctx, directory.Move{Actor: actor, To: 7, At: time.Now()}))
	_, err := d.End(ctx, actor)
	require.NoError(t, err)
	r, err := d.Renew(ctx, "a", actor)
	require.NoError(t, err)
	require.Equal(t, fence.TileID(7), r[0].Place.Tile)
	require.NoError(t, d.Leave(ctx, "a", actor))
	<-ready
	listens, err := d.Post(ctx, actor, []byte("a"))
	require.NoError(t, err)
	require.True(t, listens)
	<-heard
	cancel()
	require.NoError(t, <-done)
	for _, command := range [][]any{{"spublish", fence.World{}.Channel(7), "forged"}, {"hgetall", "{tile:1}:owner"},
		{"del", "{tilefence:players:0}:" + actor}, {"zadd", membersKey + "bridge-x}", "9", "a"}, {"keys", "*"},
		{"set", "a", "b"}, {"ssubscribe", fanout.HintChannel(3)}, {"script", "flush"},
		{"eval", "return redis.call('HSET', KEYS[1], 'a', 'b')", "1", "{tile:1}:owner"}} {
		requireRefused(t, delivery.as(t, "directory"), "directory", command)
	}
	_, err = redisdirectory.New(delivery.as(t, "relay"), fence.World{}).Look(t.Context(), actor)
	require.ErrorContains(t, err, "NOPERM")
}
