package redisfanout

import (
	"context"
	"errors"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Subscribe implements fanout.Subscriber. It waits until Redis has confirmed the subscription; if ctx
// ends first, the error is a *fence.StoreError whose cause names what stood in the way. A
// *fence.ArgumentError if the tile is zero or deliver is nil.
func (f *Fanout) Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (stop func(), err error) {
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	if err := guard.Ended(ctx, "subscribe", tile); err != nil {
		return nil, err
	}
	// First the buffer, then the channel: what Redis sends from the confirmation on finds it in place.
	stopLocal := f.local.Frames.Subscribe(tile, deliver)
	s, c := f.retain(f.channel(tile), func(data string) { f.local.Frame(tile, []byte(data)) })
	release := sync.OnceFunc(func() { f.release(s, c) })
	stop = func() {
		stopLocal()
		release()
	}
	select {
	case <-s.upOf(c):
		return stop, nil
	case <-ctx.Done():
		cause := errors.Join(context.Cause(ctx), s.errOf(c))
		stop()
		return nil, hub.Failure("subscribe", tile, cause, true)
	}
}

// retain counts one more user of a channel. The first user of any channel starts the session.
func (f *Fanout) retain(name string, deliver func(data string)) (*session, *channel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == nil {
		f.session = newSession(f)
		f.session.start()
	}
	return f.session, f.session.retain(name, deliver)
}

// release undoes retain. The last user of the last channel ends the session and waits for it.
func (f *Fanout) release(s *session, c *channel) {
	f.mu.Lock()
	last := s.release(c)
	if last {
		f.session = nil
	}
	f.mu.Unlock()
	if last {
		s.end()
	}
}

// SubscribeHints implements fanout.HintSubscriber. Subscriptions to one group share one SSUBSCRIBE, and
// the connections of the tiles' channels. A lost connection is noticed at once, a silent one after 3 s.
func (f *Fanout) SubscribeHints(group int, deliver func([]fence.TileID), up func(inForce bool)) (func(), error) {
	if err := hub.ValidHints(group, deliver, up); err != nil {
		return nil, err
	}
	stopLocal := f.local.Hints.Subscribe(group, deliver)
	s, c := f.retain(f.hints[group], func(data string) { f.local.HintMessage(group, []byte(data)) })
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		watch(s, c, quit, up)
	}()
	return sync.OnceFunc(func() {
		close(quit)
		stopLocal()
		<-done
		f.release(s, c)
	}), nil
}

// watch reports to up every change of a channel's state until quit is closed.
func watch(s *session, c *channel, quit <-chan struct{}, up func(inForce bool)) {
	reported, reportedLost := false, 0
	for {
		inForce, lost, upChannel, changed := s.stateOf(c)
		if reported && lost != reportedLost {
			up(false) // even if it is in force again by now: hints were lost
			reported = false
		}
		if inForce && !reported {
			up(true)
			reported = true
		}
		reportedLost = lost
		wait := upChannel
		if inForce {
			wait = changed
		}
		select {
		case <-quit:
			return
		case <-wait:
		}
	}
}
