// Package taskgroup runs the parts of a server, and stops them one after another within a time that is bounded as a
// whole.
package taskgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrUnfinished is tilefence.ErrUnfinished.
var ErrUnfinished = errors.New("did not end in time")

// What a part that is stopped leaves for each part after it: of a server, and of a process.
const (
	ForPart   = 500 * time.Millisecond
	ForServer = 2 * time.Second
)

// stopping is the cause with which a part's context ends. It carries the one deadline of which all budgets of the end
// are parts.
type stopping struct{ by time.Time }

func (*stopping) Error() string { return "the server stops" }

// Is matches context.Canceled, since nothing has failed.
func (*stopping) Is(target error) bool { return target == context.Canceled }

// StopBy is when what runs under ctx, which has ended, must have stopped: as its Group says, or else within from now.
func StopBy(ctx context.Context, within time.Duration) time.Time {
	if s, ok := errors.AsType[*stopping](context.Cause(ctx)); ok {
		return s.by
	}
	return time.Now().Add(within)
}

// Group runs the parts of a server. Each has a context of its own, so that they are stopped one after another, the
// last that was started first.
type Group struct {
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

// New returns a group of no parts. A part that is stopped must leave reserved for each part after it.
func New(ctx context.Context, reserved time.Duration) *Group {
	return &Group{ctx: context.WithoutCancel(ctx), ended: make(chan struct{}), reserved: reserved}
}

// Start runs a part.
func (c *Group) Start(name string, run func(context.Context) error) {
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

// OnStop has f called in its turn when the parts are stopped.
func (c *Group) OnStop(name string, f func(by time.Time)) {
	done := make(chan error, 1)
	c.parts = append(c.parts, part{name, func(by time.Time) {
		go func() {
			f(by)
			done <- nil
		}()
	}, done})
}

// Wait returns when ctx ends or a part has ended by itself.
func (c *Group) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.ended:
	}
}

// Stop stops the parts in the reverse order of their start until by, and returns what failed. A part that leaves too
// little for those after it goes on beside them; one that has not ended at the end is an ErrUnfinished.
func (c *Group) Stop(by time.Time) error {
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
