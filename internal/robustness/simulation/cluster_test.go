package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
)

const nodes = 3

// cluster is one shard of a coordination store: a master and two replicas, each with a copy of every tile.
// The master answers before its replicas know; a failover makes one of them the master with whatever it has.
// The old master may not know that it is one no longer, and answer until it learns.
type cluster struct {
	ttl     time.Duration
	mutant  Mutant
	observe func(fence.TileID, *tileCopy) // called with the lock held after each change of the master's copy

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	nodes  [nodes]*node
	master int
	reign  int // counts masters
	old    int // a node that takes itself for the master and is not; -1: none
}

// node is one server.
type node struct {
	tiles  map[fence.TileID]*tileCopy
	paused bool     // requests wait in its sockets
	down   bool     // connections are refused
	cut    bool     // it is a replica, and nothing reaches it
	inbox  []func() // requests that wait, run with the lock held
}

// tileCopy is a node's copy of one tile.
type tileCopy struct {
	memfence.State
	marks   memstream.Marks
	expires time.Time // of the owner hash
	version int
}

// owner is the owner hash as a client reads it; its epoch is zero for none.
func (t *tileCopy) owner(id fence.TileID) fence.Owner {
	if !t.Owner.Present() {
		return fence.Owner{Tile: id}
	}
	return t.Owner
}

func newCluster(ttl time.Duration, seed uint64, m Mutant) *cluster {
	c := &cluster{ttl: ttl, mutant: m, rng: rand.New(rand.NewPCG(seed, 7)), old: -1,
		observe: func(fence.TileID, *tileCopy) {}}
	for i := range c.nodes {
		c.nodes[i] = &node{tiles: map[fence.TileID]*tileCopy{}}
	}
	return c
}

// run executes a request on a node. The lock must be held.
func (c *cluster) run(n int, tile fence.TileID, write bool, f func(*tileCopy)) {
	if write && n == c.master {
		c.replicate()
	}
	t := c.copyOf(n, tile)
	version := t.version
	if t.Owner.Present() && !time.Now().Before(t.expires) {
		t.Owner = fence.Owner{}
		t.version++
	}
	f(t)
	if n == c.master && t.version != version {
		c.observe(tile, t)
	}
}

func (c *cluster) copyOf(n int, tile fence.TileID) *tileCopy {
	t := c.nodes[n].tiles[tile]
	if t == nil {
		t = &tileCopy{}
		c.nodes[n].tiles[tile] = t
	}
	return t
}

// replicate lets each replica catch up, or not, with what the master had before its next write.
func (c *cluster) replicate() {
	for i := range c.nodes {
		if c.follows(i) && !c.nodes[i].cut && c.rng.IntN(4) > 0 {
			c.sync(i)
		}
	}
}

// follows reports whether a node is one of the master's replicas, in contact or not.
func (c *cluster) follows(i int) bool {
	return i != c.master && i != c.old && !c.nodes[i].down
}

// sync gives a node the master's copies.
func (c *cluster) sync(i int) {
	for id, from := range c.nodes[c.master].tiles {
		to := c.copyOf(i, id)
		if to.version == from.version && len(to.Entries) == len(from.Entries) && to.Owner == from.Owner {
			continue
		}
		*to = *from
		to.Entries, to.marks = slices.Clone(from.Entries), from.marks.Clone()
	}
}

// reset gives a node the master's copies and nothing else.
func (c *cluster) reset(i int) {
	c.nodes[i].tiles = map[fence.TileID]*tileCopy{}
	c.sync(i)
}

// confirm asks the replicas of a node that took a write in a reign, and says how many there are and how
// many hold it now.
func (c *cluster) confirm(n, reign int) (got, want int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n != c.master || reign != c.reign {
		return 0, nodes - 1
	}
	for i := range c.nodes {
		if !c.follows(i) {
			continue
		}
		want++
		if c.nodes[i].cut {
			continue
		}
		if c.mutant != WaitSkipped {
			c.sync(i)
		}
		got++
	}
	if c.mutant == WaitSkipped {
		got = want
	}
	return got, want
}

// promote makes a replica the master. The other one follows it and forgets what it may have had beyond. The
// old master keeps its copies and, unless it is down, does not know.
func (c *cluster) promote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var candidates []int
	for i := range c.nodes {
		if c.follows(i) {
			candidates = append(candidates, i)
		}
	}
	was := c.master
	c.master = candidates[c.rng.IntN(len(candidates))]
	c.reign++
	if !c.nodes[was].down {
		c.old = was
	}
	c.nodes[c.master].cut = false
	for i := range c.nodes {
		if c.follows(i) {
			c.nodes[i].cut = false
			c.reset(i)
		}
	}
	tiles := c.nodes[c.master].tiles
	for _, id := range slices.Sorted(maps.Keys(tiles)) {
		c.observe(id, tiles[id])
	}
}

// rejoin makes a node that was down, or an old master, a replica.
func (c *cluster) rejoin(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[i]
	n.paused, n.down, n.cut, n.inbox = false, false, false, nil
	if c.old == i {
		c.old = -1
	}
	if i != c.master {
		c.reset(i)
	}
}

// pause stops a node: its callers wait.
func (c *cluster) pause(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i].paused = true
}

// wake continues a paused node: it answers first what has waited in its sockets.
func (c *cluster) wake(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[i]
	n.paused = false
	for _, request := range n.inbox {
		request()
	}
	n.inbox = nil
}

// set changes something of a node.
func (c *cluster) set(i int, f func(*node)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.nodes[i])
}

// deleteOwner removes a tile's owner hash from the master, as an operator may.
func (c *cluster) deleteOwner(tile fence.TileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run(c.master, tile, true, func(t *tileCopy) {
		t.Owner = fence.Owner{}
		t.version++
	})
}

// keep copies what the master has of a tile, but for the owner hash, which expires.
func (c *cluster) keep(tile fence.TileID) tileCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := *c.copyOf(c.master, tile)
	t.Owner, t.Entries, t.marks = fence.Owner{}, slices.Clone(t.Entries), t.marks.Clone()
	return t
}

// setBack makes every copy of a tile an older one.
func (c *cluster) setBack(tile fence.TileID, to tileCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.nodes {
		t := c.copyOf(i, tile)
		version := t.version + 1
		*t = to
		t.version, t.Entries, t.marks = version, slices.Clone(to.Entries), to.marks.Clone()
	}
	c.observe(tile, c.copyOf(c.master, tile))
}

// masterNow is the true master's index and its reign.
func (c *cluster) masterNow() (n, reign int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.master, c.reign
}
