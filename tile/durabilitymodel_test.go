package tile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// shelf is a durable store of checkpoints and journals. Each process reaches it by a reach of its own, which can
// fail.
type shelf struct{ checkpoint.Backend }

var _ tile.Journal = checkpoint.Backend(nil)

func newShelf() *shelf { return &shelf{memcheckpoint.New()} }

// snapshot is the checkpoint.
func (s *shelf) snapshot() fence.Snapshot {
	snap, _, err := s.Get(context.Background(), testTile)
	if err != nil {
		panic(err)
	}
	return snap
}

// tail is what the journal has after the checkpoint.
func (s *shelf) tail() []fence.Entry {
	tail, err := s.Tail(context.Background(), testTile, s.snapshot().Seq)
	if err != nil {
		panic(err)
	}
	return tail
}

// durableEnd is where the checkpoint and the journal end.
func (s *shelf) durableEnd() fence.Position {
	at := s.snapshot().Position
	for _, e := range s.tail() {
		if e.Prev == at {
			at = e.Position
		}
	}
	return at
}

// checkpoint does what a Checkpointer does with a snapshot that it has read, now or long ago.
func (s *shelf) checkpoint(snap fence.Snapshot) {
	err := s.Put(context.Background(), testTile, snap)
	if at := s.snapshot(); err == nil || at.Epoch >= snap.Epoch && at.Seq >= snap.Seq {
		_ = s.Truncate(context.Background(), testTile, at.Seq)
	}
}

// reach is a process's way to the shelf: a tile.Journal, and what reads the checkpoint.
type reach struct {
	*shelf
	mu       sync.Mutex
	fail     func(ctx context.Context, op string, applied bool) error // before and after each call; nil: nothing fails
	ops      []string
	forgives bool // a mutant: an append whose answer is lost counts as done
}

// errRequestLost, from reach.fail before a call is applied, is a request that never arrives, and a caller who waits for
// its answer until it gives up: the outcome is unknown, and nothing was done.
var errRequestLost = errors.New("request lost")

func (r *reach) set(fail func(ctx context.Context, op string, applied bool) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = fail
}

func (r *reach) calls(op string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o == op {
			n++
		}
	}
	return n
}

func (r *reach) call(ctx context.Context, op string, f func() error) error {
	r.mu.Lock()
	fail := r.fail
	r.ops = append(r.ops, op)
	r.mu.Unlock()
	if fail == nil {
		fail = func(context.Context, string, bool) error { return nil }
	}
	if err := fail(ctx, op, false); err != nil {
		outcome := fence.ErrNotApplied
		if errors.Is(err, errRequestLost) {
			outcome = fence.ErrUnknownOutcome
		}
		return &fence.StoreError{Op: op, Tile: testTile, Outcome: outcome, Err: err}
	}
	if err := f(); err != nil {
		return err
	}
	if err := fail(ctx, op, true); err != nil {
		return &fence.StoreError{Op: op, Tile: testTile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return nil
}

func (r *reach) Seal(ctx context.Context, id fence.TileID, e fence.Epoch) error {
	return r.call(ctx, "seal", func() error { return r.Backend.Seal(ctx, id, e) })
}

func (r *reach) Append(ctx context.Context, id fence.TileID, e fence.Entry) error {
	err := r.call(ctx, "append", func() error { return r.Backend.Append(ctx, id, e) })
	if r.forgives && errors.Is(err, fence.ErrUnknownOutcome) {
		return nil
	}
	return err
}

func (r *reach) Tail(ctx context.Context, id fence.TileID, after fence.Seq) (tail []fence.Entry, err error) {
	err = r.call(ctx, "tail", func() (err error) { tail, err = r.Backend.Tail(ctx, id, after); return err })
	return tail, err
}

func (r *reach) Base(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	return r.call(ctx, "put", func() error { return r.Backend.Base(ctx, id, s) })
}

func (r *reach) read(ctx context.Context, id fence.TileID) (s fence.Snapshot, found bool, err error) {
	err = r.call(ctx, "get", func() (err error) { s, found, err = r.Get(ctx, id); return err })
	return s, found, err
}

// shard is a master, which is the world's store, and two replicas that follow it with a lag, or not at all.
type shard struct {
	w   *world
	mu  sync.Mutex
	rng *rand.Rand

	replicas [2]memfence.State
	cut      [2]bool // nothing reaches the replica
	acks     int     // of 10 replications that no caller waits for, how many happen
	slow     bool    // replicas that are waited for take longer than anybody waits
	// confirmed is when every replica last confirmed.
	confirmed time.Time
	zombie    *memfence.State
}

func newShard(w *world, rng *rand.Rand) *shard { return &shard{w: w, rng: rng, acks: 5} }

// replicate brings the master's state to a replica. s.mu is held.
func (s *shard) replicate(i int) bool {
	if s.cut[i] {
		return false
	}
	s.replicas[i] = s.state()
	return true
}

// state is a copy of the master's state.
func (s *shard) state() (c memfence.State) {
	s.w.store.Update(testTile, func(m *memfence.State) {
		c = *m
		c.Entries = slices.Clone(m.Entries)
	})
	return c
}

// confirm answers a write as the master does that waits for replicas.
func (s *shard) confirm(r fence.Receipt, want int, err error) (fence.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return r, err
	}
	for i := range s.replicas {
		if (want != 0 || s.rng.IntN(10) < s.acks) && s.replicate(i) && want != 0 {
			r.Replicas++
		}
	}
	if r.Replicas == len(s.replicas) {
		s.confirmed = time.Now()
	}
	if need := want; need == fence.AllReplicas && r.Replicas < len(s.replicas) || r.Replicas < need {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: testTile, Receipt: r, Want: want}
	}
	return r, nil
}

// cutFor keeps everything from the replicas for a while.
func (s *shard) cutFor(d time.Duration) {
	set := func(cut bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cut = [2]bool{cut, cut}
	}
	set(true)
	time.AfterFunc(d, func() { set(false) })
}

// fail makes a replica the master, with what it has. The old master goes on as a zombie, for those who are told to
// ask it.
func (s *shard) fail(promoted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state()
	s.zombie = &old
	s.w.store.Update(testTile, func(m *memfence.State) {
		*m = s.replicas[promoted]
		m.Entries = slices.Clone(m.Entries)
	})
	s.cut = [2]bool{}
	s.replicate(0)
	s.replicate(1)
}

// lose loses everything that coordination has.
func (s *shard) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zombie = nil
	s.w.store.Update(testTile, func(m *memfence.State) { *m = memfence.State{} })
	s.cut = [2]bool{}
	s.replicate(0)
	s.replicate(1)
}

// later is the replica that has more.
func (s *shard) later() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas[1].Last().Seq > s.replicas[0].Last().Seq {
		return 1
	}
	return 0
}

// shardStore is a process's way to the shard. A process that asks the zombie is refused nothing that the zombie
// does not know of, and confirmed nothing.
type shardStore struct {
	fence.Store
	*shard
	asksZombie *bool // guarded by the shard's mu
}

func (s shardStore) old() *memfence.State {
	s.mu().Lock()
	defer s.mu().Unlock()
	if *s.asksZombie {
		return s.zombie
	}
	return nil
}

func (s shardStore) mu() *sync.Mutex { return &s.shard.mu }

func (s shardStore) Commit(ctx context.Context, c fence.Commit) (r fence.Receipt, err error) {
	if z := s.old(); z != nil {
		s.mu().Lock()
		defer s.mu().Unlock()
		if r, err = z.Commit(&c); err != nil {
			return r, s.refused(z, c.Epoch, err)
		}
		if c.Replicas != 0 {
			return r, &fence.UnconfirmedError{Tile: testTile, Receipt: r, Want: c.Replicas}
		}
		return r, nil
	}
	want := c.Replicas
	c.Replicas = 0
	r, err = s.Store.Commit(ctx, c)
	s.mu().Lock()
	slow := s.slow && want != 0 && err == nil
	s.mu().Unlock()
	if slow {
		<-ctx.Done()
		return r, &fence.StoreError{Op: "commit", Tile: testTile, Outcome: fence.ErrUnknownOutcome, Err: ctx.Err()}
	}
	return s.confirm(r, want, err)
}

func (s shardStore) Rebase(ctx context.Context, b fence.Rebase) (r fence.Receipt, err error) {
	if z := s.old(); z != nil {
		s.mu().Lock()
		defer s.mu().Unlock()
		if r, err = z.Rebase(&b, time.Now()); err != nil {
			return r, s.refused(z, b.Epoch, err)
		}
		return r, &fence.UnconfirmedError{Tile: testTile, Receipt: r, Want: b.Replicas}
	}
	want := b.Replicas
	b.Replicas = 0
	r, err = s.Store.Rebase(ctx, b)
	return s.confirm(r, want, err)
}

func (s shardStore) refused(z *memfence.State, e fence.Epoch, reason error) error {
	current := z.Owner
	current.Tile, current.Position = testTile, z.Last()
	return &fence.RefusedError{Reason: reason, Tile: testTile, Epoch: e, Current: current}
}

// restorer is a process of a world with a shard and a shelf.
type restorer struct {
	*process
	reach  *reach
	zombie *bool

	mu       sync.Mutex
	ctx      context.Context
	snapshot func()     // called when a snapshot is about to be read; nil: nothing
	oldLog   stream.Log // what it reads of an old master; nil: it reads the new one
	restored []tile.RestoredInfo
	commits  []tile.CommitInfo
	refusals int
}

// reports are those of all that has begun: an owner serves before it reports.
func (r *restorer) reports() []tile.RestoredInfo {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.restored)
}

func (r *restorer) committed() []tile.CommitInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.commits)
}

// asksZombie makes a process ask the old master, or the new one again.
func (s *shard) asksZombie(r *restorer, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*r.zombie = on
}

// onSnapshot calls f, once, before the process reads the tile's snapshot again.
func (r *restorer) onSnapshot(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = f
}

type watchedLog struct {
	stream.Log
	r *restorer
}

func (l watchedLog) Snapshot(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
	l.r.mu.Lock()
	f := l.r.snapshot
	l.r.snapshot = nil
	l.r.mu.Unlock()
	if f != nil {
		f()
	}
	return l.current().Snapshot(ctx, id)
}

func (l watchedLog) Read(ctx context.Context, c []stream.Cursor) ([]stream.Chunk, error) {
	return l.current().Read(ctx, c)
}

// current is the log that the process reads.
func (l watchedLog) current() stream.Log {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.oldLog != nil {
		return l.r.oldLog
	}
	return l.Log
}

// readsZombie makes a process read the old master, or the new one again.
func (s *shard) readsZombie(r *restorer, on bool) {
	var old stream.Log
	if on {
		store := memfence.New()
		s.mu.Lock()
		store.Update(testTile, func(m *memfence.State) { *m = *s.zombie })
		s.mu.Unlock()
		old = memstream.New(store)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oldLog = old
}

// spawn starts a process on the shard. What cfg does not say of journal and checkpoint is filled in.
func (s *shard) spawn(contact string, sh *shelf, cfg tile.Config) *restorer {
	r := s.equip(contact, sh, cfg)
	r.start()
	return r
}

// start lets a process run.
func (r *restorer) start() {
	go func() {
		defer close(r.done)
		r.err = r.Run(r.ctx)
	}()
}

// equip is spawn without start.
func (s *shard) equip(contact string, sh *shelf, cfg tile.Config) *restorer {
	r := &restorer{reach: &reach{shelf: sh}, zombie: new(bool),
		process: &process{contact: contact, line: &line{w: s.w}, runner: &runner{rules: &ledgerRules{},
			done: make(chan struct{})}}}
	cfg.Hooks = tile.Hooks{
		Restored:  func(i tile.RestoredInfo) { r.mu.Lock(); defer r.mu.Unlock(); r.restored = append(r.restored, i) },
		Committed: func(i tile.CommitInfo) { r.mu.Lock(); defer r.mu.Unlock(); r.commits = append(r.commits, i) },
		Refused:   func(tile.RefusalInfo) { r.mu.Lock(); defer r.mu.Unlock(); r.refusals++ },
		Healed: func(i tile.HealInfo) {
			r.process.mu.Lock()
			defer r.process.mu.Unlock()
			r.healed = append(r.healed, i)
		},
		TookOver: func(i tile.TakeoverInfo) {
			r.process.mu.Lock()
			defer r.process.mu.Unlock()
			r.took = append(r.took, i)
		},
	}
	w := s.w
	seams := r.line.seams(w.authority)
	seams.Journal, seams.Checkpoint = r.reach, r.reach.read
	seams.Log = watchedLog{seams.Log, r}
	seams.Store = intercept.StoreOf(shardStore{Store: w.store, shard: s, asksZombie: r.zombie}, r.line.call)
	var err error
	r.TileProcessor, err = tile.New(testTile, contact, seams, r.rules, &cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	w.t.Cleanup(func() {
		r.resume()
		r.reach.set(nil)
		r.stop()
		<-r.done
	})
	return r
}
