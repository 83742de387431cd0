package tilefence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Server is a part of a process that runs until its context ends: the servers of this package, and anything of
// the caller's with the same method.
type Server interface {
	// Run runs until ctx ends or something fails, stops in good order and returns; nil if nothing failed.
	Run(ctx context.Context) error
}

// Run runs servers in one process until ctx ends or one of them ends by itself. It starts them from the last to
// the first and stops them from the first to the last, each after the one before has ended.
//
// Servers of this package are put in the direction that data flows: gateways, tile servers, bridges, relays,
// checkpoint servers. So every intent that was admitted reaches its tile, every batch its watchers, and the
// checkpointer's last pass comes after the tiles' last snapshots. A server of the caller's keeps its place behind the
// one it is listed after. A nil server is a *fence.ArgumentError, and nothing is started.
//
// The error joins those of all servers, each under the name of its type. A server that ends by itself without an
// error ends Run as ctx does. Run returns within StopTimeout of that, whatever hangs: a server that takes too long no
// longer delays those after it, and is an ErrUnfinished if it has not ended by then. Tiles that were not released are
// an *UnreleasedError.
func Run(ctx context.Context, servers ...Server) error {
	servers, err := inOrder(servers)
	if err != nil {
		return err
	}
	c := newTaskGroup(ctx)
	c.reserved = reservedForServer
	for i := len(servers) - 1; i >= 0; i-- {
		c.start(nameOf(servers[i]), servers[i].Run)
	}
	c.wait(ctx)
	return c.stop(stopBy(ctx))
}

// staged is a server that has a place in the order of stopping.
type staged interface{ stage() int }

func (*GatewayServer) stage() int    { return 1 }
func (*TileServer) stage() int       { return 2 }
func (*BridgeServer) stage() int     { return 3 }
func (*RelayServer) stage() int      { return 4 }
func (*CheckpointServer) stage() int { return 5 }

// inOrder returns servers in the order in which they stop.
func inOrder(servers []Server) ([]Server, error) {
	type placed struct {
		Server
		stage int
	}
	var all []placed
	stage := 0
	for _, s := range servers {
		if s == nil || reflect.ValueOf(s).Kind() == reflect.Pointer && reflect.ValueOf(s).IsNil() {
			return nil, argument("servers", s, "no nil server")
		}
		if st, ok := s.(staged); ok {
			stage = st.stage()
		}
		all = append(all, placed{s, stage})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.stage - b.stage })
	ordered := make([]Server, len(all))
	for i, p := range all {
		ordered[i] = p.Server
	}
	return ordered, nil
}

func nameOf(s Server) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// StopTimeout bounds the end of a process: so long after its context has ended, Run and each server's Run have
// returned, whatever hangs. It leaves 5 s of the 30 s that Kubernetes gives before it kills.
const StopTimeout = 25 * time.Second

// ErrUnfinished: a part of a server did not end within its time, and was left behind. Its goroutines end with the
// process.
var ErrUnfinished = errors.New("did not end in time")

// UnreleasedError says which tiles a tile server held to its end, neither handed over nor released, because a back end
// or the other servers did not answer in time. Nothing that was confirmed is lost. Other servers take the tiles when
// they suspect their owner, at the latest when the owner hashes have run out. It is a tile.ErrUnreleased.
type UnreleasedError struct {
	Contact string // of the tile server
	Tiles   []fence.TileID
	Err     error // of one of them; nil if it had not ended
}

func (e *UnreleasedError) Error() string {
	const shown = 10
	text := fmt.Sprintf("%d tiles of %s were neither handed over nor released: %v", len(e.Tiles), e.Contact,
		e.Tiles[:min(len(e.Tiles), shown)])
	if len(e.Tiles) > shown {
		text += " and others"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; other tile servers take them over"
}

// Is matches tile.ErrUnreleased.
func (e *UnreleasedError) Is(target error) bool { return target == tile.ErrUnreleased }

// Unwrap returns the error of one of the tiles.
func (e *UnreleasedError) Unwrap() error { return e.Err }

// stopping is the cause with which a part's context ends. It carries the one deadline of which all budgets of the end
// are parts.
type stopping struct{ by time.Time }

func (*stopping) Error() string { return "the server stops" }

// Is matches context.Canceled, since nothing has failed.
func (*stopping) Is(target error) bool { return target == context.Canceled }

// stopBy is when what runs under ctx, which has ended, must have stopped: as its taskGroup says, or StopTimeout from
// now.
func stopBy(ctx context.Context) time.Time {
	if s, ok := errors.AsType[*stopping](context.Cause(ctx)); ok {
		return s.by
	}
	return time.Now().Add(StopTimeout)
}

// What a part that is stopped must leave for each part after it: of a server, and of a process.
const (
	reservedForPart   = 500 * time.Millisecond
	reservedForServer = 2 * time.Second
)

// taskGroup runs the parts of a server. Each has a context of its own, so that they are stopped one after another, the
// last that was started first.
type taskGroup struct {
	ctx      context.Context // for values; a part is stopped by its own cancel
	ended    chan struct{}   // closed when the first part ends by itself
	once     sync.Once
	reserved time.Duration
	parts    []part
}

// part is stopped by stop, which begins it, and has ended when done has its error.
type part struct {
	name string
	stop func(by time.Time)
	done chan error
}

func newTaskGroup(ctx context.Context) *taskGroup {
	return &taskGroup{ctx: context.WithoutCancel(ctx), ended: make(chan struct{}), reserved: reservedForPart}
}

// start runs a part.
func (c *taskGroup) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	done := make(chan error, 1)
	go func() {
		err := run(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		done <- err
		c.once.Do(func() { close(c.ended) })
	}()
	c.parts = append(c.parts, part{name, func(by time.Time) { cancel(&stopping{by}) }, done})
}

// onStop has f called in its turn when the parts are stopped.
func (c *taskGroup) onStop(name string, f func(by time.Time)) {
	done := make(chan error, 1)
	c.parts = append(c.parts, part{name, func(by time.Time) {
		go func() {
			f(by)
			done <- nil
		}()
	}, done})
}

// wait returns when ctx ends or a part has ended by itself.
func (c *taskGroup) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.ended:
	}
}

// stop stops the parts in the reverse order of their start until by, and returns what failed. A part that leaves too
// little for those after it goes on beside them; one that has not ended at the end is an ErrUnfinished.
func (c *taskGroup) stop(by time.Time) error {
	errs := make([]error, len(c.parts))
	var late []int
	for i := len(c.parts) - 1; i >= 0; i-- {
		p := c.parts[i]
		turn := by.Add(-time.Duration(i) * c.reserved)
		p.stop(turn)
		var ended bool
		if errs[i], ended = p.await(turn); !ended {
			late = append(late, i)
		}
	}
	for _, i := range late {
		var ended bool
		if errs[i], ended = c.parts[i].await(by); !ended {
			errs[i] = fmt.Errorf("%s: %w", c.parts[i].name, ErrUnfinished)
		}
	}
	slices.Reverse(errs)
	return errors.Join(errs...)
}

// await returns a part's error if it ends in time.
func (p *part) await(by time.Time) (err error, ended bool) { //nolint:revive // the error is the part's
	timer := time.NewTimer(max(time.Until(by), 0))
	defer timer.Stop()
	select {
	case err := <-p.done:
		return err, true
	case <-timer.C:
		select {
		case err := <-p.done:
			return err, true
		default:
			return nil, false
		}
	}
}

func argument(field string, value any, want string) error {
	return &fence.ArgumentError{Field: field, Value: value, Want: want}
}

// alreadyRun is the error of a second Run.
func alreadyRun(server string) error { return fmt.Errorf("%s: %w", server, fence.ErrAlreadyRun) }
