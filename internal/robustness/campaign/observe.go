package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

// auditEvery is how often the auditor looks. It does not see what comes and goes in between.
const auditEvery = 30 * time.Millisecond

// observers see what was committed: an auditor that reads the stores, and a bridge, a relay
// and watchers that fold what reaches them.
type observers struct {
	recorder *history.Recorder
	log      stream.Log
	watchers []*watcher
	wg       sync.WaitGroup
}

// watcher is a client of the relay that holds every tile's state.
type watcher struct {
	name   string
	client *relayclient.Client

	mu     sync.Mutex
	tiles  map[fence.TileID]*game.Register
	resets map[fence.TileID]fence.Position // where a state from scratch is complete, while it is not
	err    error
}

// start observes until ctx ends; then stop waits.
func (o *observers) start(ctx context.Context, tiles []fence.TileID, watchers int) error {
	auditor := o.recorder.Auditor("auditor", o.log)
	o.wg.Go(func() { auditor.Run(ctx, tiles, auditEvery) })

	broker := memfanout.New()
	b, err := bridge.New(o.log, o.recorder.Publisher("bridge", broker), tiles, nil)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// The relay's timeouts are as short as the campaign's faults.
	everyTile := func(context.Context, session.Identity, fence.TileID) error { return nil }
	back := tilefence.Backends{Log: o.log, Fanout: broker,
		Tiles: func(fence.TileID) error { return nil }} // a run's are random numbers
	r, err := tilefence.NewRelayServer(l.Addr().String(), back, everyTile,
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: l}, Relay: relay.Config{
			CheckInterval: 500 * time.Millisecond, BehindGrace: 3 * time.Second, StoreTimeout: time.Second,
			DrainWindow: time.Millisecond}})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	o.wg.Go(func() { _ = tilefence.Run(ctx, b, r) })
	for i := range watchers {
		w, err := o.watch(ctx, fmt.Sprintf("watcher-%d", i), "ws://"+l.Addr().String(), tiles)
		if err != nil {
			return err
		}
		o.watchers = append(o.watchers, w)
	}
	return nil
}

func (o *observers) watch(ctx context.Context, name, url string, tiles []fence.TileID) (*watcher, error) {
	w := &watcher{name: name, tiles: map[fence.TileID]*game.Register{}, resets: map[fence.TileID]fence.Position{}}
	client, err := relayclient.Dial(ctx, url, &relayclient.Config{
		Reconnect: true, BackoffMax: time.Second,
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
	return w, client.Subscribe(ctx, tiles...)
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
