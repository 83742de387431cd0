package fencetest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
)

// storeModel makes random calls, right ones and wrong ones of every kind, and compares every answer, and what the store
// then holds, with memfence.State: the commit table and the rules of rebases and snapshots as code.
func storeModel(s *scene) {
	rng := seed.Rand(s.T)
	for range 20 {
		p := &play{scene: s, rng: rng}
		s.tile = newTile()
		for range 50 {
			p.step()
		}
	}
}

// play is the calls on one tile and the state that they should have led to.
type play struct {
	*scene
	rng   *rand.Rand
	state memfence.State

	past    []fence.Position // where the tile has been
	commits []fence.Commit   // presented so far
	rebases []fence.Rebase
}

func (p *play) one(n int) bool { return p.rng.IntN(n) == 0 }

// pick takes one of the last few, mostly the very last.
func pick[T any](p *play, of []T) T { return of[max(0, len(of)-1-p.rng.IntN(2)*p.rng.IntN(4))] }

func (p *play) step() {
	p.past = append(p.past, p.state.Last())
	remaining := p.Remaining(p.tile)
	var got, want fence.Receipt
	var err, reason error
	var epoch fence.Epoch
	renews := true
	switch n := p.rng.IntN(40); {
	case n < 22:
		c := p.drawCommit()
		p.commits, epoch = append(p.commits, c), c.Epoch
		got, err = p.Store.Commit(p.Context(), c)
		want, reason = p.state.Commit(&c)
	case n < 28:
		r := p.drawRebase()
		p.rebases, epoch = append(p.rebases, r), r.Epoch
		got, err = p.Store.Rebase(p.Context(), r)
		want, reason = p.state.Rebase(&r, time.Now())
	case n < 35:
		w := p.drawSnapshot()
		epoch, renews = w.Position.Epoch, false
		err, reason = p.Store.SaveSnapshot(p.Context(), w), p.state.SaveSnapshot(&w, time.Now())
	case n < 38:
		p.DropOwner(p.tile)
		p.state.Owner, renews = fence.Owner{}, false
	case n < 39 && remaining > p.TTL*3/4:
		p.Age(p.tile, p.TTL/2)
		renews = false
	case p.one(4):
		p.DropEntries(p.tile)
		p.state.Entries, renews = nil, false
	default:
		renews = false
	}
	current := p.state.Owner
	current.Tile, current.Position = p.tile, p.state.Last()
	if reason != nil {
		renews = false
		require.Equal(p, &fence.RefusedError{Reason: reason, Tile: p.tile, Epoch: epoch, Current: current}, err)
	} else {
		require.NoError(p, err)
		want.Replicas = got.Replicas
	}
	require.Equal(p, want, got)
	p.compare()
	if renews {
		p.requireFresh()
	} else {
		require.LessOrEqual(p, p.Remaining(p.tile), remaining, "only a write of the owner keeps the owner hash alive")
	}
}

// compare requires that the store holds what the state has.
func (p *play) compare() {
	owner := p.state.Owner
	owner.Tile = p.tile
	require.Equal(p, owner, p.owner())
	entries := p.Entries(p.tile)
	require.Len(p, entries, len(p.state.Entries))
	for i := range entries {
		p.requireEntry(entries[i], p.state.Entries[i])
	}
	if p.state.Snapshot != nil {
		p.requireSnapshot(*p.state.Snapshot)
	} else {
		_, found := p.Snapshot(p.tile)
		require.False(p, found)
	}
}

// drawEpoch gives the tile's epoch, or one near it.
func (p *play) drawEpoch() fence.Epoch {
	e := max(p.state.Owner.Epoch, p.state.Last().Epoch, 1)
	switch p.rng.IntN(8) {
	case 0:
		return max(e-1, 1)
	case 1, 2:
		return e + 1
	case 3:
		return e + fence.Epoch(p.rng.IntN(4))
	}
	return e
}

// drawPosition gives where the tile ends, or somewhere else.
func (p *play) drawPosition() fence.Position {
	at := p.state.Last()
	switch p.rng.IntN(12) {
	case 0, 1:
		at = pick(p, p.past)
	case 2:
		at.Chain++
	case 3:
		at.Seq += fence.Seq(1 + p.rng.IntN(2))
	case 4:
		at = fence.Position{}
	}
	return at
}

func (p *play) drawTick() fence.Tick {
	tick := p.state.Owner.Tick + fence.Tick(p.rng.IntN(3))
	if p.one(5) {
		tick -= min(tick, 3)
	}
	return tick
}

// drawCommit gives a new commit, or an earlier one, as it was or with what may change between two attempts.
func (p *play) drawCommit() fence.Commit {
	if len(p.commits) > 0 && p.one(4) {
		c := pick(p, p.commits)
		if p.one(3) {
			c.Install = !c.Install
		}
		if p.one(4) {
			c.Contact = "twin:1" // a claimant whose epoch was granted twice, by an authority that was restored
		}
		return c
	}
	c := p.batch(p.drawEpoch(), p.drawPosition())
	c.Prev.Epoch = min(c.Prev.Epoch, c.Epoch)
	c.Tick, c.Install = p.drawTick(), c.Epoch > p.state.Owner.Epoch
	if p.one(6) {
		c.Install = !c.Install
	}
	switch p.rng.IntN(8) {
	case 0, 1:
		c.Payload = nil // a refresh, or an install of nothing
	case 2:
		c.Payload = []byte("another history under the same numbers")
	case 3:
		c.Private = []byte("for owners only")
	}
	return c
}

func (p *play) drawRebase() fence.Rebase {
	last := p.state.Last().Seq
	r := p.rebase(p.drawEpoch(), max(1, last+fence.Seq(p.rng.IntN(6))-min(last, 1)), "state")
	if !p.one(3) {
		r.Epoch++
	}
	if len(p.rebases) > 0 && p.one(3) {
		r = pick(p, p.rebases)
		r.Seq += fence.Seq(p.rng.IntN(2) * 5) // it read a longer history meanwhile
	}
	if p.one(5) {
		r.Contact = "twin:1"
	}
	if p.one(2) {
		at := p.drawPosition()
		r.Replaces = &at
	}
	r.Tick = p.drawTick()
	return r
}

func (p *play) drawSnapshot() fence.SnapshotWrite {
	w := fence.SnapshotWrite{Tile: p.tile, Position: p.drawPosition(), Tick: p.state.Owner.Tick, Blob: []byte("a")}
	if entries := p.state.Entries; len(entries) > 0 && p.one(2) {
		w.Position = pick(p, entries).Position
	}
	if p.one(4) {
		w.Tick = p.drawTick()
	}
	if p.one(6) {
		w.Position.Epoch = p.drawEpoch()
	}
	w.Position.Epoch, w.Position.Seq = max(w.Position.Epoch, 1), max(w.Position.Seq, 1)
	w.Blob[0] += byte(w.Tick)
	return w
}
