package tile_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// damaged is a store whose stream of a tile is damaged from time to time: it takes no batch of it before it is rebased.
type damaged struct {
	fence.Store
	broken atomic.Bool
}

func (d *damaged) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	if d.broken.Load() {
		return fence.Receipt{}, &fence.CorruptError{Tile: c.Tile, What: "stream", Detail: "an entry of another make"}
	}
	return d.Store.Commit(ctx, c)
}

func (d *damaged) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	receipt, err := d.Store.Rebase(ctx, r)
	if err == nil {
		d.broken.Store(false)
	}
	return receipt, err
}

// survives plays, damages and plays on: an owner that lives keeps all that it has acknowledged, and says what happened.
func survives(t *testing.T, seams tile.Seams, id fence.TileID, attacks map[string]func()) {
	t.Helper()
	var log bytes.Buffer
	var healed atomic.Int64
	rules := &ledgerRules{}
	p, err := tile.New(id, "a:1", seams, rules, &tile.Config{TickInterval: 5 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
		Hooks: tile.Hooks{Healed: func(i tile.HealInfo) {
			if i.Rebased {
				healed.Add(1)
			}
		}}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var want []string
	say := func(word string) {
		t.Helper()
		outcome, err := p.Submit(t.Context(), tile.Intent{Tile: id, ActionID: word, Body: []byte(word)})
		require.NoError(t, err, word)
		require.Equal(t, stream.Applied, outcome.Outcome)
		want = append(want, word)
	}
	say("first")
	for name, attack := range attacks {
		before := healed.Load()
		attack()
		for i := range 3 {
			say(fmt.Sprintf("after-%s-%d", strings.ReplaceAll(name, " ", "-"), i))
		}
		if name != atTheEnd { // Redis takes no entry at all: the tile is frozen, and goes on where it was
			assert.Equal(t, before+1, healed.Load(), "%s: visible as a rebase", name)
		}
	}
	say("first") // remembered: not applied again
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, want[:len(want)-1], rules.Words)
	assert.Contains(t, log.String(), "damaged")

	// What a successor finds.
	next := &ledgerRules{}
	p, err = tile.New(id, "b:1", seams, next, &tile.Config{TickInterval: 5 * time.Millisecond})
	require.NoError(t, err)
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	go func() { ended <- p.Run(ctx) }()
	waittest.Until(t, func() bool { return p.Status().State == tile.Serving }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, rules.Words, next.Words)
}

func TestALivingOwnerGoesOnAboveDamage(t *testing.T) {
	w := newWorld(t)
	d := &damaged{Store: w.store}
	survives(t, tile.Seams{Authority: w.authority, Store: d, Log: w.log}, testTile, map[string]func(){
		"an unreadable entry": func() { d.broken.Store(true) },
		"another":             func() { d.broken.Store(true) },
	})
}

func TestALivingOwnerGoesOnAboveDamageOnRedis(t *testing.T) {
	seams, client := onRedis(t)
	id := tileIDs(1)[0]
	k := fence.KeysOf(id)
	t.Cleanup(func() { client.Del(context.WithoutCancel(t.Context()), k.Owner, k.Stream, k.Snapshot, k.Marks) })
	last := func() uint64 {
		entries, err := client.XRevRangeN(t.Context(), k.Stream, "+", "-", 1).Result()
		require.NoError(t, err)
		var seq uint64
		_, err = fmt.Sscanf(entries[0].ID, "%d-0", &seq)
		require.NoError(t, err)
		return seq
	}
	foreign := func(id string, fields ...any) {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Stream, ID: id, Values: fields}).Err())
	}
	survives(t, seams, id, map[string]func(){
		"an unreadable entry": func() { foreign(fmt.Sprintf("%d-0", last()+1), stream.FrameField, "nonsense") },
		"a forged one": func() {
			c := fence.Commit{Tile: id, Epoch: 1 << 40, Contact: "evil:1", Tick: 1, Payload: []byte{0},
				Prev: fence.Position{Epoch: 1 << 40, Seq: fence.Seq(last())}}
			foreign(fmt.Sprintf("%d-0", last()+1), stream.FrameField, string(c.Entry().Frame))
		},
		"a foreign one": func() { foreign(fmt.Sprintf("%d-7", last()+1), "some", "thing") },
		"many": func() {
			n := last()
			for i := range uint64(50) {
				foreign(fmt.Sprintf("%d-0", n+1+i), "x", "y")
			}
		},
		// No rebase can go above these: the owner keeps its state until an operator has deleted the stream.
		atTheEnd: func() {
			foreign("18446744073709551615-18446744073709551615", "x", "y")
			operator(t, client, k.Stream)
		},
		"another type": func() {
			require.NoError(t, client.Set(t.Context(), k.Stream, "not a stream", 0).Err())
			operator(t, client, k.Stream)
		},
		"another type of owner": func() {
			require.NoError(t, client.Set(t.Context(), k.Owner, "no hash", 0).Err())
			operator(t, client, k.Owner)
		},
	})
}

const atTheEnd = "one at the end"

// operator deletes a key after a while.
func operator(t *testing.T, client *redis.ClusterClient, key string) {
	time.AfterFunc(200*time.Millisecond, func() { client.Del(context.WithoutCancel(t.Context()), key) })
}
