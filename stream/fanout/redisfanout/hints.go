package redisfanout

import (
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

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
