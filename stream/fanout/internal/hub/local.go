package hub

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Local is this process's end of a fan-out over a network: its subscriptions, what is counted, and what is logged.
type Local struct {
	Frames *Hub[fence.TileID, []byte]
	Hints  *Hub[int, []fence.TileID]

	Received, dropped                     atomic.Uint64
	published, unpublished                atomic.Uint64
	hintsSent, hintsUnsent                atomic.Uint64
	hintsReceived, hintsDropped, badHints atomic.Uint64

	log       *slog.Logger
	slow, bad rate.Sometimes
}

// NewLocal returns a Local with room for so many bytes in front of each subscription, as New does.
func NewLocal(bytes int, log *slog.Logger) (l *Local, err error) {
	const every = 10 * time.Second
	l = &Local{log: log, slow: rate.Sometimes{First: 1, Interval: every},
		bad: rate.Sometimes{First: 1, Interval: every}}
	if l.Frames, err = New[fence.TileID, []byte](0, bytes); err != nil {
		return nil, err
	}
	l.Hints, err = New[int, []fence.TileID](0, bytes)
	return l, err
}

// Frame takes a tile's message from the network.
func (l *Local) Frame(tile fence.TileID, data []byte) {
	n := l.Frames.Publish(tile, data, len(data))
	if n == 0 {
		return
	}
	all := l.dropped.Add(uint64(n))
	l.slow.Do(func() {
		l.log.Warn("a subscriber is slow and lost messages; watchers repair them from the store", "tile", tile,
			"messages", all)
	})
}

// HintMessage takes a message of a group from the network.
func (l *Local) HintMessage(group int, data []byte) {
	tiles, err := fanout.DecodeHints(group, data)
	if err != nil {
		all := l.badHints.Add(1)
		l.bad.Do(func() {
			l.log.Warn("hints that cannot be read are ignored", "group", group, "messages", all, "error", err)
		})
		return
	}
	l.hintsReceived.Add(uint64(len(tiles)))
	l.hintsDropped.Add(uint64(l.Hints.Publish(group, tiles, 8*len(tiles)) * len(tiles)))
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (l *Local) Stats() fanout.TrafficStats {
	return fanout.TrafficStats{
		Published: l.published.Load(), Unpublished: l.unpublished.Load(),
		Received: l.Received.Load(), Dropped: l.dropped.Load(),
		HintsSent: l.hintsSent.Load(), HintsUnsent: l.hintsUnsent.Load(),
		HintsReceived: l.hintsReceived.Load(), HintsDropped: l.hintsDropped.Load(), BadHints: l.badHints.Load(),
		Subscriptions: l.Frames.Count() + l.Hints.Count(),
	}
}

// UnsentError is a failure before anything was written to a server.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *UnsentError) Unwrap() error { return e.Err }

// Failure is the *fence.StoreError of an operation. What is neither unsent nor refused may have been sent.
func Failure(op string, tile fence.TileID, err error, refused bool) error {
	outcome := fence.ErrUnknownOutcome
	if unsent := (*UnsentError)(nil); refused || errors.As(err, &unsent) {
		outcome = fence.ErrNotApplied
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: err}
}

// Published counts messages, each with its error (nil: all were handed over), and returns what
// fanout.Publisher.Publish does.
func (l *Local) Published(messages []fanout.Message, errs []error, refused func(error) bool) (sent int, err error) {
	sent = firstOf(errs)
	failed := countOf(errs)
	l.published.Add(uint64(len(messages) - failed))
	l.unpublished.Add(uint64(failed))
	if failed == 0 {
		return len(messages), nil
	}
	return sent, &fanout.PublishError{Handed: handed(errs),
		Err: Failure("publish", messages[sent].Tile, errs[sent], refused(errs[sent]))}
}

// PublishedHints counts hints, as Published does, and returns what fanout.HintPublisher.PublishHints does.
func (l *Local) PublishedHints(tiles []fence.TileID, errs []error, refused func(error) bool) error {
	failed := countOf(errs)
	l.hintsSent.Add(uint64(len(tiles) - failed))
	l.hintsUnsent.Add(uint64(failed))
	if failed == 0 {
		return nil
	}
	first := firstOf(errs)
	return &fanout.PublishError{Handed: handed(errs),
		Err: Failure("publish hints", tiles[first], errs[first], refused(errs[first]))}
}

func isFailure(err error) bool { return err != nil }

func firstOf(errs []error) int { return slices.IndexFunc(errs, isFailure) }

func countOf(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

func handed(errs []error) []bool {
	all := make([]bool, len(errs))
	for i, err := range errs {
		all[i] = err == nil
	}
	return all
}
