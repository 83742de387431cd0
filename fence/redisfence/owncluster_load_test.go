package redisfence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// owner is a tile's, as a tick loop would be: each batch is presented until it is settled.
type owner struct {
	tile      fence.TileID
	last      fence.Position
	committed int // entries that the stream must have
}

// crowd lets the owners of many tiles commit side by side until the returned function is called.
func (b *breakable) crowd(owners []*owner) (progress func() int64, stop func()) {
	ctx, cancel := context.WithCancel(b.ctx())
	var count atomic.Int64
	var wg sync.WaitGroup
	for _, o := range owners {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c := follow(o.tile, 1, o.last)
				if n%10 == 0 {
					c.Replicas = fence.AllReplicas
				}
				o.last = b.settle(c).Position
				o.committed++
				count.Add(1)
			}
		})
	}
	return count.Load, sync.OnceFunc(func() { cancel(); wg.Wait() })
}

// owners founds so many tiles, with snapshots.
func (b *breakable) owners(n int) []*owner {
	b.Helper()
	owners := make([]*owner, n)
	for i := range owners {
		r := fence.Rebase{Tile: newTile(), Epoch: 1, Contact: "a:1", Seq: 1, Blob: []byte("state")}
		receipt, err := b.store.Rebase(b.Context(), r)
		require.NoError(b, err)
		owners[i] = &owner{tile: r.Tile, last: receipt.Position, committed: 1}
	}
	return owners
}

// verify checks that each tile has every batch that was settled, once and in order.
func (b *breakable) verify(owners []*owner) {
	b.Helper()
	for _, o := range owners {
		entries := b.entries(o.tile)
		require.NoError(b, fencetest.CheckHistory(o.tile, entries))
		require.Len(b, entries, o.committed)
		require.Equal(b, o.last, entries[len(entries)-1].Position)
	}
}

// more waits until so many more batches have been committed.
func (b *breakable) more(progress func() int64, n int64) {
	b.Helper()
	from := progress()
	waittest.Until(b, func() bool { return progress() >= from+n }, time.Minute, time.Millisecond)
}

// loadReplicaPaused: calls that wait for a replica which sleeps delay each other, and no other call.
func loadReplicaPaused(b *breakable) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: b.stack.CoordAddrs, ReadTimeout: 2 * time.Minute,
		ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{ConfirmTimeout: time.Minute,
		Persistence: redisfence.Volatile})
	require.NoError(b, err)
	tile, _ := b.founded()
	master, replica := b.serving(tile)
	tiles := b.foundedOn(master.Addr(), 22)
	waits, gathers, others := tiles[0], tiles[1], tiles[2:]
	_, err = store.Owner(b.Context(), tile) // so that no client asks the replica where the masters are
	require.NoError(b, err)
	b.pause(replica)

	commit := func(ctx context.Context, founder fence.Commit, replicas int) chan error {
		c := follow(founder.Tile, 1, founder.Next())
		c.Replicas = replicas
		answer := make(chan error, 1)
		go func() {
			_, err := store.Commit(ctx, c)
			answer <- err
		}()
		return answer
	}
	first := commit(b.Context(), waits, fence.AllReplicas)
	b.await("it is on the master", func() bool { return len(b.entries(waits.Tile)) == 2 })
	ctx, leave := context.WithCancel(b.Context())
	second := commit(ctx, gathers, fence.AllReplicas)
	for range 25 {
		var answers []chan error
		for i, c := range others {
			answers = append(answers, commit(b.Context(), c, 0))
			others[i] = follow(c.Tile, 1, c.Next())
		}
		for _, answer := range answers {
			require.NoError(b, <-answer)
		}
	}
	for _, answer := range []chan error{first, second} {
		select {
		case err := <-answer:
			require.Fail(b, "a commit was answered though its replica sleeps", "%v", err)
		default:
		}
	}
	// The second is still here: its caller may leave, and nothing is sent.
	leave()
	require.ErrorIs(b, <-second, fence.ErrNotApplied)
	require.NoError(b, replica.Signal(devstack.GoOn))
	require.NoError(b, <-first)
	require.NoError(b, <-commit(b.Context(), others[0], fence.AllReplicas))
	require.Len(b, b.entries(gathers.Tile), 1)
}

// loadFunctionsFlushed: the library vanishes while many tiles commit, and is loaded again as they do.
func loadFunctionsFlushed(b *breakable) {
	owners := b.owners(100)
	progress, stop := b.crowd(owners)
	defer stop()
	for range 20 {
		b.more(progress, 200)
		b.flushFunctions()
	}
	b.more(progress, 200)
	stop()
	b.verify(owners)
}

// loadSlotsMigrated: slots move to another master, key by key, while their tiles and many others commit.
func loadSlotsMigrated(b *breakable) {
	owners := b.owners(60)
	progress, stop := b.crowd(owners)
	defer stop()
	for _, o := range owners[:3] {
		b.more(progress, 200)
		m := b.migrate(o.tile)
		k := fence.KeysOf(o.tile)
		for _, key := range []string{k.Owner, k.Stream, k.Snapshot} {
			b.more(progress, 100)
			m.move(key)
		}
		b.more(progress, 100)
		m.finish()
		b.await("the client knows", func() bool {
			now, _ := b.serving(o.tile)
			return now.Addr() == m.to.Options().Addr
		})
	}
	b.more(progress, 200)
	stop()
	b.verify(owners)
}

// outcome is the answer to a call.
type outcome struct {
	commit  fence.Commit
	receipt fence.Receipt
	err     error
}

// loadMasterKilled: a master is killed while 1,000 calls on 200 tiles are on their way to it, and some of
// their callers leave. Each answer is true of the stream that the promoted replica has.
func loadMasterKilled(b *breakable) {
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const tiles, deep = 200, 5
	tile, _ := b.founded()
	master, replica := b.serving(tile)
	founders := b.foundedOn(master.Addr(), tiles)
	kill := tiles*deep + rng.Int64N(tiles*deep) // in the second round

	var answered atomic.Int64
	var outcomes []outcome
	for round := range 2 {
		batch := make([]outcome, 0, tiles*deep)
		var wg sync.WaitGroup
		for i := range founders {
			last := founders[i]
			for d := range deep { // each follows the one before it, and all are under way at once
				last = follow(last.Tile, 1, last.Next())
				last.Replicas = []int{0, fence.AllReplicas}[i%2]
				patience := 30 * time.Second
				if round == 1 && d > 0 && rng.IntN(5) == 0 {
					patience = time.Duration(rng.IntN(20_000)) * time.Microsecond
				}
				batch = append(batch, outcome{commit: last})
				o := &batch[len(batch)-1]
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(b.ctx(), patience)
					defer cancel()
					o.receipt, o.err = b.store.Commit(ctx, o.commit)
					for round == 0 && errors.Is(o.err, fence.ErrBehind) { // the one before it is on its way
						o.receipt, o.err = b.store.Commit(ctx, o.commit)
					}
					if answered.Add(1) == kill {
						assert.NoError(b, master.Signal(os.Kill))
					}
				})
			}
			founders[i] = last
		}
		wg.Wait()
		if round == 0 {
			for _, o := range batch {
				require.NoError(b, o.err)
			}
		}
		outcomes = append(outcomes, batch...)
	}
	b.await("the replica is promoted", func() bool {
		node, err := b.client.MasterForKey(b.Context(), fence.KeysOf(tile).Owner)
		return err == nil && node.Options().Addr == replica.Addr()
	})
	b.Logf("after %d answers: %v", kill, b.agree(outcomes))
	require.NoError(b, master.Restart(b.Context()))
	b.await("the killed master is back, as a replica", b.whole)
}

// agree checks the answers against the streams: confirmed is there, not applied and refused is
// not, and the rest may be either.
func (b *breakable) agree(outcomes []outcome) map[string]int {
	b.Helper()
	entries := map[fence.TileID][]fence.Entry{}
	counts := map[string]int{}
	for _, o := range outcomes {
		if entries[o.commit.Tile] == nil {
			entries[o.commit.Tile] = b.entries(o.commit.Tile)
			require.NoError(b, fencetest.CheckHistory(o.commit.Tile, entries[o.commit.Tile]))
		}
		there := slices.ContainsFunc(entries[o.commit.Tile],
			func(e fence.Entry) bool { return e.Position == o.commit.Next() })
		var refused *fence.RefusedError
		told := "unknown"
		switch {
		case o.err == nil && o.receipt.Replicas > 0:
			told = "confirmed"
			require.True(b, there, "%v was confirmed and is not there", o.commit.Next())
		case o.err == nil:
			told = "acknowledged"
		case errors.Is(o.err, fence.ErrNotApplied):
			told = "not applied"
			require.False(b, there, "%v was not applied, and is there: %v", o.commit.Next(), o.err)
		case errors.As(o.err, &refused):
			told = "refused"
			require.False(b, there, "%v was refused, and is there: %v", o.commit.Next(), o.err)
		case errors.Is(o.err, fence.ErrUnconfirmed):
			told = "unconfirmed"
		default:
			require.ErrorIs(b, o.err, fence.ErrUnknownOutcome)
		}
		if !there {
			told += ", absent"
		}
		counts[told]++
	}
	return counts
}
