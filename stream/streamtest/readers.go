package streamtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Readers plays one tile with an owner, a bridge, a checkpointer, several relays and, where there are any, consumer
// groups, which read, mark, crash, come back and are forgotten, while the owner snapshots, trims, is replaced, and
// loses the end of the history to failovers. It returns the first promise of stream.Log that was broken:
//
//   - A reader that was answered nil to a mark can read on from there without a gap, until a trim names it or a
//     failover forgets the mark. The only exceptions are a position that is no longer in the history, and a rebase.
//   - A reader that has to resync has lost something.
//   - A trim removes exactly what is below the floor, the floor is the lowest of the snapshot and the marks that are
//     left, and a pending entry of a group holds it for its lease.
//   - Only marks older than the lease expire, and all of them do; only the lowest marks are evicted, none as far as the
//     snapshot, and only when the stream is too large.
//   - A recovery gives the whole history.
//   - When all is quiet, every reader comes to its end.
//
// The same seed gives the same play. Harness.Freeze must be there. happened counts what a play may lack: "told" to
// resync, "expired", "evicted", "gap" that a reader met, "failover", "group" that
// was left with pending entries.
func Readers(ctx context.Context, h Harness, seed uint64, steps int) (happened map[string]int, err error) {
	p := &play{ctx: ctx, h: h, tile: newTile(), rng: rand.New(rand.NewPCG(seed, 0)), epoch: 1,
		happened: map[string]int{}}
	if h.Forget != nil {
		defer h.Forget(p.tile)
	}
	for _, c := range []stream.Consumer{stream.BridgeAcked, stream.BridgePending, stream.Checkpointed} {
		p.readers = append(p.readers, &reader{consumer: c})
	}
	for range 3 {
		p.readers = append(p.readers, p.newRelay())
	}
	p.fat = p.one(4)
	for step := range steps {
		if what, err := p.step(); err != nil {
			return p.happened, fmt.Errorf("seed %d, step %d, %s: %w", seed, step, what, err)
		}
	}
	if err := p.quiesce(); err != nil {
		return p.happened, fmt.Errorf("seed %d, at the end: %w", seed, err)
	}
	return p.happened, nil
}

// play is one tile and all that happens to it.
type play struct {
	ctx  context.Context
	h    Harness
	tile fence.TileID
	rng  *rand.Rand
	fat  bool // batches are so large that the bound matters

	epoch   fence.Epoch   // highest ever used
	line    []fence.Entry // the history, from its beginning, whether or not the store still has it
	trimmed fence.Seq
	readers []*reader
	groups  []group
	relays  int
	frozen  []moment

	happened map[string]int
}

// reader is a consumer with a mark.
type reader struct {
	consumer stream.Consumer
	at       fence.Position // what it has seen
	down     int            // steps until it is back
	safe     bool           // its last mark was answered nil, and nothing has happened to it since
	rewound  *stream.MarkWrite
}

// group is what a consumer group has pending.
type group struct {
	pending []fence.Seq
	age     time.Duration
}

// moment is a state of the store that a replica may have stopped at.
type moment struct {
	thaw    func()
	line    []fence.Entry
	trimmed fence.Seq
	groups  []group
}

// ErrBroken: a promise was broken. Any other error is a failure of the play.
var ErrBroken = errors.New("a promise of stream.Log is broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBroken}, args...)...)
}

func (p *play) one(n int) bool { return p.rng.IntN(n) == 0 }

func (p *play) last() fence.Position {
	if len(p.line) == 0 {
		return fence.Position{}
	}
	return p.line[len(p.line)-1].Position
}

// after lists what follows a position in the history; ok is false if it is not in it.
func (p *play) after(at fence.Position) (rest []fence.Entry, ok bool) {
	if at.IsZero() {
		return p.line, true
	}
	i := slices.IndexFunc(p.line, func(e fence.Entry) bool { return e.Position == at })
	return p.line[i+1:], i >= 0
}

func (p *play) newRelay() *reader {
	p.relays++
	return &reader{consumer: stream.RelayMember(fmt.Sprint("r", p.relays))}
}

func (p *play) step() (what string, err error) {
	for _, r := range p.readers {
		r.down = max(0, r.down-1)
	}
	if p.one(6) {
		p.frozen = append(p.frozen, moment{p.h.Freeze(p.tile), slices.Clip(p.line), p.trimmed, slices.Clone(p.groups)})
		p.frozen = p.frozen[max(0, len(p.frozen)-4):]
	}
	switch n := p.rng.IntN(100); {
	case n < 25:
		return "commit", p.commit(1 + p.rng.IntN(3))
	case n < 32:
		return "snapshot", p.snapshot()
	case n < 72:
		return p.readerStep(p.readers[p.rng.IntN(len(p.readers))])
	case n < 84:
		return "trim", p.trim(p.one(3))
	case n < 88:
		p.passTime(time.Duration(1+p.rng.IntN(3)) * lease / 3)
		return "time", nil
	case n < 91:
		return "takeover", p.takeover()
	case n < 93:
		return "rebase", p.rebase()
	case n < 96:
		return "failover", p.failover()
	case n < 98 && p.h.Group != nil:
		return "group", p.group()
	}
	return "owner hash gone", p.dropOwner()
}

// readerStep lets a reader do something.
func (p *play) readerStep(r *reader) (what string, err error) {
	w := stream.MarkWrite{Tile: p.tile, Consumer: r.consumer, Seq: r.at.Seq}
	switch n := p.rng.IntN(40); {
	case n < 17:
		return fmt.Sprint("read by ", r.consumer), p.read(r, 1+p.rng.IntN(8))
	case n < 19:
		return fmt.Sprint("crash of ", r.consumer), p.crash(r)
	case n < 22 && r.down == 0:
		w.Seq -= min(w.Seq, fence.Seq(p.rng.IntN(10)))
		_, err := p.write(&w)
		return fmt.Sprint("old mark by ", r.consumer), err
	case n < 23 && r.rewound != nil:
		return fmt.Sprint("late rewind by ", r.consumer), only(p.h.Log.Mark(p.ctx, []stream.MarkWrite{*r.rewound}))
	}
	return fmt.Sprint("mark by ", r.consumer), p.mark(r, p.one(6))
}

// passTime makes all marks, and what groups have pending, older.
func (p *play) passTime(d time.Duration) {
	p.h.AgeMarks(p.tile, d)
	if p.h.AgeGroups != nil && len(p.groups) > 0 {
		p.h.AgeGroups(p.tile, d)
	}
	for i := range p.groups {
		p.groups[i].age += d
	}
}

func (p *play) takeover() error {
	p.epoch++
	return p.commit(1)
}

// only is an error of the store; what the answer says to a reader is ignored.
func only(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, stream.ErrResync) {
			return err
		}
	}
	return nil
}

func (p *play) commit(n int) error {
	for range n {
		payload := fmt.Appendf(nil, "%d after %s", p.rng.Uint64(), p.last())
		if p.fat {
			payload = append(payload, make([]byte, 2*largeEntry)...)
		}
		if err := p.append(payload, fence.Tick(len(p.line)+1)); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) append(payload []byte, tick fence.Tick) error {
	c := fence.Commit{Tile: p.tile, Epoch: p.epoch, Contact: "owner:1", Prev: p.last(), Tick: tick, Payload: payload,
		Install: true}
	if _, err := p.h.Store.Commit(p.ctx, c); err != nil {
		return err
	}
	p.line = append(slices.Clip(p.line), c.Entry())
	return nil
}

// snapshot saves a snapshot at one of the owner's last entries, if it is not older than the one before.
func (p *play) snapshot() error {
	if len(p.line) == 0 {
		return nil
	}
	e := p.line[max(0, len(p.line)-1-p.rng.IntN(6))]
	if e.Epoch != p.epoch {
		return nil
	}
	err := p.h.Store.SaveSnapshot(p.ctx, fence.SnapshotWrite{Tile: p.tile, Position: e.Position, Tick: e.Tick,
		Blob: []byte("state at " + e.String())})
	for _, expected := range []error{fence.ErrRegress, fence.ErrUncommitted, fence.ErrNoOwner, fence.ErrStale} {
		if errors.Is(err, expected) { // trimmed away meanwhile, or a takeover that has not committed
			return nil
		}
	}
	return err
}

func (p *play) rebase() error {
	p.epoch++
	r := fence.Rebase{Tile: p.tile, Epoch: p.epoch, Contact: "owner:1",
		Seq: p.last().Seq + fence.Seq(10+p.rng.IntN(20)), Tick: fence.Tick(len(p.line) + 1), Blob: []byte("rebased")}
	if _, err := p.h.Store.Rebase(p.ctx, r); err != nil {
		return err
	}
	p.line = append(slices.Clip(p.line), r.Entry())
	return nil
}

func (p *play) dropOwner() error {
	p.h.DropOwner(p.tile)
	p.epoch++ // an owner that has to install itself again asks the authority first, which may grant a new one
	return nil
}

// crash stops a reader. It comes back with what it had seen, or, a relay, leaves for another, in good order or not.
func (p *play) crash(r *reader) error {
	r.down = 5 + p.rng.IntN(40)
	if r.consumer.Kind() != stream.RelayFloor || p.one(2) {
		return nil
	}
	p.readers[slices.Index(p.readers, r)] = p.newRelay()
	if p.one(2) {
		return nil
	}
	return stream.MarkOne(p.ctx, p.h.Log, stream.MarkWrite{Tile: p.tile, Consumer: r.consumer, Release: true})
}

// failover puts the store back to an earlier moment. What was written since is gone; the owner appends it again if it
// lives, and another starts from what is there if not.
func (p *play) failover() error {
	if len(p.frozen) == 0 {
		return nil
	}
	p.happened["failover"]++
	m := p.frozen[p.rng.IntN(len(p.frozen))]
	p.frozen = nil
	m.thaw()
	lost := slices.Clone(p.line[min(len(p.line), len(m.line)):])
	continues := len(p.line) >= len(m.line) && (len(m.line) == 0 ||
		p.line[len(m.line)-1].Position == m.line[len(m.line)-1].Position)
	p.line, p.trimmed, p.groups = m.line, m.trimmed, m.groups
	for _, r := range p.readers {
		r.safe = false
	}
	again := continues && !slices.ContainsFunc(lost, func(e fence.Entry) bool {
		return e.Kind == fence.KindRebase ||
			e.Epoch != p.epoch
	})
	if again && p.one(2) {
		for _, e := range lost {
			if err := p.append(e.Payload, e.Tick); err != nil {
				return err
			}
			if p.last() != e.Position {
				return broken("a batch appended again is at %s, not %s", p.last(), e.Position)
			}
		}
		return nil
	}
	p.epoch++
	return p.commit(1)
}

// group makes a consumer group read from the beginning of what is there.
func (p *play) group() error {
	chunks, err := p.h.Log.Read(p.ctx, []stream.Cursor{{Tile: p.tile, Limit: everything}})
	if err != nil || len(chunks[0].Entries) == 0 {
		return err
	}
	there := chunks[0].Entries
	read := 1 + p.rng.IntN(len(there))
	pending := min(read, p.rng.IntN(5))
	p.h.Group(p.tile, read, pending)
	g := group{}
	p.happened["group"] += min(pending, 1)
	for _, e := range there[read-pending : read] {
		g.pending = append(g.pending, e.Seq)
	}
	p.groups = append(p.groups, g)
	return nil
}
