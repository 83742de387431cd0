package redisfanout

import (
	"context"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// PublishHints implements fanout.HintPublisher: one message a group, one pipeline a node, all nodes at
// once, tried once. A *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already;
// nothing is sent then. Otherwise, if not all hints were handed over, a *PublishError.
func (f *Fanout) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	groups, err := hub.ByGroup(tiles)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &fence.StoreError{Op: "publish hints", Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	f.nodes.refresh(ctx)
	var (
		all   pipelines
		errs  []error // by message
		of    []int   // by message, its group
		first error
	)
	for g := range groups {
		channel := fanout.HintChannel(g)
		for part := range slices.Chunk(groups[g], fanout.MaxHints) {
			i := len(errs)
			errs, of = append(errs, nil), append(of, g)
			node, err := f.nodes.master(ctx, channel)
			if err != nil {
				errs[i] = &unsentError{err}
				continue
			}
			p := all.of(node)
			p.pipe.SPublish(ctx, channel, fanout.AppendHints(make([]byte, 0, 3+8*len(part)), part))
			p.messages = append(p.messages, i)
		}
	}
	f.send(ctx, all, errs)
	var failed [fanout.HintGroups]error
	for i, err := range errs {
		if err != nil {
			failed[of[i]] = err
			first = err
		}
	}
	if first == nil {
		f.hintsSent.Add(uint64(len(tiles)))
		return nil
	}
	return f.unsentHints(ctx, tiles, &failed)
}

// unsentHints is the error of a PublishHints of which the groups with an error in failed were not handed
// over, or not all of their messages.
func (f *Fanout) unsentHints(ctx context.Context, tiles []fence.TileID, failed *[fanout.HintGroups]error) error {
	e := &PublishError{what: "hints", errs: make([]error, len(tiles))}
	for i, t := range tiles {
		err := failed[fanout.HintGroupOf(t)]
		if err == nil {
			continue
		}
		e.errs[i] = err
		e.count++
		if e.first == nil {
			e.first = &fence.StoreError{Op: "publish hints", Tile: t, Outcome: outcomeOf(err), Err: err}
		}
	}
	f.hintsSent.Add(uint64(len(tiles) - e.count))
	f.hintsUnsent.Add(uint64(e.count))
	f.nodes.reload(ctx)
	return e
}

// SubscribeHints implements fanout.HintSubscriber. Subscriptions to one group share one SSUBSCRIBE, and
// the connections of the tiles' channels. A lost connection is noticed at once, a silent one after three
// of Config.PingInterval.
func (f *Fanout) SubscribeHints(group int, deliver func([]fence.TileID), up func(inForce bool)) (func(), error) {
	if err := hub.ValidHints(group, deliver, up); err != nil {
		return nil, err
	}
	stopLocal := f.hints.Subscribe(group, deliver)
	s, c := f.retain(fanout.HintChannel(group), func(data string) { f.receiveHints(group, data) })
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		watch(s, c, quit, up)
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			close(quit)
			stopLocal()
			<-done
			f.release(s, c)
		})
	}, nil
}

// receiveHints takes a message of a group from Redis.
func (f *Fanout) receiveHints(group int, data string) {
	tiles, err := fanout.DecodeHints(group, []byte(data))
	if err != nil {
		f.badHints.Add(1)
		if f.cfg.Hooks.BadHints != nil {
			f.cfg.Hooks.BadHints(group, err)
		}
		return
	}
	f.hintsReceived.Add(uint64(len(tiles)))
	f.hintsDropped.Add(uint64(f.hints.Publish(group, tiles, 8*len(tiles)) * len(tiles)))
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
