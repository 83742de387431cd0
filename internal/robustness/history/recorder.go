package history

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Sink takes records. File and Memory are sinks.
type Sink interface {
	Append(r Record) error
}

// Clock gives the time of a record in nanoseconds.
type Clock func() int64

// Recorder records for one process.
type Recorder struct {
	process string
	sink    Sink
	clock   Clock

	mu   sync.Mutex // makes taking the time and appending one step, so that a file is in order
	last int64
	op   uint64
	err  error
}

// NewRecorder returns a recorder of the process named, which no other run of any program may have. A nil
// clock means Monotonic.
func NewRecorder(process string, sink Sink, clock Clock) *Recorder {
	if clock == nil {
		clock = Monotonic
	}
	return &Recorder{process: process, sink: sink, clock: clock}
}

// Err is the first error of the sink: what came after it may be missing from the history.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Append completes a record with time and process and hands it to the sink. Most callers use a method that
// knows its kind.
func (r *Recorder) Append(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.append(rec)
}

func (r *Recorder) append(rec Record) {
	rec.Process = r.process
	rec.At = max(r.clock(), r.last+1)
	r.last = rec.At
	if err := r.sink.Append(rec); err != nil && r.err == nil {
		r.err = err
	}
}

// call records the beginning of an operation and returns what records its end.
func (r *Recorder) call(rec Record) (end func(Result)) {
	r.mu.Lock()
	r.op++
	rec.Op = r.op
	r.append(rec)
	r.mu.Unlock()
	return func(result Result) {
		r.Append(Record{Client: rec.Client, Kind: Return, Op: rec.Op, Tile: rec.Tile, Result: &result})
	}
}

// Fault records that the campaign injects or removes a fault.
func (r *Recorder) Fault(f FaultInfo) { r.Append(Record{Kind: Fault, Fault: &f}) }

// Restored records that the authority's row of a tile was restored to an older one, as an operation: call
// it before, and the function it returns after. A row with epoch zero stands for none.
func (r *Recorder) Restored(client string, tile fence.TileID, row Grant) (done func()) {
	end := r.call(Record{Client: client, Kind: Restore, Tile: tile, Row: &row})
	return func() { end(Result{Outcome: OK}) }
}

// Final records a tile after everything has come to rest.
func (r *Recorder) Final(tile fence.TileID, f FinalTile) {
	r.Append(Record{Kind: Final, Tile: tile, Final: &f})
}

// Held records what a watcher or an owner holds after everything has come to rest.
func (r *Recorder) Held(client string, tile fence.TileID, at fence.Position, digest string) {
	r.Append(Record{Client: client, Kind: Held, Tile: tile, Position: Position(at), Digest: digest})
}

// Authority returns an authority that passes every call on to a and records, as the client's, those about
// one tile.
func (r *Recorder) Authority(client string, a fence.Authority) fence.Authority {
	return &authority{Authority: a, recorder: r, client: always(client)}
}

type authority struct {
	fence.Authority
	recorder *Recorder
	client   clientOf
}

func (a *authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	end := a.recorder.call(a.claim(Claim, &c))
	g, err := a.Authority.Claim(ctx, c)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	end := a.recorder.call(a.claim(Promote, &c))
	g, err := a.Authority.Promote(ctx, c)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	end := a.recorder.call(Record{Client: a.client(tile), Kind: Lookup, Tile: tile})
	g, err := a.Authority.Lookup(ctx, tile)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	row := GrantOf(g)
	end := a.recorder.call(Record{Client: a.client(g.Tile), Kind: Release, Tile: g.Tile, Row: &row})
	err := a.Authority.Release(ctx, g)
	end(resultOf(decision.Judge(err), err))
	return err
}

func (a *authority) claim(kind Kind, c *fence.Claim) Record {
	return Record{Client: a.client(c.Tile), Kind: kind, Tile: c.Tile,
		Claim: &ClaimCall{Contact: c.Contact, ID: c.ID.String(), Expected: c.Expected, Floor: c.Floor}}
}

// Store returns a store that passes every call on to s and records the writes as the client's.
func (r *Recorder) Store(client string, s fence.Store) fence.Store {
	return &store{Store: s, recorder: r, client: always(client)}
}

type store struct {
	fence.Store // Owner is read through; nothing is promised of what one look shows
	recorder    *Recorder
	client      clientOf
}

func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	end := s.recorder.call(Record{Client: s.client(c.Tile), Kind: Commit, Tile: c.Tile, Commit: commitCall(&c)})
	receipt, err := s.Store.Commit(ctx, c)
	end(resultOf(decision.Received(receipt, err), err))
	return receipt, err
}

func (s *store) Rebase(ctx context.Context, b fence.Rebase) (fence.Receipt, error) {
	c := &RebaseCall{Epoch: b.Epoch, Contact: b.Contact, Next: Position(b.Next()), Tick: b.Tick, Replicas: b.Replicas,
		State: fence.Checksum(b.Blob), Game: gameSum(b.Blob)}
	if b.Replaces != nil {
		at := Position(*b.Replaces) // the caller's may change
		c.Replaces = &at
	}
	end := s.recorder.call(Record{Client: s.client(b.Tile), Kind: Rebase, Tile: b.Tile, Rebase: c})
	receipt, err := s.Store.Rebase(ctx, b)
	end(resultOf(decision.Received(receipt, err), err))
	return receipt, err
}

func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	end := s.recorder.call(Record{Client: s.client(w.Tile), Kind: Snapshot, Tile: w.Tile, Snapshot: &SnapshotCall{
		Position: Position(w.Position), Tick: w.Tick, State: fence.Checksum(w.Blob), Game: gameSum(w.Blob)}})
	err := s.Store.SaveSnapshot(ctx, w)
	end(resultOf(decision.Judge(err), err))
	return err
}

// gameSum is the checksum of the game's part of a snapshot; empty for what is no snapshot.
func gameSum(blob []byte) string {
	game, _, err := stream.OpenSnapshot(blob)
	if err != nil {
		return ""
	}
	return fence.Checksum(game)
}

func commitCall(c *fence.Commit) *CommitCall {
	call := &CommitCall{Epoch: c.Epoch, Contact: c.Contact, Prev: Position(c.Prev), Next: Position(c.Next()),
		Tick: c.Tick, Install: c.Install, Replicas: c.Replicas}
	if !c.Refresh() {
		e := c.Entry()
		call.Payload, call.Events, call.Actions = parts(&e)
	}
	return call
}

// parts gives a digest of what an entry holds, how many events that is, and the actions it decided. What
// is hidden from watchers is part of the digest by its sum; of a rebase the digest is the snapshot's checksum.
func parts(e *fence.Entry) (digest string, events int, actions []Action) {
	if e.Kind == fence.KindRebase {
		return string(e.Private), 0, nil
	}
	if b, err := stream.DecodeBatch(e); err == nil {
		events = len(b.Events)
		for _, r := range b.Resolutions {
			actions = append(actions, Action{ID: r.ActionID, Outcome: r.Outcome.String()})
		}
	}
	hidden := e.Hidden
	if len(e.Private) > 0 {
		hidden = fence.Sum(e.Private)
	}
	return fence.Checksum(binary.BigEndian.AppendUint64(slices.Clone(e.Payload), hidden)), events, actions
}

// journal passes every call on and records who took a journal over, what it has been
// given, what base was laid, and how far claimants read it.
type journal struct {
	checkpoint.JournalStore
	recorder *Recorder
	client   clientOf
}

// Journal returns a journal that records what one client does with it.
func (r *Recorder) Journal(client string, j checkpoint.JournalStore) checkpoint.JournalStore {
	return &journal{JournalStore: j, recorder: r, client: always(client)}
}

func (j *journal) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	err := j.JournalStore.Seal(ctx, tile, epoch)
	if err == nil {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Sealed, Tile: tile, Position: Position{Epoch: epoch}})
	}
	return err
}

// Base records what may have been laid: an answer that was lost is no reason to know it less.
func (j *journal) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	j.recorder.Append(Record{Client: j.client(tile), Kind: Based, Tile: tile, Snapshot: &SnapshotCall{
		Position: Position(s.Position), Tick: s.Tick, State: fence.Checksum(s.Blob), Game: gameSum(s.Blob)}})
	return j.JournalStore.Base(ctx, tile, s)
}

func (j *journal) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	err := j.JournalStore.Append(ctx, tile, e)
	if err == nil {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Journaled, Tile: tile, Position: Position(e.Position)})
	}
	return err
}

func (j *journal) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	tail, err := j.JournalStore.Tail(ctx, tile, after)
	if n := len(tail); n > 0 {
		j.recorder.Append(Record{Client: j.client(tile), Kind: Recovered, Tile: tile,
			Position: Position(tail[n-1].Position)})
	}
	return tail, err
}

// Submit records that a client sends an intent to contact, and returns what records the answer. An answer
// that leaves the fate unknown (tile.ErrUnresolved, a broken connection, a timeout) leaves the operation
// open; a redirect or an overloaded queue is NotApplied.
func (r *Recorder) Submit(client string, in *tile.Intent, contact string) (end func(stream.Outcome, error)) {
	done := r.call(Record{Client: client, Kind: Submit, Tile: in.Tile,
		Intent: &IntentCall{Action: in.ActionID, Contact: contact}})
	return func(o stream.Outcome, err error) {
		result := resultOf(decision.Judge(err), err)
		switch {
		case err == nil:
			result.Answer = o.String()
		case errors.Is(err, tile.ErrRedirect), errors.Is(err, tile.ErrOverloaded), errors.Is(err, tile.ErrCrossed):
			result.Outcome = NotApplied
		case !errors.Is(err, fence.ErrInvalidArgument):
			result.Outcome = Unknown
		}
		done(result)
	}
}
