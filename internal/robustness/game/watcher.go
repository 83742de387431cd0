package game

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// Watcher is a client of relays that holds the state of tiles, and records what it is shown.
type Watcher struct {
	Name     string
	client   *relayclient.Client
	recorder *history.Recorder

	mu     sync.Mutex
	tiles  map[fence.TileID]*Register
	resets map[fence.TileID]fence.Position // where a state from scratch is complete, while it is not
	err    error
}

// Watch connects a watcher, which connects again whenever it has to. dial makes its connections.
func Watch(ctx context.Context, recorder *history.Recorder, name string,
	dial func(ctx context.Context, network, addr string) (net.Conn, error), tiles ...fence.TileID) (*Watcher, error) {
	w := &Watcher{Name: name, recorder: recorder, tiles: map[fence.TileID]*Register{},
		resets: map[fence.TileID]fence.Position{}}
	var err error
	w.client, err = relayclient.Dial(ctx, "ws://relays", &relayclient.Config{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}},
		Reconnect:  true, BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second,
		Sync: w.sync, Frame: w.frame,
	})
	if err != nil {
		return nil, err
	}
	return w, w.client.Subscribe(ctx, tiles...)
}

// sync takes a state from scratch. It is complete at once, or with the frames that follow.
func (w *Watcher) sync(s relayclient.Sync) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Register{}
	err := r.Restore(s.Snapshot.Blob)
	w.tiles[s.Tile] = r
	w.err = errors.Join(w.err, err)
	delete(w.resets, s.Tile)
	if s.Snapshot.Position == s.Position {
		w.recorder.Reset(w.Name, s.Tile, s.Position)
	} else {
		w.resets[s.Tile] = s.Position
	}
}

// frame folds a frame, which may be a part of a state from scratch, or its end.
func (w *Watcher) frame(f fence.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch until, reset := w.resets[f.Tile]; {
	case !reset:
		w.recorder.Frame(w.Name, &f)
	case f.Position == until:
		delete(w.resets, f.Tile)
		w.recorder.Reset(w.Name, f.Tile, f.Position)
	}
	r := w.tiles[f.Tile]
	if r == nil {
		w.err = errors.Join(w.err, fmt.Errorf("tile %s: a frame arrived before any state", f.Tile))
		return
	}
	w.err = errors.Join(w.err, r.Fold(&f))
}

// At is where a watcher is in a tile, with a digest of the state that it holds.
func (w *Watcher) At(id fence.TileID) (fence.Position, string) {
	at, _ := w.client.Position(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.tiles[id]; r != nil {
		return at, r.Digest()
	}
	return at, ""
}

// Err is what went wrong: a state or a frame that could not be folded.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the watcher.
func (w *Watcher) Close() { _ = w.client.Close() } // the connection's end is no news
