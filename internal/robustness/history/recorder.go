package history

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/fence"
)

// Sink takes records. File and Memory are sinks.
type Sink interface {
	Append(r Record) error
}

// Clock gives the time of a record in nanoseconds.
type Clock func() int64

// Monotonic is CLOCK_MONOTONIC: one clock for all processes of a machine, unmoved when the time of day is
// set. It does not advance while the machine is suspended.
func Monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock is always there
	}
	return now.Nano()
}

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
