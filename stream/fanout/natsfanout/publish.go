package natsfanout

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Publish implements fanout.Publisher: one write and one round trip, tried once. A *fence.ArgumentError if a tile is
// zero, a *fence.StoreError if ctx has ended already; nothing is sent then. Otherwise, if not all messages were handed
// over, a *fanout.PublishError; its cause may be a *LimitError.
func (f *Fanout) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	channel, err := hub.Begin(ctx, messages, f.subject)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	err = f.send(ctx, len(messages), func(i int) (string, []byte) { return channel(i), messages[i].Data })
	return f.local.Published(messages, all(len(messages), err), refused)
}

// PublishHints implements fanout.HintPublisher: one message a group, one write and one round trip, tried once. A
// *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already; nothing is sent then.
// Otherwise, if not all hints were handed over, a *fanout.PublishError.
func (f *Fanout) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	messages, _, err := hub.HintMessages(tiles)
	if err != nil {
		return err
	}
	if err := guard.Ended(ctx, "publish hints", 0); err != nil || len(tiles) == 0 {
		return err
	}
	err = f.send(ctx, len(messages), func(i int) (string, []byte) {
		return f.prefix + hintSubject(messages[i].Group), messages[i].Encode()
	})
	return f.local.PublishedHints(tiles, all(len(tiles), err), refused)
}

// all is what a call has for each of its messages: they stand or fall together.
func all(n int, err error) []error {
	if err == nil {
		return nil
	}
	return slices.Repeat([]error{err}, n)
}

// refused reports whether the server forbids what was asked of it.
func refused(err error) bool { return errors.Is(err, nats.ErrPermissionViolation) }

// send writes n messages and waits until the server has read them.
func (f *Fanout) send(ctx context.Context, n int, message func(int) (subject string, data []byte)) error {
	if !f.conn.IsConnected() {
		return &hub.UnsentError{Err: errNotConnected}
	}
	if err := checkLimit(f.conn); err != nil {
		return &hub.UnsentError{Err: err}
	}
	connection, before := f.conn.Stats().Reconnects, f.conn.LastError()
	for i := range n {
		subject, data := message(i)
		if err := f.conn.Publish(subject, data); err != nil {
			if i == 0 {
				return &hub.UnsentError{Err: err}
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
