package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// TestRandomFaults breaks everything around bridges that follow one another, at random, and then checks
// what they forwarded against what was committed.
func TestRandomFaults(t *testing.T) {
	for _, seed := range seed.Many(t, 40) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { randomFaults(t, seed) }) {
			break
		}
	}
}

// chaos is one random run.
type chaos struct {
	*rig
	rng     *rand.Rand
	tiles   []fence.TileID
	epoch   map[fence.TileID]fence.Epoch
	harsh   bool                  // tiles lose entries while no bridge runs
	forked  map[fence.TileID]bool // lost entries to a failover: what followed may overtake the bridge
	bridge  *bridge.Bridge
	stop    func()
	lives   []int // frames published before each bridge began
	mu      sync.Mutex
	dropped map[fence.TileID]map[fence.Position]bool
	gaps    map[fence.TileID]int
	shown   map[fence.TileID]fence.Epoch // the highest epoch that any owner hash has shown this bridge
	late    []string                     // frames of an epoch below that
}

func randomFaults(t *testing.T, seed uint64) {
	inBubble(t, func(t *testing.T, r *rig) {
		c := &chaos{rig: r, rng: rand.New(rand.NewPCG(seed, 1)), epoch: map[fence.TileID]fence.Epoch{},
			forked: map[fence.TileID]bool{}, dropped: map[fence.TileID]map[fence.Position]bool{},
			gaps: map[fence.TileID]int{}}
		r.log.alter, c.harsh = c.saw, c.rng.IntN(2) == 0
		for i := range fence.TileID(1 + c.rng.IntN(5)) {
			c.tiles = append(c.tiles, i+1)
			c.epoch[i+1] = 1
		}
		c.begin()
		for range 200 {
			c.step()
			time.Sleep(time.Duration(c.rng.IntN(60)) * ms)
		}
		r.log.breakOps()
		r.pub.set(nil)
		for _, tile := range c.tiles {
			r.commit(tile, c.epoch[tile], 1)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Zero(t, c.bridge.Stats().Failing)
		c.stop()
		c.check()
	})
}

// saw notes the epoch that a bridge reads. What it publishes from then on is of no lower one.
func (c *chaos) saw(chunk *stream.Chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown[chunk.Tile] = max(c.shown[chunk.Tile], chunk.Owner.Epoch)
}

// Publish implements fanout.Publisher. A bridge publishes what it has read, so it has seen the epoch before.
func (c *chaos) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	c.mu.Lock()
	for _, m := range messages {
		if e, err := fence.DecodeEntry(m.Data); err == nil && e.Epoch < c.shown[m.Tile] {
			c.late = append(c.late, fmt.Sprintf("tile %s: %s after epoch %d", m.Tile, e.Position, c.shown[m.Tile]))
		}
	}
	c.mu.Unlock()
	return c.pub.Publish(ctx, messages)
}

func (c *chaos) begin() {
	c.mu.Lock()
	c.shown = map[fence.TileID]fence.Epoch{} // the floor of the one before is not kept
	c.mu.Unlock()
	b, err := bridge.New(c.log, c, nil, c.tiles, bridge.Config{}.With(bridge.Tuning{
		Batch: 1 + c.rng.IntN(20),
		Dropped: func(d bridge.DropInfo) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.dropped[d.Tile] == nil {
				c.dropped[d.Tile] = map[fence.Position]bool{}
			}
			c.dropped[d.Tile][d.Position] = true
		},
		Gap: func(g bridge.GapInfo) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.gaps[g.Tile]++
		},
	}))
	require.NoError(c.t, err)
	c.lives = append(c.lives, len(c.pub.all()))
	c.bridge, c.stop = b, c.start(b)
}

func (c *chaos) step() {
	tile := c.tiles[c.rng.IntN(len(c.tiles))]
	switch op := c.rng.IntN(100); {
	case op < 55:
		c.commit(tile, c.epoch[tile], 1+c.rng.IntN(5))
	case op < 60:
		c.epoch[tile]++
		c.commit(tile, c.epoch[tile], 1)
	case op < 62:
		c.epoch[tile]++
		c.rebase(tile, c.epoch[tile], 1+fence.Seq(c.rng.IntN(50)))
	case op < 63:
		c.loseTail(tile)
	case op < 64:
		c.loseInstall(tile)
	case op < 72:
		c.pub.set(c.fault())
	case op < 80:
		c.pub.set(nil)
	case op < 84:
		all := []bridge.Op{bridge.OpResume, bridge.OpRead, bridge.OpMark}
		c.log.breakOps(all[c.rng.IntN(len(all))])
	case op < 90:
		c.log.breakOps()
	case op < 93:
		c.bridge.Wake(tile)
	case op < 97:
		c.trim(tile)
	default:
		if c.rng.IntN(2) == 0 {
			c.log.breakOps(bridge.OpMark) // as good as a crash
		}
		c.stop()
		c.log.breakOps()
		for _, tile := range c.tiles { // while none runs
			if c.harsh && c.rng.IntN(2) == 0 {
				c.loseTail(tile)
			}
		}
		c.begin()
	}
}

func (c *chaos) fault() func(context.Context, []fanout.Message) (int, error) {
	bad := c.tiles[c.rng.IntN(len(c.tiles))]
	switch c.rng.IntN(4) {
	case 0:
		return failWith(0, errDown)
	case 1:
		return func(_ context.Context, m []fanout.Message) (int, error) { return len(m) / 2, errDown }
	case 2:
		return func(_ context.Context, m []fanout.Message) (int, error) {
			if err := fateOf(m, bad); err != nil {
				return firstOf(m, bad), err
			}
			return -1, nil
		}
	}
	return func(ctx context.Context, _ []fanout.Message) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
}

// loseTail is a failover that loses the end of a stream. Its owner puts it back, or another one goes on.
func (c *chaos) loseTail(tile fence.TileID) {
	var lost []fence.Entry
	c.store.Update(tile, func(s *memfence.State) {
		keep := len(s.Entries) - 1 - c.rng.IntN(3)
		if !s.Owner.Present() || keep < 1 || s.Snapshot != nil && s.Snapshot.Seq > s.Entries[keep-1].Seq ||
			s.Entries[keep-1].Epoch != c.epoch[tile] {
			return
		}
		lost = append(lost, s.Entries[keep:]...)
		s.Entries = s.Entries[:keep:keep]
		s.Owner.Position = s.Entries[keep-1].Position
		c.heads[tile] = s.Owner.Position
	})
	if len(lost) == 0 {
		return
	}
	c.forked[tile] = true
	if c.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(c.rng.IntN(300)) * ms)
		c.store.Update(tile, func(s *memfence.State) {
			s.Entries = append(s.Entries, lost...)
			s.Owner.Position = lost[len(lost)-1].Position
			c.heads[tile] = s.Owner.Position
		})
		return
	}
	c.epoch[tile]++
	c.commit(tile, c.epoch[tile], 1)
}

// loseInstall is a failover to a replica that was not counted and lacks the newest owner. The owner before goes on
// there, until a third comes. Watchers have been shown the one that is gone.
func (c *chaos) loseInstall(tile fence.TileID) {
	var before fence.Position
	c.store.Update(tile, func(s *memfence.State) {
		keep := slices.IndexFunc(s.Entries, func(e fence.Entry) bool { return e.Epoch == c.epoch[tile] })
		if !s.Owner.Present() || keep < 1 || s.Snapshot != nil && s.Snapshot.Seq > s.Entries[keep-1].Seq ||
			s.Entries[keep].Kind == fence.KindRebase {
			return
		}
		before = s.Entries[keep-1].Position
		s.Entries = s.Entries[:keep:keep]
		s.Owner.Epoch, s.Owner.Position = before.Epoch, before
	})
	if before.IsZero() {
		return
	}
	c.forked[tile], c.heads[tile] = true, before
	c.commit(tile, before.Epoch, 1+c.rng.IntN(5))
	time.Sleep(time.Duration(c.rng.IntN(300)) * ms)
	c.epoch[tile]++
	c.commit(tile, c.epoch[tile], 1)
}

// trim takes a snapshot and removes what no consumer needs.
func (c *chaos) trim(tile fence.TileID) {
	if _, ok := c.mark(tile, bridgeAcked); !ok {
		return // no bridge has said yet that it reads this tile
	}
	err := c.store.SaveSnapshot(context.Background(),
		fence.SnapshotWrite{Tile: tile, Position: c.heads[tile], Tick: c.ticks, Blob: []byte("s")})
	if err != nil {
		return // nothing committed yet
	}
	_, err = c.log.Log.Trim(context.Background(), stream.TrimRequest{Tile: tile, Lease: time.Hour})
	require.NoError(c.t, err)
}

// check compares what was forwarded with the streams.
func (c *chaos) check() {
	require.Empty(c.t, c.late, "what an earlier owner wrote is not forwarded once a later one was shown")
	frames := c.pub.all()
	got := map[fence.TileID]map[fence.Position]bool{}
	for i, begin := range c.lives {
		end := len(frames)
		if i+1 < len(c.lives) {
			end = c.lives[i+1]
		}
		last := map[fence.TileID]fence.Position{}
		for _, f := range frames[begin:end] {
			before := last[f.Tile]
			require.GreaterOrEqual(c.t, f.Epoch, before.Epoch, "epochs never go back")
			if f.Epoch == before.Epoch {
				require.Greater(c.t, f.Seq, before.Seq, "in order, and once")
			}
			last[f.Tile] = f.Position
			if got[f.Tile] == nil {
				got[f.Tile] = map[fence.Position]bool{}
			}
			got[f.Tile][f.Position] = true
			require.NoError(c.t, f.Verify())
		}
	}
	for _, tile := range c.tiles {
		if c.forked[tile] {
			c.checkForked(tile, got[tile])
			continue
		}
		require.Zero(c.t, c.gaps[tile], "nothing was trimmed that had not been read")
		for _, p := range c.past[tile] {
			require.True(c.t, got[tile][p] || c.dropped[tile][p], fmt.Sprintf("tile %s lost %s", tile, p))
		}
		require.True(c.t, got[tile][c.heads[tile]], "the last is forwarded")
	}
}

// checkForked: after failovers that lost entries, all that is in the stream now went through, from its last rebase on.
// A bridge that begins later knows by its predecessor's mark what that one had read.
func (c *chaos) checkForked(tile fence.TileID, got map[fence.Position]bool) {
	c.store.Update(tile, func(s *memfence.State) {
		for _, e := range slices.Backward(s.Entries) {
			p := e.Position
			require.True(c.t, got[p] || c.dropped[tile][p], fmt.Sprintf("tile %s lost %s", tile, p))
			if e.Kind == fence.KindRebase {
				return
			}
		}
	})
}

// TestConcurrentUse calls everything at once, in real time, for the race detector.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t)
	const tiles = 20
	b, stop := r.run(bridge.Config{MarkEvery: 5 * ms}.With(bridge.Tuning{MinPoll: time.Millisecond,
		MaxPoll: 2 * ms, RetryMin: ms, RetryMax: 2 * ms}), 1)
	var mu sync.Mutex // of the rig's bookkeeping
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 0))
			for range 200 {
				tile := fence.TileID(1 + rng.IntN(tiles))
				switch rng.IntN(6) {
				case 0:
					_ = b.Add(tile)
				case 1:
					b.Remove(tile)
				case 2:
					b.Wake(tile)
				case 3:
					_ = b.Stats()
				case 4:
					r.pub.set(failWith(0, errDown))
				default:
					r.pub.set(nil)
					mu.Lock()
					r.commit(tile, 1, 1)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	r.pub.set(nil)
	for tile := range fence.TileID(tiles) {
		require.NoError(t, b.Add(tile+1))
	}
	waittest.Until(t, func() bool {
		for tile := range fence.TileID(tiles) {
			seqs := r.pub.seqs(tile + 1)
			if n := r.heads[tile+1].Seq; n > 0 && (len(seqs) == 0 || seqs[len(seqs)-1] != n) {
				return false
			}
		}
		return true
	}, 20*time.Second, 5*ms)
	stop()
	for tile := range fence.TileID(tiles) {
		acked, _ := r.mark(tile+1, stream.BridgeAcked)
		require.Equal(t, r.heads[tile+1].Seq, acked.Seq)
	}
}
