package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
)

// auditEvery is how often the auditor looks. It does not see what comes and goes in between.
const auditEvery = 30 * time.Millisecond

// observers see what was committed: an auditor that reads the stores, and watchers of the relays that fold what reaches
// them.
type observers struct {
	recorder *history.Recorder
	log      stream.Log
	watchers []*watcher
	wg       sync.WaitGroup
}

// watcher is a client of the relay that holds every tile's state.
type watcher struct {
	name     string
	client   *relayclient.Client
	balancer balancer

	mu     sync.Mutex
	tiles  map[fence.TileID]*game.Register
	resets map[fence.TileID]fence.Position // where a state from scratch is complete, while it is not
	err    error
}

// start observes until ctx ends; then stop waits.
func (o *observers) start(ctx context.Context, tiles []fence.TileID, relays []string, watchers int) error {
	auditor := o.recorder.Auditor("auditor", o.log)
	o.wg.Go(func() { auditor.Run(ctx, tiles, auditEvery) })

	for i := range watchers {
		w, err := o.watch(ctx, fmt.Sprintf("watcher-%d", i), relays, tiles)
		if err != nil {
			return err
		}
		o.watchers = append(o.watchers, w)
	}
	return nil
}

func (o *observers) watch(ctx context.Context, name string, relays []string, tiles []fence.TileID) (*watcher, error) {
	w := &watcher{name: name, tiles: map[fence.TileID]*game.Register{}, resets: map[fence.TileID]fence.Position{}}
	w.balancer.relays = relays
	client, err := relayclient.Dial(ctx, "ws://relays", &relayclient.Config{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: w.balancer.dial}},
		Reconnect:  true, BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second,
		Sync: func(s relayclient.Sync) {
			if w.restore(s) {
				o.recorder.Reset(name, s.Tile, s.Position)
			}
		},
		Frame: func(f fence.Entry) {
			switch complete, reset := w.apply(&f); {
			case reset && complete:
				o.recorder.Reset(name, f.Tile, f.Position)
			case !reset:
				o.recorder.Frame(name, &f)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	w.client = client
	o.wg.Go(func() { w.balancer.hop(ctx) })
	return w, client.Subscribe(ctx, tiles...)
}

// balancer is the load balancer between a watcher and the relays: each connection goes to the next of them, and none
// lasts long.
type balancer struct {
	relays []string

	mu   sync.Mutex
	made int
	conn net.Conn // the one that lasts
}

// hopEvery is how often a watcher changes its relay.
const hopEvery = 1500 * time.Millisecond

func (b *balancer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	b.mu.Lock()
	to := b.relays[b.made%len(b.relays)]
	b.made++
	b.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, network, to)
	if err == nil {
		b.mu.Lock()
		b.conn = c
		b.mu.Unlock()
	}
	return c, err
}

// hop ends connections until ctx ends.
func (b *balancer) hop(ctx context.Context) {
	for {
		select {
		case <-time.After(hopEvery):
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		if b.conn != nil {
			_ = b.conn.Close()
		}
		b.mu.Unlock()
	}
}

// restore takes a state from scratch. It is complete at once, or with the frames that follow.
func (w *watcher) restore(s relayclient.Sync) (complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &game.Register{}
	err := r.Restore(s.Snapshot.Blob)
	w.tiles[s.Tile] = r
	w.err = errors.Join(w.err, err)
	delete(w.resets, s.Tile)
	if s.Snapshot.Position != s.Position {
		w.resets[s.Tile] = s.Position
	}
	return s.Snapshot.Position == s.Position
}

// apply folds a frame; reset says that it is part of a state from scratch, complete that it ends that.
func (w *watcher) apply(f *fence.Entry) (complete, reset bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, reset := w.resets[f.Tile]
	if complete = f.Position == until; complete {
		delete(w.resets, f.Tile)
	}
	r := w.tiles[f.Tile]
	if r == nil {
		w.err = errors.Join(w.err, fmt.Errorf("tile %s: a frame arrived before any state", f.Tile))
		return complete, reset
	}
	w.err = errors.Join(w.err, r.Fold(f))
	return complete, reset
}

// at is where a watcher is.
func (w *watcher) at(id fence.TileID) (fence.Position, string) {
	at, _ := w.client.Position(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.tiles[id]; r != nil {
		return at, r.Digest()
	}
	return at, ""
}

func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (o *observers) stop() {
	for _, w := range o.watchers {
		_ = w.client.Close()
	}
	o.wg.Wait()
}
