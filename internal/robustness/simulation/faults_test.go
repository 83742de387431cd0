package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// breaker breaks one kind of thing at a time.
type breaker struct {
	*world
	rng *rand.Rand
}

// fault is one thing that can go wrong. It returns when it is over.
type fault struct {
	name     string
	failover bool
	cause    func(ctx context.Context)
}

// run causes faults until ctx ends, one after the other.
func (b *breaker) run(ctx context.Context, faults []fault) {
	for b.rest(ctx, 200*time.Millisecond, 3*time.Second) {
		f := faults[b.rng.IntN(len(faults))]
		b.recorder.Fault(history.FaultInfo{Name: f.name, Failover: f.failover})
		b.count(f.name)
		f.cause(ctx)
		b.recorder.Fault(history.FaultInfo{Name: f.name, Failover: f.failover, Over: true})
	}
}

// rest waits between least and most; false once ctx has ended.
func (b *breaker) rest(ctx context.Context, least, most time.Duration) bool {
	return sleep(ctx, least+time.Duration(b.rng.Int64N(int64(most-least)))) == nil
}

// storeFaults are what happens to the coordination store.
func (b *breaker) storeFaults(calm bool) []fault {
	all := []fault{
		{"kill master", true, b.killMaster},
		{"pause master", true, b.pauseMaster},
		{"isolate master", true, func(ctx context.Context) { b.isolateMaster(ctx, func() {}) }},
		{"release a tile that an isolated master has an owner of", true, func(ctx context.Context) {
			b.isolateMaster(ctx, func() { b.drainOwner(ctx) })
		}},
		{"cut a replica, then kill master", true, func(ctx context.Context) {
			b.cutReplicas(ctx)
			b.killMaster(ctx)
		}},
		{"lose the tail and an owner", true, b.loseTailAndOwner},
		{"cut replicas", false, func(ctx context.Context) {
			b.cutReplicas(ctx)
			b.rest(ctx, 0, 2*time.Second)
			b.mendReplicas()
		}},
		{"pause master for a moment", false, func(ctx context.Context) {
			m, _ := b.cluster.masterNow()
			b.cluster.pause(m)
			b.rest(ctx, 10*time.Millisecond, time.Second)
			b.cluster.wake(m)
		}},
		{"delete owner keys", false, func(context.Context) {
			for _, id := range b.tiles {
				b.cluster.deleteOwner(id)
			}
		}},
	}
	return slices.DeleteFunc(all, func(f fault) bool { return calm && f.failover })
}

// promote gives the master a successor.
func (b *breaker) promote() {
	b.recorder.Fault(history.FaultInfo{Name: "a replica is promoted", Failover: true})
	b.cluster.promote()
}

func (b *breaker) killMaster(ctx context.Context) {
	m, _ := b.cluster.masterNow()
	b.cluster.set(m, func(n *node) { n.down = true })
	b.rest(ctx, 300*time.Millisecond, 2*time.Second)
	b.promote()
	b.rest(ctx, 0, 3*time.Second)
	b.cluster.rejoin(m)
}

// pauseMaster lets a master sleep until it has a successor. When it wakes it first does what it was asked
// before, and goes on answering until it learns.
func (b *breaker) pauseMaster(ctx context.Context) {
	m, _ := b.cluster.masterNow()
	b.cluster.pause(m)
	b.rest(ctx, 300*time.Millisecond, 2*time.Second)
	b.promote()
	b.rest(ctx, 0, 5*time.Second)
	b.recorder.Fault(history.FaultInfo{Name: "old master wakes", Failover: true})
	b.cluster.wake(m)
	b.rest(ctx, 0, 2*time.Second)
	b.cluster.rejoin(m)
}

// isolateMaster gives the master a successor while some clients still reach it, and calls meanwhile. Gateways that run
// now reach no other, and what an owner sends it before may come while they ask it.
func (b *breaker) isolateMaster(ctx context.Context, meanwhile func()) {
	if m := b.market; m != nil {
		for _, c := range m.counters {
			if g, open := c.open(); open {
				g.host.part(true)
				defer g.host.part(false)
			}
		}
	}
	m, _ := b.cluster.masterNow()
	b.cutReplicas(ctx)
	if c := b.server(b.tile()); c != nil && b.rng.IntN(2) == 0 {
		c.host.slowDown(true)
		defer c.host.slowDown(false)
	}
	b.rest(ctx, 300*time.Millisecond, 2*time.Second)
	b.promote()
	b.rest(ctx, 0, 3*time.Second)
	meanwhile()
	b.cluster.rejoin(m)
}

// loseTailAndOwner kills a master that its replicas have not heard of for a while, and an owner that could have
// appended again what they lack.
func (b *breaker) loseTailAndOwner(ctx context.Context) {
	b.cut(ctx, true)
	b.rest(ctx, 0, 3*time.Second)
	id := b.tile()
	b.crash(b.someClaimant(id))
	b.killMaster(ctx)
	b.start(id, func(*tile.Config) {})
}

// cutReplicas stops replication to one replica or both.
func (b *breaker) cutReplicas(ctx context.Context) { b.cut(ctx, b.rng.IntN(2) == 0) }

func (b *breaker) cut(ctx context.Context, both bool) {
	m, _ := b.cluster.masterNow()
	for i := range nodes {
		if i != m {
			b.cluster.set(i, func(n *node) { n.cut = true })
			if !both {
				break
			}
		}
	}
	b.rest(ctx, 100*time.Millisecond, 2*time.Second)
}

func (b *breaker) mendReplicas() {
	for i := range nodes {
		b.cluster.set(i, func(n *node) { n.cut = false })
	}
}

// ownerFaults are what happens to claimants and to the authority.
func (b *breaker) ownerFaults(o *Options) []fault {
	faults := []fault{
		{"take over", false, func(context.Context) { b.start(b.tile(), func(*tile.Config) {}) }},
		{"follow", false, func(context.Context) { b.follow() }},
		{"follower ordered to take over", false, func(context.Context) { b.order() }},
		{"kill owner", false, b.killOwner},
		{"pause owner", false, func(ctx context.Context) { b.pauseOwner(ctx, false) }},
		{"pause owner and take over", false, func(ctx context.Context) { b.pauseOwner(ctx, true) }},
		{"drain owner", false, b.drainOwner},
		{"hand over", false, b.handOver},
		{"twin of the owner", false, b.twin},
		{"claimant lost after its mint", false, b.loseClaimant},
		{"authority unreachable", false, func(ctx context.Context) {
			b.registry.setDown(true)
			b.rest(ctx, 200*time.Millisecond, 3*time.Second)
			b.registry.setDown(false)
		}},
	}
	if o.Loses {
		faults = append(faults, fault{"every copy lost while owners sleep", true, b.loseEveryCopy})
	}
	if o.Restores {
		faults = append(faults, fault{"authority restored", false, b.restoreAuthority},
			fault{"owner wakes behind an older standby", false, b.olderStandby},
			fault{"epoch granted twice", false, b.grantTwice})
	}
	return faults
}

func (b *breaker) tile() fence.TileID { return b.tiles[b.rng.IntN(len(b.tiles))] }

// someClaimant is mostly the one that serves.
func (b *breaker) someClaimant(id fence.TileID) *claimant {
	living := b.living(id)
	if len(living) == 0 {
		return b.start(id, func(*tile.Config) {})
	}
	if s := b.server(id); s != nil && b.rng.IntN(4) > 0 {
		return s
	}
	return living[b.rng.IntN(len(living))]
}

// follow starts a warm follower of a tile that has none. It takes over by itself when the owner becomes silent.
func (b *breaker) follow() {
	id := b.tile()
	if b.follower(id) == nil {
		b.startFollower(id)
	}
}

func (b *breaker) startFollower(id fence.TileID) {
	b.start(id, func(c *tile.Config) { c.TakeOver, c.Follow, c.SuspectAfter = false, true, ownerTTL/2 })
}

// order makes a follower take its tile over from a living owner.
func (b *breaker) order() {
	if f := b.follower(b.tile()); f != nil {
		f.TakeOver(tile.Ordered)
	}
}

func (b *breaker) killOwner(ctx context.Context) {
	id := b.tile()
	b.crash(b.someClaimant(id))
	b.rest(ctx, 0, 2*time.Second)
	b.start(id, func(*tile.Config) {})
}

// pauseOwner stops a claimant, sometimes for longer than its owner hash lives.
func (b *breaker) pauseOwner(ctx context.Context, takeOver bool) {
	id := b.tile()
	c := b.someClaimant(id)
	c.host.pause()
	b.rest(ctx, 100*time.Millisecond, ownerTTL)
	if takeOver {
		b.start(id, func(*tile.Config) {})
	}
	b.rest(ctx, 100*time.Millisecond, ownerTTL)
	c.host.resume()
}

func (b *breaker) drainOwner(ctx context.Context) {
	id := b.tile()
	c := b.someClaimant(id)
	c.stop()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	if b.rng.IntN(2) == 0 {
		b.rest(ctx, 0, 4*time.Second) // it has no owner meanwhile, or its follower does
	}
	b.start(id, func(*tile.Config) {})
}

// handOver has an owner hand its tile over to a follower.
func (b *breaker) handOver(ctx context.Context) {
	id := b.tile()
	if b.follower(id) == nil {
		b.startFollower(id)
		b.rest(ctx, 500*time.Millisecond, time.Second)
	}
	c, f := b.server(id), b.follower(id)
	if c == nil || f == nil || c.contact == f.contact {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTTL)
	defer cancel()
	_ = c.Drain(ctx, f.contact) // whether it went, and how, the history tells
}

// twin presents a batch under the owner's own epoch that follows a place with the right epoch and sequence in
// another history: what a second claimant of that epoch would do, or the owner's machine restored to an earlier
// moment, after a node that is dead by now took another batch there.
func (b *breaker) twin(context.Context) {
	id := b.tile()
	var last fence.Position
	var contact string
	b.cluster.mu.Lock()
	b.cluster.run(b.cluster.master, id, false, func(t *tileCopy) { last, contact = t.Last(), t.Owner.Contact })
	b.cluster.mu.Unlock()
	if contact == "" || last.Seq == 0 {
		return
	}
	h := newHost(b.net, fmt.Sprintf("twin of %s", last), b.seed)
	h.route, _ = b.cluster.masterNow()
	ctx, cancel := context.WithTimeout(context.Background(), tickInterval)
	defer cancel()
	last.Chain++
	s := b.recorder.Store("twin of "+contact, &store{cluster: b.cluster, host: h})
	_, _ = s.Commit(ctx, fence.Commit{Tile: id, Epoch: last.Epoch, Contact: contact, Prev: last, Install: true})
}

// loseClaimant has the authority grant a tile to a process that dies before its install.
func (b *breaker) loseClaimant(ctx context.Context) {
	id := b.tile()
	h := newHost(b.net, fmt.Sprintf("lost claimant of %s %d", id, b.registry.current(id).Epoch), b.seed)
	a := b.recorder.Authority(h.name, &authority{registry: b.registry, host: h})
	_, _ = a.Promote(ctx, fence.Claim{Tile: id, Contact: "lost:7000", ID: fence.NewClaimID(),
		Expected: b.registry.current(id).Epoch})
}

// restoreAuthority puts a tile's row back to one of its last.
func (b *breaker) restoreAuthority(context.Context) {
	id := b.tile()
	row, ok := b.registry.older(id, b.rng, 3)
	if !ok {
		return
	}
	b.putBack(id, row)
}

func (b *breaker) putBack(id fence.TileID, row history.Grant) {
	done := b.recorder.Restored("campaign", id, row)
	b.registry.restore(id, row)
	done()
}

// olderStandby pauses an owner, lets another take the tile over, and promotes a standby of the authority that lacks
// the take-over. When the owner wakes, the authority says that the tile is its own, and its successor serves, or has
// died and left what it committed.
func (b *breaker) olderStandby(ctx context.Context) {
	id := b.tile()
	c := b.server(id)
	if c == nil {
		return
	}
	row := b.registry.current(id)
	c.host.pause()
	later := b.start(id, func(*tile.Config) {})
	b.rest(ctx, time.Second, ownerTTL)
	b.putBack(id, row)
	if b.rng.IntN(3) == 0 {
		b.crash(later)
	}
	c.host.resume()
	b.rest(ctx, 10*tickInterval, 20*tickInterval)
	if c.ended() && later.Status().State == tile.Serving {
		b.mu.Lock()
		b.stats.LeftAlone++
		b.mu.Unlock()
	}
}

// grantTwice restores the authority twice. An owner whose hash is gone, and whom the authority has forgotten, is
// granted its next epoch, and sleeps before it can use it. The authority forgets that too, and grants the epoch to
// another process, which serves. It has died, and its hash may have expired, when the first one wakes and writes under
// the epoch, which the authority says is its own.
func (b *breaker) grantTwice(ctx context.Context) {
	id := b.tile()
	c, was := b.server(id), b.registry.current(id)
	older, ok := b.registry.older(id, b.rng, 3)
	if c == nil || !ok || older.Epoch >= was.Epoch {
		return
	}
	var own history.Grant // guarded by the registry's lock
	b.registry.note(id, func(g history.Grant) {
		if own.Epoch == 0 && g.Contact == c.contact && g.Epoch > was.Epoch {
			own = g
			c.host.pause() // the grant is on its way
		}
	})
	b.putBack(id, older)
	b.cluster.deleteOwner(id)
	b.rest(ctx, 10*tickInterval, 20*tickInterval)
	b.registry.note(id, nil)
	if own.Epoch == 0 {
		return
	}
	b.putBack(id, older)
	later := b.start(id, func(*tile.Config) {})
	b.rest(ctx, time.Second, ownerTTL)
	twin := later.Status().State == tile.Serving && later.Status().Epoch == own.Epoch
	b.crash(later)
	if b.rng.IntN(3) > 0 {
		b.cluster.deleteOwner(id)
	}
	b.putBack(id, own)
	c.host.resume()
	b.rest(ctx, 10*tickInterval, 20*tickInterval)
	if twin {
		b.mu.Lock()
		b.stats.Twins++
		b.mu.Unlock()
	}
}

// loseEveryCopy lets an owner and its successors sleep, sets every copy of their tile back to what the last of them had
// committed a while before, and mostly the authority to the first. Then all of them wake, one after the other, and
// sometimes another claimant comes before. Or the successors die, the copies are set back to the first owner's, and it
// wakes alone, below a checkpoint of theirs.
func (b *breaker) loseEveryCopy(ctx context.Context) {
	id := b.tile()
	c, row, before := b.server(id), b.registry.current(id), tileCopy{}
	if c == nil || c.Status().State != tile.Serving {
		return
	}
	c.host.pause()
	asleep := []*claimant{c}
	alone := b.rng.IntN(2) == 0
	if alone {
		before = b.cluster.keep(id)
	}
	for range 1 + b.rng.IntN(2) {
		later := b.start(id, func(*tile.Config) {})
		b.rest(ctx, time.Second, ownerTTL)
		if alone {
			continue
		}
		before = b.cluster.keep(id)
		if b.rng.IntN(3) > 0 { // no journal has what comes now
			b.silent.Store(uint64(id))
			b.rest(ctx, 5*tickInterval, 20*tickInterval)
		} else {
			b.rest(ctx, 0, 10*tickInterval)
		}
		later.host.pause()
		b.silent.Store(0)
		asleep = append(asleep, later)
	}
	for _, later := range b.living(id) {
		if alone && later != c {
			// It began above what is left. If it lived, it would take another owner's history for its own past, which
			// is the first limit in docs/robustness.md.
			b.crash(later)
		}
	}
	b.cluster.setBack(id, before)
	b.recorder.Fault(history.FaultInfo{Name: "every copy is lost", Failover: true, Loses: true})
	if b.rng.IntN(3) > 0 {
		b.putBack(id, row)
	}
	if b.rng.IntN(2) == 0 {
		b.start(id, func(*tile.Config) {})
		b.rest(ctx, time.Second, ownerTTL)
	}
	b.rng.Shuffle(len(asleep), func(i, j int) { asleep[i], asleep[j] = asleep[j], asleep[i] })
	for _, c := range asleep {
		c.host.resume()
		_ = sleep(context.Background(), time.Duration(5+b.rng.IntN(15))*tickInterval)
	}
}
