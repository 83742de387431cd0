package natsfanout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// PublishError is a Publish or a PublishHints of which some messages were not handed over for sure.
type PublishError struct {
	first *fence.StoreError
	sent  int // messages from the front that were handed over
	total int
}

var _ fanout.PartialError = (*PublishError)(nil)

// Handed implements fanout.PartialError.
func (e *PublishError) Handed(i int) bool { return i >= 0 && i < e.sent }

func (e *PublishError) Error() string {
	return fmt.Sprintf("%d of %d messages not published: %v", e.total-e.sent, e.total, e.first)
}

// Unwrap gives the failure, a *fence.StoreError: with ErrNotApplied if nothing was written to a server, or it refused
// the message, with ErrUnknownOutcome if messages may have been sent.
func (e *PublishError) Unwrap() error { return e.first }

// Publish implements fanout.Publisher: one write and one round trip, tried once. A *fence.ArgumentError if a tile is
// zero, a *fence.StoreError if ctx has ended already; nothing is sent then. Otherwise, if not all messages were handed
// over, a *PublishError; its cause may be a *LimitError.
func (f *Fanout) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	for i := range messages {
		if err := hub.ValidTile(messages[i].Tile); err != nil {
			return 0, err
		}
	}
	if len(messages) == 0 {
		return 0, f.open(ctx, "publish", 0)
	}
	if err := f.open(ctx, "publish", messages[0].Tile); err != nil {
		return 0, err
	}
	var (
		tile    fence.TileID
		subject string
	)
	err := f.send(ctx, len(messages), func(i int) (string, []byte) {
		if messages[i].Tile != tile { // those of one tile usually come together
			tile = messages[i].Tile
			subject = Subject(tile)
		}
		return subject, messages[i].Data
	})
	if err == nil {
		f.published.Add(uint64(len(messages)))
		return len(messages), nil
	}
	f.unpublished.Add(uint64(len(messages)))
	return 0, &PublishError{total: len(messages), first: &fence.StoreError{Op: "publish", Tile: messages[0].Tile,
		Outcome: outcomeOf(err), Err: err}}
}

// PublishHints implements fanout.HintPublisher: one message a group, one write and one round trip, tried once. A
// *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already; nothing is sent then.
// Otherwise, if not all hints were handed over, a *PublishError.
func (f *Fanout) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	groups, err := hub.ByGroup(tiles)
	if err != nil {
		return err
	}
	if err := f.open(ctx, "publish hints", 0); err != nil || len(tiles) == 0 {
		return err
	}
	var subjects []string
	var data [][]byte
	for g := range groups {
		for part := range slices.Chunk(groups[g], fanout.MaxHints) {
			subjects = append(subjects, HintSubject(g))
			data = append(data, fanout.AppendHints(make([]byte, 0, 3+8*len(part)), part))
		}
	}
	err = f.send(ctx, len(data), func(i int) (string, []byte) { return subjects[i], data[i] })
	if err == nil {
		f.hintsSent.Add(uint64(len(tiles)))
		return nil
	}
	f.hintsUnsent.Add(uint64(len(tiles)))
	return &PublishError{total: len(tiles), first: &fence.StoreError{Op: "publish hints", Tile: tiles[0],
		Outcome: outcomeOf(err), Err: err}}
}

// open returns an error if ctx has ended.
func (f *Fanout) open(ctx context.Context, op string, tile fence.TileID) error {
	if ctx.Err() == nil {
		return nil
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
}

// unsentError is a failure before anything was written to a server.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

func outcomeOf(err error) error {
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) || errors.Is(err, nats.ErrPermissionViolation) {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}

// send writes n messages and waits until the server has read them.
func (f *Fanout) send(ctx context.Context, n int, message func(int) (subject string, data []byte)) error {
	if !f.conn.IsConnected() {
		return &unsentError{errNotConnected}
	}
	if err := checkLimit(f.conn); err != nil {
		return &unsentError{err}
	}
	connection, before := f.conn.Stats().Reconnects, f.conn.LastError()
	for i := range n {
		subject, data := message(i)
		if err := f.conn.Publish(subject, data); err != nil {
			if i == 0 {
				return &unsentError{err}
			}
			return err
		}
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	if f.conn.Stats().Reconnects != connection {
		return errors.New("the connection to NATS was replaced meanwhile")
	}
	err := f.conn.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && !errors.Is(err, before) {
		for i := range n {
			if subject, _ := message(i); f.refusal(before, subject) != nil {
				return err
			}
		}
	}
	return nil
}
