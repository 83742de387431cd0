//go:build unix

package campaign

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/tile"
)

// order is what a worker is to do. The zero order is nothing but a question. Orders and reports are gob.
type order struct {
	Own     fence.TileID // take it from its owner
	Give    fence.TileID // hand it over to the worker at To
	To      string
	Follow  fence.TileID // become its warm follower, unless it is run here
	Inspect fence.TileID // report the state that is held of it

	// Resets gives the connections to a server ("redis", "postgres", "dynamodb"), or those of
	// clients ("clients"), accidents. Empty: none are changed.
	Resets            string
	Answers, Requests int64  // lost, of a thousand
	Throttled         int64  // of a thousand requests to the durable store, if Resets names it
	Refuses           string // the address that refuses every new connection; empty for none
}

// report is a worker's answer.
type report struct {
	Tiles map[fence.TileID]tileStatus // that the worker runs, or has run
	Held  heldState                   // of Inspect
}

// tileStatus is a worker's word on one of its tiles.
type tileStatus struct {
	tile.Status
	Err string // of a processor that has ended
}

// heldState is the state an owner holds.
type heldState struct {
	Position fence.Position
	Digest   string
	UnderWay int // travellers that have left the tile and may come back
}

// taking reports whether the processor is on its way to a tile.
func (t *tileStatus) taking() bool {
	return t.State == tile.Claiming || t.State == tile.Replaying || t.State == tile.Installing
}

func (w *worker) takeOrder(rw http.ResponseWriter, req *http.Request) {
	var o order
	var answer report
	err := gob.NewDecoder(req.Body).Decode(&o)
	if err == nil {
		answer.Held, err = w.obey(req.Context(), &o)
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Tiles = w.status()
	_ = gob.NewEncoder(rw).Encode(answer) // the caller may have gone
}

func (w *worker) obey(ctx context.Context, o *order) (held heldState, err error) {
	if to := w.accidents(o.Resets); to != nil {
		to.answersLost.Store(o.Answers)
		to.requestsLost.Store(o.Requests)
		to.refuses.Store(&o.Refuses)
		if to == &w.toBase {
			w.throttle.Share.Store(o.Throttled)
		}
	}
	switch {
	case o.Own != 0:
		return held, w.host.TakeOver(o.Own)
	case o.Give != 0:
		// The supervisor looks at what comes of it.
		go func() { _ = w.host.Drain(context.Background(), o.Give, o.To) }()
	case o.Follow != 0:
		return held, w.host.Follow(o.Follow)
	case o.Inspect != 0:
		p := w.host.Processor(o.Inspect)
		if p == nil {
			return held, fmt.Errorf("tile %s is not run here", o.Inspect)
		}
		err = p.Inspect(ctx, func(r tile.Rules, at fence.Position) {
			held = heldState{Position: at, Digest: r.(*game.Register).Digest(), UnderWay: p.Status().UnderWay}
		})
	}
	return held, err
}

// accidents are those of the connections to a server; nil if there is none of that name.
func (w *worker) accidents(server string) *accidents {
	return map[string]*accidents{"redis": &w.toRedis, "postgres": &w.toRows, "dynamodb": &w.toBase,
		"clients": &w.toClients}[server]
}

func (w *worker) status() map[fence.TileID]tileStatus {
	w.mu.Lock()
	all := maps.Clone(w.ended)
	w.mu.Unlock()
	for _, s := range w.host.Status() {
		all[s.Tile] = tileStatus{Status: s}
	}
	return all
}

// controller gives orders to workers.
type controller struct{ http *http.Client }

func newController() *controller {
	return &controller{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4,
		IdleConnTimeout: 5 * time.Second}}}
}

func (c *controller) tell(ctx context.Context, contact string, o order) (r report, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(o); err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+contact, &text)
	if err != nil {
		return r, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		return r, fmt.Errorf("%s to do %+v: %s", contact, o, why)
	}
	return r, gob.NewDecoder(resp.Body).Decode(&r)
}
