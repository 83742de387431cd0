package tiered

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Publish implements fanout.Publisher: each message on the tiers that carry its tile, both at once, tried once. What
// the broker alone should have carried and did not take goes to the ordinary tier in the same call. A
// *fence.ArgumentError if a tile is zero, the context's cause if ctx has ended already; nothing is sent then.
// Otherwise, if not all messages were handed over, a *fanout.PublishError, or the error of an ordinary tier that
// carries all of them.
func (f *Fanout) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	states, split := f.states(messages)
	if !split {
		return f.ordinary.Publish(ctx, messages)
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := hub.ValidMessages(messages); err != nil {
		return 0, err
	}
	ordinary, broker := &batch{all: messages}, &batch{all: messages}
	for i, s := range states {
		if s != Broker {
			ordinary.add(i)
		}
		if s != Ordinary {
			broker.add(i)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { broker.publish(ctx, f.broker) })
	ordinary.publish(ctx, f.ordinary)
	wg.Wait()
	rescue := f.fallBack(states, broker)
	rescue.publish(ctx, f.ordinary)
	return f.outcome(messages, states, ordinary, broker, rescue)
}

// batch is what one tier gets of a call, in order.
type batch struct {
	all      []fanout.Message
	messages []fanout.Message
	of       []int // by message, its place in all
	handed   []bool
	err      error
}

func (b *batch) add(i int) {
	b.messages, b.of = append(b.messages, b.all[i]), append(b.of, i)
}

func (b *batch) publish(ctx context.Context, to fanout.Publisher) {
	b.handed = make([]bool, len(b.all))
	if len(b.messages) == 0 {
		return
	}
	sent, err := to.Publish(ctx, b.messages)
	b.err = err
	partial, knows := errors.AsType[*fanout.PublishError](err)
	for k, i := range b.of {
		b.handed[i] = k < sent || knows && partial.Handed[k]
	}
}

// fallBack returns the messages that go to the ordinary tier because the broker has not taken them: those of every tile
// that the broker alone carries and that lacks one, from the first such message on, so that their order holds. For a
// while these tiles, and those that both carry, go by the ordinary tier alone.
func (f *Fanout) fallBack(states []State, broker *batch) *batch {
	rescue := &batch{all: broker.all}
	if broker.err == nil {
		return rescue
	}
	failed := map[fence.TileID]bool{}
	for i := range broker.all {
		tile := broker.all[i].Tile
		if states[i] != Ordinary && !broker.handed[i] {
			failed[tile] = true
		}
		if states[i] == Broker && failed[tile] {
			rescue.add(i)
		}
	}
	for tile := range failed {
		f.brokerFailed(tile)
	}
	f.pub.rescued.Add(uint64(len(rescue.messages)))
	return rescue
}

// outcome decides which messages were handed over.
func (f *Fanout) outcome(messages []fanout.Message, states []State, ordinary, broker, rescue *batch) (int, error) {
	handed := make([]bool, len(messages))
	sent := len(messages)
	for i := range messages {
		switch states[i] {
		case Broker:
			handed[i] = broker.handed[i] || rescue.handed[i]
		case Both:
			handed[i] = ordinary.handed[i] || broker.handed[i] && f.brokerSuffices(messages[i].Tile)
		default:
			handed[i] = ordinary.handed[i]
		}
		if !handed[i] {
			sent = min(sent, i)
		}
	}
	f.noteOrdinary(messages, states, ordinary)
	if sent == len(messages) {
		return sent, nil
	}
	return sent, &fanout.PublishError{Handed: handed, Err: errors.Join(ordinary.err, broker.err, rescue.err)}
}

// states counts the messages and returns by which tiers each goes. split is false if the ordinary tier has them all.
func (f *Fanout) states(messages []fanout.Message) (states []State, split bool) {
	p := &f.pub
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var t *tile
	for i := range messages {
		m := &messages[i]
		if m.Tile == 0 {
			continue // refused below
		}
		if t == nil || t.id != m.Tile {
			t = p.of(m.Tile, now)
		}
		t.bytes += len(m.Data)
		route := f.route(t, now, p.looked)
		if route != Ordinary && states == nil {
			states = make([]State, len(messages))
			for k := range states[:i] {
				states[k] = Ordinary
			}
		}
		if states != nil {
			states[i] = route
		}
	}
	f.due(now)
	return states, states != nil
}
