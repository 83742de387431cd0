package tiered

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// OrdinaryTier is what carries all tiles: redisfanout, or memfanout.
type OrdinaryTier interface {
	fanout.Publisher
	fanout.Subscriber
	fanout.HintPublisher
	fanout.HintSubscriber
	fanout.Audience
}

// BrokerTier is what carries the tiles that very many processes watch: natsfanout, or memfanout.
type BrokerTier interface {
	fanout.Publisher
	fanout.Subscriber
	fanout.PresencePublisher
	fanout.PresenceSubscriber
}

// Fanout publishes to and subscribes from two tiers. It implements the four interfaces of package fanout.
type Fanout struct {
	cfg      Config
	ordinary OrdinaryTier
	broker   BrokerTier
	process  uint64 // this process, in presence

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines, none of which starts after Close

	pub publishing
	sub subscribing
}

var (
	_ fanout.Publisher      = (*Fanout)(nil)
	_ fanout.Subscriber     = (*Fanout)(nil)
	_ fanout.HintPublisher  = (*Fanout)(nil)
	_ fanout.HintSubscriber = (*Fanout)(nil)
)

// Check implements fence.Checker with what is wrong with the servers of both tiers.
func (f *Fanout) Check(ctx context.Context) (wrong []error) {
	for _, tier := range []any{f.ordinary, f.broker} {
		if c, ok := tier.(fence.Checker); ok {
			wrong = append(wrong, c.Check(ctx)...)
		}
	}
	return wrong
}

// EnterWorld implements fence.WorldKeeper with the tiers that keep a world. The answer is that of the ordinary tier,
// if it keeps one: a broker that cannot be asked stops nothing, since the ordinary tier carries all tiles without it.
func (f *Fanout) EnterWorld(ctx context.Context, w fence.World) (found fence.World, err error) {
	found = w
	ordinary, ok := f.ordinary.(fence.WorldKeeper)
	if ok {
		if found, err = ordinary.EnterWorld(ctx, w); err != nil {
			return found, err
		}
	}
	broker, keeps := f.broker.(fence.WorldKeeper)
	if !keeps {
		return found, nil
	}
	of, err := broker.EnterWorld(ctx, w)
	switch {
	case errors.Is(err, fence.ErrWorld) || !ok:
		return of, err
	case err != nil:
		f.cfg.Logger.Debug("not known whether the broker tier is that of another world", "error", err)
	}
	return found, nil
}

// New returns a Fanout before two tiers; it does no I/O and starts nothing. A nil cfg means all defaults. A
// *fence.ArgumentError names a tier that is missing, or a setting that is negative.
func New(ordinary OrdinaryTier, broker BrokerTier, cfg *Config) (*Fanout, error) {
	if ordinary == nil {
		return nil, &fence.ArgumentError{Field: "ordinary", Value: "nil", Want: "a fan-out that carries all tiles"}
	}
	if broker == nil {
		return nil, &fence.ArgumentError{Field: "broker", Value: "nil", Want: "a fan-out for tiles with many watchers"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fanout{cfg: c, ordinary: ordinary, broker: broker, process: rand.Uint64()}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.pub.tiles = map[fence.TileID]*tile{}
	f.sub.all = map[*subscription]struct{}{}
	f.sub.wake = make(chan struct{}, 1)
	return f, nil
}

// Close ends the goroutines that the Fanout has started and waits for them. Subscriptions that were not stopped go on,
// but say no longer that they hear the broker; so stop them first. Publish after Close uses the tiers as they were
// left. It is safe to call twice.
func (f *Fanout) Close() {
	f.cancel()
	f.pub.mu.Lock()
	f.pub.closed = true
	f.pub.mu.Unlock()
	f.sub.mu.Lock()
	f.sub.closed = true
	f.sub.mu.Unlock()
	f.wg.Wait()
	for _, t := range f.pub.present() {
		f.listen(t, nil)
	}
}

// PublishHints implements fanout.HintPublisher through the ordinary tier.
func (f *Fanout) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	return f.ordinary.PublishHints(ctx, tiles)
}

// SubscribeHints implements fanout.HintSubscriber through the ordinary tier.
func (f *Fanout) SubscribeHints(
	group int, deliver func(tiles []fence.TileID), up func(inForce bool),
) (stop func(), err error) {
	return f.ordinary.SubscribeHints(group, deliver, up)
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (f *Fanout) Stats() Stats {
	s := Stats{
		Moves: f.pub.moves.Load(), FellBack: f.pub.fellBack.Load(), Rescued: f.pub.rescued.Load(),
		Uncounted: f.pub.uncounted.Load(), Duplicates: f.sub.duplicates.Load(), Held: f.sub.held.Load(),
		Missed: f.sub.missed.Load(), PresenceLost: f.sub.presenceLost.Load(),
	}
	s.OnBoth, s.OnBroker = f.pub.count()
	s.Subscriptions, s.Joining = f.sub.count()
	return s
}

// counters of the publishing side.
type pubCounters struct{ moves, fellBack, rescued, uncounted atomic.Uint64 }

// counters of the subscribing side.
type subCounters struct{ duplicates, held, missed, presenceLost atomic.Uint64 }
