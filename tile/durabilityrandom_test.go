package tile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestRecoveryPoints plays a tile of each class through random faults of owners, masters, replicas, journal and
// checkpoints, and after each fault requires of the tile's owner what the class promises: every action that was
// acknowledged, once, but for those that the class may lose by that fault. TILEFENCE_SEED reruns one seed. Where
// one event wakes several goroutines, their order is the scheduler's.
func TestRecoveryPoints(t *testing.T) {
	met, lost := map[string]int{}, map[tile.Durability]int{}
	for _, seed := range seed.Many(t, 4) {
		for _, class := range classes {
			t.Run(fmt.Sprint(class, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newTrial(t, class, seed)
					r.run()
					for fault, n := range r.met {
						met[fault] += n
					}
					lost[class] += r.lost
				})
			})
		}
	}
	t.Logf("met: %v; lost, as promised: %v", met, lost)
	require.Zero(t, lost[tile.WriteThrough])
}

// trial is one run.
type trial struct {
	*testing.T
	s    *shard
	sh   *shelf
	cfg  tile.Config
	rng  *rand.Rand // the run's own goroutine only
	born int
	met  map[string]int
	lost int

	owner *restorer
	held  []fence.Snapshot // what a Checkpointer that is paused has read

	mu      sync.Mutex
	acked   map[string]time.Time // when
	open    map[string]bool      // sent, and not acknowledged
	words   int
	tick    fence.Tick // the highest at which anything was acknowledged
	settled map[string]bool
	gone    map[string]bool // lost, as promised: a late checkpoint may bring it back
}

func newTrial(t *testing.T, class tile.Durability, seed uint64) *trial {
	rng := rand.New(rand.NewPCG(seed, uint64(class)))
	r := &trial{T: t, s: newShard(newWorld(t), rand.New(rand.NewPCG(seed, 99))), sh: newShelf(), rng: rng,
		met:   map[string]int{},
		acked: map[string]time.Time{}, open: map[string]bool{}, settled: map[string]bool{}, gone: map[string]bool{}}
	r.cfg = tile.Config{Durability: class, SnapshotEvery: 5 + rng.IntN(20), ConfirmEvery: 2 + rng.IntN(8),
		TickInterval: 100 * time.Millisecond, SuspectAfter: tile.NeverSuspect}
	if class == tile.Replicated && rng.IntN(2) == 0 {
		r.cfg.Replicas = 1
	}
	return r
}

// succeed gives the tile a new owner, which serves.
func (r *trial) succeed() {
	for r.owner = nil; ; {
		o := r.spawn()
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if o.Status().State == tile.Serving {
				r.owner = o
				return
			}
			if o.ended() {
				break
			}
		}
		require.True(r, o.ended(), "neither serves nor ends: %+v", o.Status())
		r.calm() // it gave up, with all that went wrong
	}
}

func (r *trial) spawn() *restorer {
	o := r.equip()
	o.start()
	return o
}

func (r *trial) equip() *restorer {
	r.born++
	cfg := r.cfg
	cfg.TakeOver = true
	o := r.s.equip(fmt.Sprintf("p%d", r.born), r.sh, cfg)
	o.line.set(func(l *line) { l.rng = rand.New(rand.NewPCG(uint64(r.born), 3)) })
	r.disturb(o)
	return o
}

// disturb makes a process's calls fail, some of them, before they are applied or after, and take a while.
func (r *trial) disturb(o *restorer) {
	rate, rng := r.rng.IntN(3)*6, rand.New(rand.NewPCG(r.rng.Uint64(), 4))
	o.line.set(func(l *line) { l.rate = 2 * rate })
	var mu sync.Mutex
	slow := int64(r.rng.IntN(3)) * int64(50*time.Millisecond)
	o.reach.set(func(_ context.Context, _ string, applied bool) error {
		mu.Lock()
		delay := time.Duration(rng.Int64N(slow + 1))
		mu.Unlock()
		time.Sleep(delay)
		mu.Lock()
		defer mu.Unlock()
		if rate > 0 && rng.IntN(rate) == 0 {
			if !applied && rng.IntN(2) == 0 {
				return errRequestLost
			}
			return errJournal
		}
		return nil
	})
}

func (r *restorer) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// calm ends all faults but those that have been done.
func (r *trial) calm() {
	r.s.mu.Lock()
	r.s.cut, r.s.acks = [2]bool{}, 5
	r.s.mu.Unlock()
	if r.owner != nil {
		r.owner.line.set(func(l *line) { l.rate = 0 })
		r.owner.reach.set(nil)
	}
}

// play has actions sent to the owner for a while. Those that were not acknowledged before are sent again.
func (r *trial) play(n int, wait time.Duration) { r.send(n, wait).Wait() }

// send begins what play does.
func (r *trial) send(n int, wait time.Duration) *sync.WaitGroup {
	all := &sync.WaitGroup{}
	r.mu.Lock()
	send := make([]string, 0, n)
	for w := range r.open {
		send = append(send, w)
	}
	for range n {
		r.words++
		send = append(send, fmt.Sprint("w", r.words))
	}
	r.mu.Unlock()
	o := r.owner
	for _, w := range send {
		r.mu.Lock()
		r.open[w] = true
		r.mu.Unlock()
		at := time.Duration(r.rng.IntN(int(wait/2) + 1))
		all.Go(func() {
			time.Sleep(at)
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			got, err := o.Submit(ctx, tile.Intent{Tile: testTile, ActionID: w, Body: []byte(w)})
			if err == nil && got.Outcome == stream.Applied {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.open, w)
				r.acked[w] = time.Now()
				r.tick = max(r.tick, o.Status().Tick)
			}
		})
	}
	return all
}

// checkpoint does what Checkpointers do: one copies the snapshot now, one has read it and puts it later. One that
// puts the snapshot of an old master is for tiles that write through alone: others trust the stream.
func (r *trial) checkpoint() {
	if snap, found, _ := r.s.w.log.Snapshot(r.Context(), testTile); found {
		switch r.rng.IntN(4) {
		case 0, 1:
			r.sh.checkpoint(snap)
		case 2:
			r.held = append(r.held, snap)
		}
	}
	r.s.mu.Lock()
	if z := r.s.zombie; z != nil && z.Snapshot != nil && r.cfg.Durability == tile.WriteThrough {
		r.held = append(r.held, *z.Snapshot)
	}
	r.s.mu.Unlock()
	if n := len(r.held); n > 0 && r.rng.IntN(2) == 0 {
		r.sh.checkpoint(r.held[r.rng.IntN(n)])
	}
}

// promoted is the replica that becomes the master. With fewer replicas than all, one that has what was acknowledged
// is a condition of the promise.
func (r *trial) promoted() int {
	if r.cfg.Replicas > 0 {
		return r.s.later()
	}
	return r.rng.IntN(2)
}

// reading is what a fault may take.
type reading int

const (
	nothing     reading = iota
	unconfirmed         // what was acknowledged since the replicas last confirmed
	unsaved             // what was acknowledged since the checkpoint was taken
	anything            // another owner's state has taken its place
)

// fault does something, gives the tile an owner that serves if it has none, and says what may be lost by it.
func (r *trial) fault() (name string, may reading) {
	owner := r.owner
	zombie := func() {
		if r.rng.IntN(2) == 0 {
			r.s.asksZombie(owner, true)
			r.play(2, 2*time.Second)
		}
	}
	switch r.rng.IntN(13) {
	case 0:
		return "none", nothing
	case 1:
		r.s.fail(r.promoted())
		return "master lost", nothing
	case 2:
		r.s.fail(r.promoted())
		r.s.asksZombie(owner, r.rng.IntN(3) > 0)
		late := r.send(1+r.rng.IntN(3), 600*time.Millisecond) // it goes on while its successor acquires the tile
		r.succeed()
		late.Wait()
		r.retire(owner)
		return "master lost, and the tile taken over", unconfirmed
	case 3:
		r.succeed()
		r.retire(owner)
		return "taken over", nothing
	case 4:
		owner.kill()
		r.succeed()
		return "owner lost", nothing
	case 5:
		r.s.fail(r.promoted())
		zombie()
		owner.kill()
		r.succeed()
		return "owner and master lost", unconfirmed
	case 6:
		r.s.lose()
		return "coordination lost", nothing
	case 7:
		owner.kill()
		if r.rng.IntN(2) == 0 {
			r.claimantThatDies()
		}
		r.s.lose()
		r.succeed()
		r.checkReport()
		return "coordination and owner lost", unsaved
	case 8:
		r.s.fail(r.promoted())
		zombie()
		for range 1 + r.rng.IntN(3) {
			r.claimantThatDies()
		}
		r.succeed()
		r.retire(owner)
		return "claimants died", unconfirmed
	case 9:
		r.calm()
		r.s.cutFor(time.Duration(r.rng.IntN(1000)) * time.Millisecond)
		require.NoError(r, owner.drain())
		r.s.fail(r.promoted())
		r.succeed()
		return "owner stopped, and master lost", nothing
	case 10:
		if r.cfg.Durability == tile.WriteThrough {
			return r.restoreDurable()
		}
	case 11:
		if r.cfg.Durability != tile.WriteThrough {
			return r.grantTwice()
		}
	}
	r.s.w.store.Update(testTile, func(m *memfence.State) { m.Owner = fence.Owner{} })
	return "owner hash gone", nothing
}

// restoreDurable puts the durable store back under a living owner, to an older state, or to what another owner has
// written under the same epoch, which a restored authority had granted it. With the next action the owner notices.
func (r *trial) restoreDurable() (name string, may reading) {
	r.calm()
	synctest.Wait()
	old, restored := r.sh.snapshot(), memcheckpoint.New()
	name, may = "durable store restored", nothing
	if r.rng.IntN(2) == 0 {
		name, may = "durable store has another owner's state", anything
		old.Position = r.owner.Status().Position
		old.Seq, old.Chain = old.Seq+fence.Seq(r.rng.IntN(3)), old.Chain+1
	}
	require.NoError(r, restored.Put(r.Context(), testTile, old))
	r.sh.Backend = restored
	r.play(1, time.Minute)
	require.Empty(r, r.open, "%s: the tile stalls: %+v", name, r.owner.Status())
	return name, may
}

// grantTwice has another owner of the owner's epoch commit a word, which every replica confirms, and die.
func (r *trial) grantTwice() (name string, may reading) {
	r.calm()
	r.words++
	word := fmt.Sprint("twin", r.words)
	r.s.w.twin(r.T, r.owner.Status().Epoch, word)
	_, err := r.s.confirm(fence.Receipt{}, fence.AllReplicas, nil)
	require.NoError(r, err)
	r.mu.Lock()
	r.acked[word] = time.Now()
	r.mu.Unlock()
	r.play(1, time.Minute)
	return "epoch granted twice", nothing
}

// claimantThatDies takes the tile over and dies somewhere in it.
func (r *trial) claimantThatDies() {
	o := r.equip()
	left := 1 + r.rng.IntN(12)
	var mu sync.Mutex
	o.reach.set(func(context.Context, string, bool) error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			o.kill()
		}
		if left <= 0 {
			return errJournal
		}
		return nil
	})
	o.start()
	time.Sleep(time.Duration(r.rng.IntN(1000)) * time.Millisecond)
	o.kill()
	<-o.done
}

// retire ends a process that was superseded, or is about to hear of it.
func (r *trial) retire(o *restorer) {
	if r.rng.IntN(2) == 0 {
		time.Sleep(2 * time.Second)
	}
	o.kill()
	<-o.done
}

// checkReport requires that what was reported as lost is no less than what was.
func (r *trial) checkReport() {
	for _, i := range r.owner.reports() {
		if i.FromMemory || r.cfg.Durability == tile.WriteThrough {
			require.Zero(r, i.LostTicks)
			require.True(r, i.Exact)
			continue
		}
		require.GreaterOrEqual(r, i.SnapshotTick+i.LostTicks, r.tick, "%+v", i)
	}
	r.tick = 0 // ticks go back with the state
}

// check requires what the class promises, after a fault that came at a time.
func (r *trial) check(name string, may reading, confirmed, saved time.Time) {
	class := r.cfg.Durability
	if class == tile.WriteThrough && may != anything || class == tile.Replicated && may == unconfirmed {
		may = nothing
	}
	var has map[string]int
	waittest.Until(r, func() bool {
		has = map[string]int{}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.owner.Inspect(ctx, func(rules tile.Rules, _ fence.Position) {
			for _, w := range rules.(*ledgerRules).Words {
				has[w]++
			}
		}) == nil
	}, time.Minute, time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	for w, n := range has {
		require.Equal(r, 1, n, "%s was applied %d times", w, n)
		_, sent := r.acked[w]
		require.True(r, sent || r.open[w] || r.gone[w], "%s was not sent", w)
	}
	for w, when := range r.acked {
		if has[w] > 0 {
			continue
		}
		excused := false
		switch may {
		case unconfirmed:
			excused = when.After(confirmed) && !r.settled[w]
		case unsaved:
			excused = when.After(saved)
		case anything:
			excused = true
		}
		require.True(r, excused, "%s: %s is lost, acknowledged %v; confirmed %v, saved %v", name, w, when, confirmed,
			saved)
		if may != anything {
			r.lost++
		}
		r.gone[w] = true
		delete(r.acked, w)
		delete(r.settled, w)
	}
}

func (r *trial) run() {
	r.succeed()
	for range 14 {
		r.s.mu.Lock()
		r.s.acks = r.rng.IntN(11)
		if r.cfg.Replicas > 0 || r.cfg.Durability != tile.Replicated {
			r.s.cut[r.rng.IntN(2)] = r.rng.IntN(3) == 0
		}
		r.s.mu.Unlock()
		r.disturb(r.owner)
		r.play(r.rng.IntN(6), 3*time.Second)
		r.checkpoint()
		r.play(r.rng.IntN(4), 3*time.Second)
		r.s.mu.Lock()
		confirmed := r.s.confirmed
		r.s.mu.Unlock()
		saved := r.sh.snapshot().Taken
		name, may := r.fault()
		r.met[name]++
		if r.rng.IntN(2) == 0 {
			r.checkpoint()
		}
		r.calm()
		r.s.asksZombie(r.owner, false)
		r.play(0, 30*time.Second)
		time.Sleep(5 * time.Second) // every replica has confirmed
		if r.owner.ended() {
			r.succeed()
			r.calm()
		}
		r.check(name, may, confirmed, saved)
		r.mu.Lock()
		for w := range r.acked {
			r.settled[w] = true
		}
		r.mu.Unlock()
	}
	require.NoError(r, r.owner.drain())
}
