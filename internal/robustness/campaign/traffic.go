//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// Times of the clients.
const (
	attemptTime = time.Second      // for one answer
	actionTime  = 15 * time.Second // for one action with all its retries; then its fate stays unknown
	thinkMin    = 10 * time.Millisecond
	thinkMax    = 40 * time.Millisecond
)

// traffic is the clients: one for each tile, so that a tile that hangs holds up no other, and players, see play. Each
// of the former sends one action after another and follows redirects; an action without an answer is sent
// again under its ID, and now and then one that has been answered.
type traffic struct {
	recorder *history.Recorder
	forward  *tilehttp.Client
	where    func(fence.TileID) string // contact of the owner, as far as is known; empty if it is not
	tiles    []fence.TileID

	ending atomic.Bool
	wg     sync.WaitGroup

	mu      sync.Mutex
	acked   map[fence.TileID]int
	lastAck map[fence.TileID]time.Time
	silence map[fence.TileID]time.Duration // the longest since watch was called
	since   time.Time
}

func newTraffic(
	r *history.Recorder, forward *tilehttp.Client, tiles []fence.TileID, where func(fence.TileID) string,
) *traffic {
	return &traffic{recorder: r, forward: forward, where: where, tiles: tiles,
		acked: map[fence.TileID]int{}, lastAck: map[fence.TileID]time.Time{}, silence: map[fence.TileID]time.Duration{}}
}

func (t *traffic) start(ctx context.Context, seed uint64) {
	for i, id := range t.tiles {
		t.client(ctx, fmt.Sprintf("client-%d", i), seed+uint64(i), id)
	}
}

// end lets every client finish its action.
func (t *traffic) end() {
	t.ending.Store(true)
	t.wg.Wait()
}

func (t *traffic) client(ctx context.Context, name string, seed uint64, id fence.TileID) {
	t.wg.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		routes := map[fence.TileID]string{}
		as := name
		for n := 1; !t.ending.Load() && ctx.Err() == nil; n++ {
			in := tile.Intent{Tile: id, ActionID: fmt.Sprintf("%s-%d", name, n), Actor: name}
			answered := t.act(ctx, as, in, routes)
			if !answered {
				as = fmt.Sprintf("%s-after-%d", name, n) // the old one still waits, for ever
			}
			pause := thinkMin + time.Duration(rng.Int64N(int64(thinkMax-thinkMin)))
			if answered && rng.IntN(20) == 0 {
				time.Sleep(pause)
				t.act(ctx, as, in, routes)
			}
			time.Sleep(pause)
		}
	})
}

// act sends an action until it is answered.
func (t *traffic) act(ctx context.Context, client string, in tile.Intent, routes map[fence.TileID]string) bool {
	deadline := time.Now().Add(actionTime)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		contact := routes[in.Tile]
		if contact == "" {
			contact = t.where(in.Tile)
		}
		if contact == "" {
			time.Sleep(thinkMin)
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		end := t.recorder.Submit(client, &in, contact)
		r, err := t.forward.Forward(attempt, contact, in)
		cancel()
		end(r.Outcome, err)
		if err == nil {
			routes[in.Tile] = contact
			t.heard(in.Tile)
			return true
		}
		routes[in.Tile] = next(err, contact)
		if routes[in.Tile] == "" {
			time.Sleep(thinkMin)
		}
	}
	return false
}

// next is where an error says the owner is; empty if it does not, or names the worker that has just been asked.
func next(err error, asked string) string {
	var redirect *tile.RedirectError
	var unresolved *tile.UnresolvedError
	contact := ""
	switch {
	case errors.As(err, &unresolved):
		contact = unresolved.Contact
	case errors.As(err, &redirect):
		contact = redirect.Contact
	}
	if contact == asked {
		return ""
	}
	return contact
}

func (t *traffic) heard(id fence.TileID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.acked[id]++
	t.note(id, now)
	t.lastAck[id] = now
}

// note counts the silence of a tile until now. The caller holds mu.
func (t *traffic) note(id fence.TileID, now time.Time) {
	if from := t.lastAck[id]; !t.since.IsZero() {
		if from.Before(t.since) {
			from = t.since
		}
		t.silence[id] = max(t.silence[id], now.Sub(from))
	}
}

// watch makes silences count from now on.
func (t *traffic) watch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
	clear(t.silence)
}

// longest is the longest silence of any tile since watch.
func (t *traffic) longest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var most time.Duration
	for _, id := range t.tiles {
		t.note(id, time.Now())
		most = max(most, t.silence[id])
	}
	return most
}

// answers is how many actions were answered.
func (t *traffic) answers() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, acked := range t.acked {
		n += acked
	}
	return n
}

// enough returns nil when every tile has answered n actions since a moment, or at all if it is zero.
func (t *traffic) enough(n int, since time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.tiles {
		if t.acked[id] < n {
			return fmt.Errorf("tile %s has answered %d actions of %d", id, t.acked[id], n)
		}
		if t.lastAck[id].Before(since) {
			return fmt.Errorf("tile %s has not answered for %v", id, time.Since(t.lastAck[id]).Round(time.Millisecond))
		}
	}
	return nil
}
