package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// Where a worker takes orders, beside intents.
const (
	pathOwn       = "/robustness/own"       // POST ?tile=&follow=
	pathStatus    = "/robustness/status"    // GET: []tileStatus
	pathHeld      = "/robustness/held"      // GET ?tile=: heldState
	pathAccidents = "/robustness/accidents" // POST ?server=redis|postgres&answers=&requests=, in thousandths
)

// tileStatus is a worker's word on one of its tiles.
type tileStatus struct {
	Tile     fence.TileID
	State    string
	Epoch    fence.Epoch
	Position string
	Pending  bool
	For      time.Duration // in this state
	Err      string        // of a processor that has ended
}

// heldState is the state an owner holds.
type heldState struct {
	Position string
	Digest   string
}

// taking reports whether the processor is on its way to a tile.
func (t *tileStatus) taking() bool {
	return t.State == tile.Claiming.String() || t.State == tile.Replaying.String() ||
		t.State == tile.Installing.String()
}

func (w *worker) handler(intents *tilehttp.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, intents)
	mux.HandleFunc("POST "+pathOwn, func(rw http.ResponseWriter, r *http.Request) {
		id, err := fence.ParseTileID(r.FormValue("tile"))
		if err == nil {
			err = w.own(id, r.FormValue("follow") != "")
		}
		answer(rw, nil, err)
	})
	mux.HandleFunc("GET "+pathStatus, func(rw http.ResponseWriter, _ *http.Request) { answer(rw, w.status(), nil) })
	mux.HandleFunc("GET "+pathHeld, func(rw http.ResponseWriter, r *http.Request) {
		id, err := fence.ParseTileID(r.FormValue("tile"))
		var held heldState
		if err == nil {
			held, err = w.held(r.Context(), id)
		}
		answer(rw, held, err)
	})
	mux.HandleFunc("POST "+pathAccidents, func(rw http.ResponseWriter, r *http.Request) {
		to := &w.toRedis
		if r.FormValue("server") == "postgres" {
			to = &w.toRows
		}
		answers, err1 := strconv.ParseInt(r.FormValue("answers"), 10, 64)
		requests, err2 := strconv.ParseInt(r.FormValue("requests"), 10, 64)
		if err1 != nil || err2 != nil {
			http.Error(rw, "answers and requests are numbers", http.StatusBadRequest)
			return
		}
		to.answersLost.Store(answers)
		to.requestsLost.Store(requests)
		answer(rw, nil, nil)
	})
	return mux
}

func answer(rw http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(rw).Encode(v) // the caller may have gone
}

func (w *worker) status() []tileStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []tileStatus
	for id, o := range w.tiles {
		s := o.processor.Status()
		t := tileStatus{Tile: id, State: s.State.String(), Epoch: s.Epoch, Position: s.Position.String(),
			Pending: s.Pending, For: time.Since(s.Since)}
		if o.hasEnded() && o.err != nil {
			t.Err = o.err.Error()
		}
		all = append(all, t)
	}
	return all
}

func (w *worker) held(ctx context.Context, id fence.TileID) (heldState, error) {
	w.mu.Lock()
	o := w.tiles[id]
	w.mu.Unlock()
	if o == nil {
		return heldState{}, fmt.Errorf("tile %s is not run here", id)
	}
	var held heldState
	err := o.processor.Inspect(ctx, func(r tile.Rules, at fence.Position) {
		held = heldState{Position: at.String(), Digest: r.(*game.Register).Digest()}
	})
	return held, err
}

// controller gives orders to workers.
type controller struct{ http *http.Client }

func newController() *controller {
	return &controller{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4,
		IdleConnTimeout: 5 * time.Second}}}
}

func (c *controller) own(ctx context.Context, contact string, id fence.TileID) error {
	return c.ask(ctx, http.MethodPost, contact, pathOwn, url.Values{"tile": {id.String()}}, nil)
}

func (c *controller) follow(ctx context.Context, contact string, id fence.TileID) error {
	return c.ask(ctx, http.MethodPost, contact, pathOwn, url.Values{"tile": {id.String()}, "follow": {"yes"}}, nil)
}

func (c *controller) accidents(ctx context.Context, contact, server string, answers, requests int) error {
	return c.ask(ctx, http.MethodPost, contact, pathAccidents, url.Values{"server": {server},
		"answers": {strconv.Itoa(answers)}, "requests": {strconv.Itoa(requests)}}, nil)
}

func (c *controller) status(ctx context.Context, contact string) (all []tileStatus, err error) {
	err = c.ask(ctx, http.MethodGet, contact, pathStatus, nil, &all)
	return all, err
}

func (c *controller) held(ctx context.Context, contact string, id fence.TileID) (h heldState, err error) {
	err = c.ask(ctx, http.MethodGet, contact, pathHeld, url.Values{"tile": {id.String()}}, &h)
	return h, err
}

func (c *controller) ask(ctx context.Context, method, contact, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+contact+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s%s: %s", method, contact, path, body)
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}
