package natsfanout

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// subject is one subject and how many subscriptions of this process share it.
type subject struct {
	name    string
	sub     *nats.Subscription
	users   int
	deliver func(data []byte) // hands a message to the subscriptions
}

// overrun is how many messages the library dropped because Fanout.messages was full.
func (s *subject) overrun() int {
	n, err := s.sub.Dropped()
	if err != nil {
		return 0 // closed with the connection
	}
	return n
}

// Subscribe implements fanout.Subscriber. It waits until the server has the subscription; if ctx ends first, the error
// is a *fence.StoreError whose cause names what stood in the way. Another *fence.StoreError if the server refuses the
// subscription or the Fanout is closed, a *fence.ArgumentError if the tile is zero or deliver is nil.
func (f *Fanout) Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (stop func(), err error) {
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	if err := guard.Ended(ctx, "subscribe", tile); err != nil {
		return nil, err
	}
	// First the buffer, then the subject: what the server sends from its confirmation on finds it in place.
	stopLocal := f.local.Frames.Subscribe(tile, deliver)
	before := f.conn.LastError()
	s, err := f.retain(f.subject(tile), func(data []byte) { f.local.Frame(tile, data) })
	if err != nil {
		stopLocal()
		return nil, hub.Failure("subscribe", tile, err, true)
	}
	release := sync.OnceFunc(func() { f.release(s) })
	stop = func() {
		stopLocal()
		release()
	}
	err = f.settle(ctx)
	if err == nil {
		err = f.refusal(before, s.name)
	}
	if err != nil {
		stop()
		return nil, hub.Failure("subscribe", tile, err, true)
	}
	return stop, nil
}

// refusal returns the server's refusal of a subject, if it came after the error before.
func (f *Fanout) refusal(before error, subject string) error {
	err := f.conn.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, before) ||
		!strings.Contains(err.Error(), `"`+subject+`"`) {
		return nil
	}
	return err
}

// retain counts one more user of a subject, whose messages go to deliver.
func (f *Fanout) retain(name string, deliver func(data []byte)) (*subject, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn.IsClosed() {
		return nil, nats.ErrConnectionClosed
	}
	s := f.subjects[name]
	if s == nil {
		sub, err := f.conn.ChanSubscribe(name, f.messages)
		if err != nil {
			return nil, err
		}
		s = &subject{name: name, sub: sub, deliver: deliver}
		f.subjects[name] = s
	}
	s.users++
	return s, nil
}

// release undoes retain.
func (f *Fanout) release(s *subject) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	delete(f.subjects, s.name)
	f.lost += s.overrun()
	_ = s.sub.Unsubscribe() // its errors are that it is closed already
}

// receive passes the connection's messages on to the subscriptions until Close. It waits for none of them.
func (f *Fanout) receive() {
	for {
		select {
		case <-f.quit:
			return
		case m := <-f.messages:
			f.local.Received.Add(1)
			f.mu.RLock()
			s := f.subjects[m.Subject]
			f.mu.RUnlock()
			if s != nil && s.sub == m.Sub { // else it is on its way out
				s.deliver(m.Data)
			}
		}
	}
}

// SubscribeHints implements fanout.HintSubscriber. A lost connection is noticed at once, a silent one after 3 s.
// A *fence.StoreError if the Fanout is closed.
func (f *Fanout) SubscribeHints(group int, deliver func([]fence.TileID), up func(inForce bool)) (func(), error) {
	if err := hub.ValidHints(group, deliver, up); err != nil {
		return nil, err
	}
	stopLocal := f.local.Hints.Subscribe(group, deliver)
	s, err := f.retain(f.prefix+hintSubject(group), func(data []byte) { f.local.HintMessage(group, data) })
	if err != nil {
		stopLocal()
		return nil, hub.Failure("subscribe to hints", 0, err, true)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.watch(ctx, up)
	}()
	return sync.OnceFunc(func() {
		cancel()
		stopLocal()
		<-done
		f.release(s)
	}), nil
}

// watch reports to up whether subscriptions are in force, and every change of that, until ctx ends.
func (f *Fanout) watch(ctx context.Context, up func(inForce bool)) {
	for {
		_, _, lost, _ := f.link.watch()
		if f.settle(ctx) != nil {
			return // ctx has ended, or the Fanout is closed
		}
		up(true)
		for {
			_, ended, now, changed := f.link.watch()
			if now != lost || ended {
				up(false) // even if it is in force again by now: hints were lost
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// PublishPresence implements fanout.PresencePublisher: one write and one round trip, tried once. A *fence.ArgumentError
// if a tile is zero, otherwise a *fence.StoreError.
func (f *Fanout) PublishPresence(ctx context.Context, process uint64, tiles []fence.TileID) error {
	for _, t := range tiles {
		if err := guard.Tile(t); err != nil {
			return err
		}
	}
	if err := guard.Ended(ctx, "publish presence", 0); err != nil || len(tiles) == 0 {
		return err
	}
	data := fanout.AppendPresence(nil, process)
	err := f.send(ctx, len(tiles), func(i int) (string, []byte) { return f.prefix + presenceSubject(tiles[i]), data })
	if err != nil {
		return hub.Failure("publish presence", tiles[0], err, refused(err))
	}
	return nil
}

// SubscribePresence implements fanout.PresenceSubscriber. A *fence.StoreError if the Fanout is closed. A message that
// cannot be read is ignored.
func (f *Fanout) SubscribePresence(tile fence.TileID, deliver func(process uint64)) (func(), error) {
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	stopLocal := f.presence.Subscribe(tile, deliver)
	s, err := f.retain(f.prefix+presenceSubject(tile), func(data []byte) {
		if process, ok := fanout.DecodePresence(data); ok {
			f.presence.Publish(tile, process, len(data))
		}
	})
	if err != nil {
		stopLocal()
		return nil, hub.Failure("subscribe to presence", tile, err, true)
	}
	release := sync.OnceFunc(func() { f.release(s) })
	return func() {
		stopLocal()
		release()
	}, nil
}

// Observer is what Observe calls. Each function is called one call at a time and must not block.
type Observer struct {
	Frame    func(tile fence.TileID, bytes int)      // a message of a tile
	Presence func(tile fence.TileID, process uint64) // a process says that it hears the tile
}

// Observe reports the messages of all tiles until ctx ends, for tools that show what goes over the broker. It receives
// all of them, so it is not for processes that serve players. A *fence.StoreError if the server cannot be reached or
// refuses it.
func (f *Fanout) Observe(ctx context.Context, o Observer) error {
	failed := func(err error) error {
		return &fence.StoreError{Op: "observe", Outcome: fence.ErrNotApplied, Err: err}
	}
	before := f.conn.LastError()
	for subject, seen := range map[string]func(fence.TileID, []byte){
		"tilefence.tile.*.frames": func(t fence.TileID, data []byte) { o.Frame(t, len(data)) },
		"tilefence.tile.*.presence": func(t fence.TileID, data []byte) {
			if process, ok := fanout.DecodePresence(data); ok {
				o.Presence(t, process)
			}
		},
	} {
		sub, err := f.conn.Subscribe(f.prefix+subject, func(m *nats.Msg) {
			name := strings.TrimPrefix(m.Subject, f.prefix)
			if tile, err := fence.ParseTileID(strings.Split(name, ".")[2]); err == nil {
				seen(tile, m.Data)
			}
		})
		if err != nil {
			return failed(err)
		}
		defer func() { _ = sub.Unsubscribe() }() // its errors are that it is closed already
		if err := f.settle(ctx); err != nil {
			return failed(err)
		}
		if err := f.refusal(before, f.prefix+subject); err != nil {
			return failed(err)
		}
	}
	<-ctx.Done()
	return nil
}
