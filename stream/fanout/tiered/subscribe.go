package tiered

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// joinersAtOnce is how many subscriptions are made on the broker at once after it could not be reached.
const joinersAtOnce = 16

// subscribing is the subscribing side of a Fanout.
type subscribing struct {
	mu      sync.Mutex
	all     map[*subscription]struct{}
	joining []*subscription // not on the broker yet
	running bool            // the goroutine that says what is heard, and joins
	closed  bool
	wake    chan struct{}
	down    bool // the broker could not be reached lately

	subCounters
}

// subscription is one call of Subscribe.
type subscription struct {
	tile fence.TileID
	merge

	smu        sync.Mutex
	ended      bool
	stopBroker func() // nil until the broker has the subscription
}

// Subscribe implements fanout.Subscriber: on both tiers. It waits for the ordinary one, whose errors it returns. It
// also waits for the broker, up to a second, unless the broker could not be reached lately; a subscription that
// it does not get is made in the background. stop may be called after Close.
func (f *Fanout) Subscribe(ctx context.Context, tile fence.TileID, deliver func(data []byte)) (stop func(), err error) {
	if deliver == nil {
		return nil, &fence.ArgumentError{Field: "deliver", Value: "nil", Want: "a function"}
	}
	s := &subscription{tile: tile}
	s.merge.count, s.merge.deliver = &f.sub.subCounters, deliver
	stopOrdinary, err := f.ordinary.Subscribe(ctx, tile, func(data []byte) { s.receive(sideOrdinary, data) })
	if err != nil {
		return nil, err
	}
	if f.sub.unreachable() || !f.join(ctx, s) {
		f.sub.later(s)
	}
	f.sub.add(s)
	f.keep()
	return sync.OnceFunc(func() {
		f.sub.remove(s)
		s.merge.stop()
		stopOrdinary()
		s.leave()
	}), nil
}

// join subscribes s on the broker.
func (f *Fanout) join(parent context.Context, s *subscription) bool {
	ctx, cancel := context.WithTimeout(parent, brokerTimeout)
	defer cancel()
	stop, err := f.broker.Subscribe(ctx, s.tile, func(data []byte) { s.receive(sideBroker, data) })
	if parent.Err() == nil && f.sub.reached(err == nil) { // else it says nothing about the broker
		if err == nil {
			f.cfg.Logger.Info("the broker tier can be reached")
		} else {
			f.cfg.Logger.Warn("the broker tier cannot be reached; tiles come by the ordinary tier", "error", err)
		}
	}
	if err != nil {
		return false
	}
	s.smu.Lock()
	ended := s.ended
	if !ended {
		s.stopBroker = stop
	}
	s.smu.Unlock()
	if ended {
		stop()
	}
	return true
}

func (s *subscription) joined() bool {
	s.smu.Lock()
	defer s.smu.Unlock()
	return s.stopBroker != nil || s.ended
}

// leave ends the subscription on the broker, also one that is being made.
func (s *subscription) leave() {
	s.smu.Lock()
	stop := s.stopBroker
	s.ended = true
	s.smu.Unlock()
	if stop != nil {
		stop()
	}
}

func (s *subscribing) add(one *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[one] = struct{}{}
}

func (s *subscribing) remove(one *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, one)
	if len(s.all) == 0 {
		s.joining = nil
		s.poke() // the goroutine ends
	}
}

func (s *subscribing) poke() { wait.Wake(s.wake) }

// later leaves a subscription to the goroutine that joins.
func (s *subscribing) later(one *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joining = append(s.joining, one)
}

func (s *subscribing) count() (all, joining int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		if !one.joined() {
			joining++
		}
	}
	return len(s.all), joining
}

func (s *subscribing) unreachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// reached notes whether the broker could be reached, and reports whether that is news.
func (s *subscribing) reached(ok bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.down == ok
	s.down = !ok
	return news
}

// keep starts the goroutine that serves subscriptions, if none runs. It ends with the last subscription.
func (f *Fanout) keep() {
	s := &f.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.closed || len(s.all) == 0 {
		return
	}
	s.running = true
	f.wg.Go(func() {
		ticker := time.NewTicker(f.cfg.tuning.Interval)
		defer ticker.Stop()
		for s.goOn() {
			select {
			case <-f.ctx.Done():
			case <-s.wake:
			case <-ticker.C:
				f.sayPresent()
				f.joinAll()
			}
		}
	})
}

// goOn reports whether there is something to serve; if not, the goroutine ends.
func (s *subscribing) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.all) > 0 && !s.closed
	return s.running
}

// sayPresent sends presence on every tile that all its subscriptions in this process hear on the broker. That it can be
// sent shows that the connection to the broker is alive now.
func (f *Fanout) sayPresent() {
	heard := map[fence.TileID]bool{}
	now := time.Now()
	f.sub.mu.Lock()
	for s := range f.sub.all {
		hears := s.hears(now)
		if before, known := heard[s.tile]; known {
			hears = hears && before
		}
		heard[s.tile] = hears
	}
	f.sub.mu.Unlock()
	var tiles []fence.TileID
	for t, hears := range heard {
		if hears {
			tiles = append(tiles, t)
		}
	}
	if len(tiles) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(f.ctx, brokerTimeout)
	defer cancel()
	if err := f.broker.PublishPresence(ctx, f.process, tiles); err != nil {
		f.sub.presenceLost.Add(uint64(len(tiles)))
	}
}

// joinAll tries to make the subscriptions that the broker lacks, a first one alone: if it fails, so would the others.
func (f *Fanout) joinAll() {
	f.sub.mu.Lock()
	todo := f.sub.joining
	f.sub.joining = nil
	f.sub.mu.Unlock()
	for first := true; len(todo) > 0; first = false {
		n := min(len(todo), joinersAtOnce)
		if first {
			n = 1
		}
		part := todo[:n]
		var wg sync.WaitGroup
		failed := make([]bool, n)
		for i, s := range part {
			wg.Go(func() { failed[i] = !s.joined() && !f.join(f.ctx, s) })
		}
		wg.Wait()
		todo = todo[n:]
		for i, s := range part {
			if failed[i] {
				todo = append(todo, s)
			}
		}
		if f.sub.unreachable() || f.ctx.Err() != nil {
			break
		}
	}
	f.sub.mu.Lock()
	f.sub.joining = append(f.sub.joining, todo...)
	f.sub.mu.Unlock()
}
