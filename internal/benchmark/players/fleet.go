package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/tile/region"
)

// fleet is all bots of a process.
type fleet struct {
	*plan
	bots       []*bot
	relayURL   string
	gatewayURL string
}

func newFleet(p *plan, relayURL, gatewayURL string) (*fleet, error) {
	world := p.world
	grounds := make([]game.Ground, len(world))
	for i, id := range world {
		r, err := region.Of(id)
		if err != nil {
			return nil, err
		}
		grounds[i] = r
	}
	f := &fleet{plan: p, relayURL: relayURL, gatewayURL: gatewayURL}
	p.wantFiles(2 * p.options.clients)
	for i := range p.options.clients {
		b, err := newBot(i, world[i%len(world)], grounds[i%len(world)], p)
		if err != nil {
			return nil, err
		}
		f.bots = append(f.bots, b)
	}
	p.fleet.Store(f) // the page reads it while the battle begins
	return f, nil
}

// stats are the counters of all connections to relays.
func (f *fleet) stats() (sum relayclient.Stats) {
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

// play lets the bots play until ctx ends, calls over, and compares what they saw with what the owners decided.
func (f *fleet) play(ctx context.Context, r *report, over func()) {
	began := time.Now()
	playing, stopPlaying := context.WithCancel(context.Background())
	stopBots := f.start(func(ctx context.Context) error { return f.run(ctx, playing) })
	<-ctx.Done()
	over()
	stopPlaying()
	r.Seconds = time.Since(began).Seconds()
	if failed(ctx) == nil {
		r.Converged, r.Why = f.converged(context.WithoutCancel(ctx))
	}
	stopBots()
}

// joinEvery spaces the bots' arrivals: a thousand join in two seconds. No more than joinAtOnce are on their way, since
// a ledger that cannot keep up lets them wait until they give up, and come again. They begin to play when all are
// there.
const (
	joinEvery  = 2 * time.Millisecond
	joinAtOnce = 16
)

// run plays until playing ends and watches until ctx ends.
func (f *fleet) run(ctx, playing context.Context) error {
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
			if err := b.run(ctx, playing, f.relayURL, f.gatewayURL, joined); ctx.Err() == nil {
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

// convergeWithin is how long the views may take to equal the owners' state once nobody plays. A relay gives a
// store that was set back 30 s to come forward again before it believes it.
const convergeWithin = 45 * time.Second

// converged compares the areas that every bot sees with its tile's owner, at the same position, until all agree or
// time is up. A ship may still return by itself, so owner and watchers are read again until they meet.
func (f *fleet) converged(ctx context.Context) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, convergeWithin)
	defer cancel()
	open := f.bots
	var why string
	for len(open) > 0 {
		owners := map[fence.TileID]tileState{}
		var still []*bot
		for _, b := range open {
			owner, ok := owners[b.tile]
			if !ok {
				var err error
				if owner, err = f.ownerState(ctx, b.tile); err != nil {
					why = fmt.Sprintf("tile %s: its owner does not say its state: %v", b.tile, err)
				}
				owners[b.tile] = owner
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

// ownerState asks the tile's owner for its state, at the contact the owner hash names.
func (f *fleet) ownerState(ctx context.Context, id fence.TileID) (tileState, error) {
	o, err := f.backends.Store.Owner(ctx, id)
	if err != nil {
		return tileState{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		f.secure.url("http", o.Contact+"/state?tile="+id.String()), nil)
	if err != nil {
		return tileState{}, err
	}
	response, err := f.secure.actor().Do(request)
	if err != nil {
		return tileState{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return tileState{}, fmt.Errorf("%s answers %s", o.Contact, response.Status)
	}
	var s tileState
	err = json.NewDecoder(response.Body).Decode(&s)
	return s, err
}
