package shard

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// minBeat is the shortest time between two heartbeats that nothing has called for.
const minBeat = 10 * time.Millisecond

// run is one Run of a Member: one goroutine makes heartbeats, another calls the Handler, so that a slow
// Handler costs no lease.
type run struct {
	*Member
	holder string
	beat   uint64
	heard  time.Time // when the last answered heartbeat was sent, or Run began

	due      chan struct{} // tells work that the books have changed
	released chan struct{} // tells heartbeat that there is something to release
	over     chan struct{} // closed when work is to end
}

// heartbeat makes heartbeats until ctx ends. The error is terminal; everything is being lost then.
func (r *run) heartbeat(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.released:
		case <-timer.C:
		}
		began := time.Now()
		reply, err := r.sync(ctx, false)
		if refused := new(RangesError); errors.As(err, &refused) || errors.Is(err, fence.ErrInvalidArgument) {
			r.giveUp("refused")
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.DrainTimeout)
			defer cancel()
			r.finishLosing(last)
			return err
		}
		wait := r.cfg.TTL / 3
		if err == nil && reply.Share > len(reply.Held) {
			wait = r.cfg.TTL / 12
		}
		timer.Reset(max(wait-time.Since(began), minBeat))
	}
}

// sync makes one heartbeat and enters the answer.
func (r *run) sync(ctx context.Context, leaving bool) (Reply, error) {
	began := time.Now()
	r.beat++
	request := Request{Group: r.group, Holder: r.holder, Beat: r.beat, Ranges: r.ranges, TTL: r.cfg.TTL, Leaving: leaving}
	r.mu.Lock()
	stuck := !r.books.calling.IsZero() && began.Sub(r.books.calling) > r.cfg.LostTimeout
	late := r.books.request(&request, stuck)
	r.stats.Overdue += uint64(len(late))
	r.mu.Unlock()
	for _, s := range late {
		r.cfg.Logger.Warn("a shard is released although work on it has not ceased", "group", r.group, "shard", s)
	}
	call, cancel := context.WithTimeout(ctx, r.cfg.TTL/3)
	reply, err := r.leases.Sync(call, request)
	cancel()
	if err != nil {
		r.failed(ctx, err)
		return reply, err
	}
	r.heard = began
	r.mu.Lock()
	r.books.take(&reply)
	r.stats.Beats++
	r.stats.LastBeat = began
	r.stats.Share, r.stats.Holders, r.stats.Free = reply.Share, reply.Holders, reply.Free
	r.mu.Unlock()
	signal(r.due)
	return reply, nil
}

func (r *run) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it was cut short
	}
	r.mu.Lock()
	r.stats.Failed++
	r.mu.Unlock()
	r.cfg.Logger.Warn("heartbeat failed", "group", r.group, "holder", r.holder, "error", err)
	r.cfg.Failed(err)
	if r.cfg.StandDownAfter > 0 && time.Since(r.heard) >= r.cfg.StandDownAfter {
		r.giveUp("the store is silent")
	}
}

// giveUp begins to lose everything, without the store.
func (r *run) giveUp(why string) {
	r.mu.Lock()
	n := len(r.books.shards)
	r.books.standDown()
	r.mu.Unlock()
	if n > 0 {
		r.cfg.Logger.Warn("all shards given up", "group", r.group, "shards", n, "why", why)
	}
	signal(r.due)
}

// finishLosing waits until the Handler has lost everything.
func (r *run) finishLosing(ctx context.Context) {
	for r.holds() {
		select {
		case <-ctx.Done():
			return
		case <-r.released:
		}
	}
}

// drain gives everything back, each shard as soon as the Handler has ceased to work on it, and leaves.
func (r *run) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DrainTimeout)
	defer cancel()
	r.mu.Lock()
	r.books.drain()
	r.mu.Unlock()
	signal(r.due)
	for ctx.Err() == nil {
		reply, err := r.sync(ctx, true)
		if err == nil && len(reply.Held) == 0 {
			r.finishLosing(ctx)
			return
		}
		retry := time.NewTimer(r.cfg.TTL / 12)
		select {
		case <-ctx.Done():
		case <-r.released:
		case <-retry.C:
		}
		retry.Stop()
	}
}

func (r *run) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.books.shards) > 0
}

// work calls the Handler until over is closed: first what is to be lost, then what was gained, by shard.
func (r *run) work(ctx context.Context) {
	for {
		if !r.step(ctx) {
			select {
			case <-r.over:
				if !r.step(ctx) { // the last changes of the books
					return
				}
			case <-r.due:
			}
		}
	}
}

// step makes one call, and is false if none is due.
func (r *run) step(ctx context.Context) bool {
	r.mu.Lock()
	s, h, lose := r.books.next(losing)
	if !lose {
		var gain bool
		if s, h, gain = r.books.next(granted); !gain {
			r.mu.Unlock()
			return false
		}
		h.state = serving
		r.stats.Gained++
	} else {
		r.stats.Lost++
	}
	token := h.token
	r.books.calling = time.Now()
	r.mu.Unlock()

	if lose {
		r.cfg.Logger.Info("shard lost", "group", r.group, "shard", s, "token", token)
		call, cancel := context.WithTimeout(ctx, r.cfg.LostTimeout)
		r.handler.Lost(call, s)
		cancel()
	} else {
		r.cfg.Logger.Info("shard gained", "group", r.group, "shard", s, "token", token)
		r.handler.Gained(s, token)
	}

	r.mu.Lock()
	r.books.calling = time.Time{}
	if lose {
		r.books.lost(s)
	}
	_, _, more := r.books.next(losing)
	r.mu.Unlock()
	if lose && !more {
		signal(r.released)
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
