package tile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestChaos runs several tiles on several machines, each of which owns or follows every tile, through machines that
// lose messages, stop, are cut off and die, through hand-overs and through owner hashes that are gone. No history
// may ever be rewritten, every action has one outcome and is in the history once, and in the end everybody has
// the same state. The seed reruns the same faults at the same times; how goroutines interleave between two
// instants stays the scheduler's.
func TestChaos(t *testing.T) {
	met := map[string]int{}
	for _, seed := range seed.Many(t, 8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed)
				c.run()
				for fault, n := range c.met {
					met[fault] += n
				}
			})
		})
	}
	t.Logf("met: %v", met)
}

// machine is a process with a processor for each tile. All share its line.
type machine struct {
	contact string
	line    *line

	mu    sync.Mutex
	dead  bool
	tiles map[fence.TileID]*process
}

func (m *machine) on(id fence.TileID) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tiles[id]
}

func (m *machine) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// chaos is one run.
type chaos struct {
	*testing.T
	w       *world
	rng     *rand.Rand // the run's own goroutine only
	seed    uint64
	tiles   []fence.TileID
	met     map[string]int
	running sync.WaitGroup // machines
	ctx     context.Context
	stop    context.CancelFunc

	mu       sync.Mutex
	machines []*machine
	born     int
	seen     map[fence.TileID]map[fence.Seq]fence.Position
}

const chaosMachines = 3

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{T: t, w: newWorld(t), rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, met: map[string]int{},
		tiles: []fence.TileID{testTile, testTile + 1<<30,
			testTile + 2<<30}, seen: map[fence.TileID]map[fence.Seq]fence.Position{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { // also of a run that failed: the bubble ends when all have ended
		c.stop()
		for _, m := range c.all() {
			c.heal(m)
		}
		c.running.Wait()
	})
	for range chaosMachines {
		c.boot()
	}
	return c
}

func (c *chaos) all() []*machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*machine(nil), c.machines...)
}

// boot starts a machine that follows every tile.
func (c *chaos) boot() *machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.born++
	m := &machine{contact: fmt.Sprintf("m%d", c.born), tiles: map[fence.TileID]*process{},
		line: &line{w: c.w, rng: rand.New(rand.NewPCG(c.seed, uint64(100+c.born)))}}
	c.machines = append(c.machines, m)
	for i, id := range c.tiles {
		rng := rand.New(rand.NewPCG(c.seed, uint64(1000*c.born+i)))
		c.running.Go(func() { c.keep(m, id, rng) })
	}
	return m
}

// keep runs a tile on a machine for as long as that lives: who was superseded, or has handed over, follows again.
func (c *chaos) keep(m *machine, id fence.TileID, rng *rand.Rand) {
	cfg := tile.Config{Follow: true, SnapshotEvery: 9, Handover: c.handOver(rng)}
	for c.ctx.Err() == nil && !m.isDead() {
		p := c.w.processOn(m.line, id, m.contact, cfg)
		m.mu.Lock()
		m.tiles[id] = p
		m.mu.Unlock()
		select {
		case <-p.done:
		case <-c.ctx.Done():
			p.stop()
			<-p.done
		}
		if err := p.err; err != nil && !errors.Is(err, tile.ErrSuperseded) && !m.isDead() {
			assert.NoError(c, err, "%s on %s", id, m.contact)
		}
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
}

// handOver asks another machine, whose answer is lost one time in four.
func (c *chaos) handOver(rng *rand.Rand) func(context.Context, tile.Handover) error {
	var mu sync.Mutex // a call that was given up goes on beside the next
	own := rand.New(rand.NewPCG(rng.Uint64(), 2))
	lost := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return own.IntN(4) == 0
	}
	return func(ctx context.Context, h tile.Handover) error {
		for _, m := range c.all() {
			if p := m.on(h.Tile); m.contact == h.To && p != nil {
				err := p.accept(ctx, h)
				if lost() {
					err = errors.New("connection reset")
				}
				return err
			}
		}
		return errors.New("no such host")
	}
}

// heal makes everything right with a machine's line.
func (c *chaos) heal(m *machine) {
	m.line.set(func(l *line) {
		if l.paused != nil {
			close(l.paused)
			l.paused = nil
		}
		if !m.isDead() {
			l.store, l.authority, l.rate = false, false, 0
		}
	})
}

// kill ends a machine as a power cut does: what it sent and is still under way may arrive, and nothing else.
func (c *chaos) kill(m *machine) {
	m.mu.Lock()
	m.dead = true
	dying := make([]*process, 0, len(m.tiles))
	for _, p := range m.tiles {
		dying = append(dying, p)
	}
	m.mu.Unlock()
	m.line.set(func(l *line) { l.store, l.authority = true, true })
	c.heal(m)
	for _, p := range dying {
		p.stop()
	}
	c.mu.Lock()
	for i := range c.machines {
		if c.machines[i] == m {
			c.machines = append(c.machines[:i:i], c.machines[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
}

// any is a machine chosen at random.
func (c *chaos) any() *machine {
	all := c.all()
	return all[c.rng.IntN(len(all))]
}

// fault does something to somebody.
func (c *chaos) fault() {
	m, id := c.any(), c.tiles[c.rng.IntN(len(c.tiles))]
	wait := time.Duration(c.rng.IntN(5000)) * time.Millisecond
	switch what := c.rng.IntN(8); what {
	case 0, 1:
		c.met["lossy line"]++
		m.line.set(func(l *line) { l.rate = 5 })
	case 2:
		c.met["pause"]++
		m.line.set(func(l *line) {
			if l.paused == nil {
				l.paused = make(chan struct{})
			}
		})
	case 3:
		c.met["cut off from the store"]++
		m.line.set(func(l *line) { l.store = true })
	case 4:
		c.met["cut off from the authority"]++
		m.line.set(func(l *line) { l.authority = true })
	case 5:
		c.met["power cut"]++
		c.kill(m)
		time.Sleep(wait)
		c.boot()
	case 6:
		c.met["owner hash gone"]++
		c.w.store.Update(id, func(s *memfence.State) { s.Owner = fence.Owner{} })
	case 7:
		if o := c.owner(id); o != nil && o != m {
			ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
			if o.on(id).Drain(ctx, m.contact) == nil {
				c.met["hand-over"]++
			}
			cancel()
		}
	}
	time.Sleep(wait)
	if c.rng.IntN(2) == 0 {
		c.heal(m)
	}
}

// owner is the machine that says it serves a tile; nil if none does.
func (c *chaos) owner(id fence.TileID) (owner *machine) {
	for _, m := range c.all() {
		if p := m.on(id); p != nil && p.Status().State == tile.Serving {
			owner = m
		}
	}
	return owner
}

// check requires that the streams are whole, and that no entry has been replaced since it was first seen. Nothing
// here loses what the store has, so that must hold at every moment.
func (c *chaos) check() {
	for _, id := range c.tiles {
		var entries []fence.Entry
		c.w.store.Update(id, func(s *memfence.State) { entries = append(entries, s.Entries...) })
		require.NoError(c, fencetest.CheckHistory(id, entries))
		if c.seen[id] == nil {
			c.seen[id] = map[fence.Seq]fence.Position{}
		}
		for i := range entries {
			at := entries[i].Position
			if before, ok := c.seen[id][at.Seq]; ok {
				require.Equal(c, before, at, "an entry was replaced")
			}
			c.seen[id][at.Seq] = at
		}
	}
}

// chaosPlayers act on one tile until they are told to stop; each action is retried until it has an outcome.
type chaosPlayers struct {
	running sync.WaitGroup
	stopped chan struct{}
	mu      sync.Mutex
	done    map[string]int
}

func (c *chaos) play(id fence.TileID, n int) *chaosPlayers {
	l := &chaosPlayers{stopped: make(chan struct{}), done: map[string]int{}}
	for i := range n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(id)+uint64(i)))
		l.running.Go(func() {
			for k := 0; c.ctx.Err() == nil; k++ {
				select {
				case <-l.stopped:
					return
				case <-time.After(time.Duration(rng.IntN(400)) * time.Millisecond):
				}
				word := fmt.Sprintf("%d.%d", i, k)
				if c.act(id, word, rng) {
					l.mu.Lock()
					l.done[word]++
					l.mu.Unlock()
				}
			}
		})
	}
	c.Cleanup(func() {
		c.stop()
		l.running.Wait()
	})
	return l
}

// act sends an action to the process that is said to own the tile, until it has an outcome.
func (c *chaos) act(id fence.TileID, word string, rng *rand.Rand) bool {
	contact := ""
	for c.ctx.Err() == nil {
		all := c.all()
		at := all[rng.IntN(len(all))]
		for _, m := range all {
			if m.contact == contact {
				at = m
			}
		}
		contact = ""
		if p := at.on(id); p != nil {
			ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
			o, err := p.Submit(ctx, tile.Intent{Tile: id, ActionID: word, Body: []byte(word)})
			cancel()
			if err == nil {
				assert.Equal(c, stream.Applied, o)
				return true
			}
			var away *tile.RedirectError
			if errors.As(err, &away) {
				contact = away.Contact
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

func (c *chaos) run() {
	time.Sleep(time.Second)
	players := map[fence.TileID]*chaosPlayers{}
	for i, id := range c.tiles {
		c.all()[i%chaosMachines].on(id).TakeOver(tile.Ordered)
		players[id] = c.play(id, 3)
	}
	time.Sleep(time.Second) // a tile that nobody has begun would be waited for
	for range 30 {
		c.fault()
		c.check()
	}
	for _, m := range c.all() {
		c.heal(m)
	}
	for range 10 {
		time.Sleep(3 * time.Second)
		c.check()
	}
	for _, l := range players {
		close(l.stopped)
	}
	time.Sleep(time.Minute)
	for _, id := range c.tiles {
		for _, m := range c.all() {
			s := m.on(id).Status()
			c.Logf("%s on %s: %s epoch %d, pending %v, queued %d, at %s, owner %s", id, m.contact, s.State, s.Epoch,
				s.Pending, s.Queued, s.Position, s.Owner.Contact)
		}
		require.NotNil(c, c.owner(id), "nobody serves %s", id)
	}
	for _, l := range players {
		l.running.Wait()
	}
	time.Sleep(10 * time.Second)
	c.check()
	for _, id := range c.tiles {
		c.settled(id, players[id])
	}
}

// settled requires that one machine serves the tile, that all have the state that the store has, and that it is
// made of the actions that have an outcome, each once.
func (c *chaos) settled(id fence.TileID, l *chaosPlayers) {
	history := c.w.historyOf(id)
	count := map[string]int{}
	for _, word := range history {
		count[word]++
	}
	require.Equal(c, l.done, count, "%s", id)
	require.Greater(c, len(count), 30, "%s was hardly played", id)
	owner := c.owner(id)
	require.NotNil(c, owner, "nobody serves %s", id)
	err := owner.on(id).Inspect(c.ctx, func(r tile.Rules, _ fence.Position) {
		assert.Equal(c, history, append([]string(nil), r.(*ledgerRules).Words...))
	})
	require.NoError(c, err)
	for _, m := range c.all() {
		if m == owner {
			continue
		}
		p := m.on(id)
		require.Equal(c, tile.Following, p.Status().State, "%s on %s", id, m.contact)
		p.stop()
		<-p.done
		require.Equal(c, history, p.rules.Words, "follower of %s on %s", id, m.contact)
	}
}
