package players

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// Fleet is all bots of a process.
type Fleet struct {
	cfg  *Config
	bots []*Bot
}

// New makes so many bots, which share the tiles of a world.
func New(n int, world []fence.TileID, cfg *Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg}
	all := &seas{tiles: world}
	for i := range n {
		b, err := newBot(i, n, all, cfg)
		if err != nil {
			return nil, err
		}
		f.bots = append(f.bots, b)
	}
	return f, nil
}

// Stats are the counters of all connections to relays.
func (f *Fleet) Stats() (sum relayclient.Stats) {
	for _, b := range f.bots {
		s := b.stats()
		sum.Bytes += s.Bytes
		sum.Syncs += s.Syncs
		sum.Gaps += s.Gaps
		sum.Repaired += s.Repaired
		sum.Resyncs += s.Resyncs
		sum.Corrupt += s.Corrupt
	}
	return sum
}

// Result is how a battle ended for its bots.
type Result struct {
	Played    time.Duration
	Converged bool   // the view of every bot equals the state of its tile's owner
	Why       string // not
}

// Play lets the bots play until ctx ends, calls over, and compares what they saw with what the owners decided, unless
// the battle has failed.
func (f *Fleet) Play(ctx context.Context, over func()) (r Result) {
	began := time.Now()
	playing, stopPlaying := context.WithCancel(context.Background())
	watching, stopWatching := context.WithCancel(context.Background())
	var bots sync.WaitGroup
	bots.Go(func() {
		if err := f.Run(watching, playing); err != nil {
			f.cfg.Fail(err)
		}
	})
	<-ctx.Done()
	over()
	stopPlaying()
	r.Played = time.Since(began)
	if !f.cfg.Failed(ctx) {
		r.Converged, r.Why = f.converged(context.WithoutCancel(ctx))
	}
	stopWatching()
	bots.Wait()
	return r
}

// joinEvery spaces the bots' arrivals: a thousand join in two seconds. No more than joinAtOnce are on their way, since
// a ledger that cannot keep up lets them wait until they give up, and come again. They begin to play when all are
// there.
const (
	joinEvery  = 2 * time.Millisecond
	joinAtOnce = 16
)

// Run lets the bots play until playing ends and watch until ctx ends.
func (f *Fleet) Run(ctx, playing context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	joining, begin := make(chan struct{}, joinAtOnce), make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(f.bots)))
	for _, b := range f.bots {
		select {
		case joining <- struct{}{}:
		case <-ctx.Done():
			return g.Wait()
		}
		g.Go(func() error {
			joined := sync.OnceValue(func() <-chan struct{} {
				if <-joining; left.Add(-1) == 0 {
					close(begin)
				}
				return begin
			})
			defer joined()
			if err := b.run(ctx, playing, f.cfg.Relay, f.cfg.Gateway, joined); ctx.Err() == nil {
				return err
			}
			return nil // told to leave while it was still joining
		})
		if !wait.For(ctx, joinEvery) {
			return g.Wait()
		}
	}
	return g.Wait()
}

// convergeWithin is how long the views may take to equal the owners' state once no bot plays. A relay gives a
// store that was set back 30 s to come forward again before it believes it.
const convergeWithin = 45 * time.Second

// converged compares the areas that every bot sees with its tile's owner, at the same position, until all agree or
// time is up. A ship may still return by itself, so owner and watchers are read again until they meet.
func (f *Fleet) converged(ctx context.Context) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, convergeWithin)
	defer cancel()
	open := f.bots
	var why string
	for len(open) > 0 {
		owners := map[fence.TileID]OwnerState{}
		var still []*Bot
		for _, b := range open {
			id := b.where()
			owner, ok := owners[id]
			if !ok {
				var err error
				if owner, err = f.cfg.Owner(ctx, id); err != nil {
					why = fmt.Sprintf("tile %s: its state cannot be read: %v", id, err)
				}
				owners[id] = owner
			}
			if owner.Areas == nil {
				still = append(still, b)
			} else if differs := b.differs(&owner); differs != "" {
				still, why = append(still, b), differs
			}
		}
		open = still
		if !wait.For(ctx, 100*time.Millisecond) {
			return len(open) == 0, why
		}
	}
	return true, ""
}
