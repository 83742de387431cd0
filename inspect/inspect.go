// Package inspect is a page, and its JSON, on the tiles of a tilefence.TileServer, for the people who run a game, and a
// client that asks as the page does.
//
// A handler keeps nothing, and is safe for concurrent use. It asks the coordination store for the marks of the tiles at
// each request, for 0.5 s at most: what the server itself knows is shown when the store hangs.
package inspect

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// inspectTimeout bounds what one request asks of the coordination store, and a drain.
const inspectTimeout = 10 * time.Second

// marksTimeout bounds the reading of the marks: what the server itself knows is wanted most when the store hangs.
const marksTimeout = 500 * time.Millisecond

// Config holds the optional settings of an inspector. Nil and the zero value are valid.
type Config struct {
	// Decode explains a tile's state, as Rules.Snapshot has returned it, by what JSON can say. Default: its size.
	Decode func(id fence.TileID, snapshot []byte) (any, error)

	// Control adds buttons that take tiles over and drain them. Default: the inspector only reads.
	Control bool

	// Logger takes a line for each tile that a request has moved. Nil discards.
	Logger *slog.Logger
}

// New returns a handler of a page, and its JSON, on the tiles of a server: owners, epochs, positions, watermarks and
// how far behind they are, members, health, and the game's own state as of the last snapshot. Mount it under a path
// that ends with a slash:
//
//	inspector, err := inspect.New(server, b.Log, mayInspect, nil)
//	mux.Handle("/inspect/", http.StripPrefix("/inspect", inspector))
//
// authorize decides over every request, from its cookies or headers: an error refuses it with status 403. It must not
// be nil, since the state of a game is not for everybody. Requests that change something are POSTs, need
// Config.Control, and are refused if they come from a page of another origin.
//
// log is that of the server's back ends. Errors: a *fence.ArgumentError.
func New(
	s *tilefence.TileServer, log stream.Log, authorize func(*http.Request) error, cfg *Config,
) (http.Handler, error) {
	switch {
	case s == nil:
		return nil, &fence.ArgumentError{Field: "server", Value: "nil", Want: "a TileServer"}
	case log == nil:
		return nil, &fence.ArgumentError{Field: "log", Value: "nil", Want: "that of the server's back ends"}
	case authorize == nil:
		return nil, &fence.ArgumentError{Field: "authorize", Value: "nil",
			Want: "a function that decides who may inspect"}
	}
	i := &inspector{server: s, log: log, cfg: setting.Of(cfg)}
	if i.cfg.Logger == nil {
		i.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", i.servePage)
	mux.HandleFunc("GET /tiles", i.serveTiles)
	mux.HandleFunc("GET /state", i.serveState)
	if i.cfg.Control {
		mux.HandleFunc("POST /takeover", i.change(func(_ context.Context, id fence.TileID, _ string) error {
			if status, _ := s.Host().TileStatus(id); status.State == tile.Serving {
				return errors.New("this server owns the tile already")
			}
			return s.Host().TakeOver(id)
		}))
		mux.HandleFunc("POST /drain", i.change(s.Host().Drain))
	}
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		if err := authorize(r); err != nil {
			http.Error(w, "you may not inspect this", http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	}), nil
}

type inspector struct {
	server *tilefence.TileServer
	log    stream.Log
	cfg    Config
}

// Server is what an inspector answers to GET tiles, as JSON: the tiles of one server.
type Server struct {
	Contact  string   `json:"contact"`
	Control  bool     `json:"control"` // tiles can be taken over and drained
	Problems []string `json:"problems"`
	Members  []string `json:"members"` // contacts
	Tiles    []Tile   `json:"tiles"`
}

// Tile is one server's part in a tile.
type Tile struct {
	Tile     fence.TileID    `json:"tile"`
	State    string          `json:"state"` // tile.State in words, or quarantined
	Class    string          `json:"durability"`
	Owner    string          `json:"owner"` // contact, as far as the server knows
	Epoch    fence.Epoch     `json:"epoch"` // of the owner
	Held     fence.Epoch     `json:"held"`  // that this server holds, or held; zero: none
	Position string          `json:"position"`
	Seq      fence.Seq       `json:"seq"`
	Tick     fence.Tick      `json:"tick"`
	Heat     float64         `json:"heat"` // events a tick, averaged over the last ones
	Queued   int             `json:"queued"`
	Missed   int64           `json:"missed_ticks"`
	Dilation float64         `json:"dilation,omitempty"` // how many tick intervals a tick lasts; absent: 1
	Frozen   bool            `json:"frozen"`
	Failures int64           `json:"failures"` // of the game's rules
	Marks    []Mark          `json:"marks"`
	Floor    stream.Consumer `json:"floor,omitempty"` // the consumer that holds the trim floor: the one farthest behind
	Borders  []Border        `json:"borders,omitempty"`
	Problem  string          `json:"problem,omitempty"`
}

// Border is a tile's border with another tile that entities have crossed, as a tile.BorderStatus has it.
type Border struct {
	Peer     fence.TileID `json:"peer"`
	UnderWay int          `json:"under_way"`
	Oldest   fence.Tick   `json:"oldest_ticks"` // for how many ticks the oldest of them has been under way
	Waiting  int          `json:"waiting"`      // arrivals that wait for a tick
	Refused  int          `json:"refused"`      // arrivals that the peer has not settled
	Parked   int          `json:"parked"`
	Closed   int64        `json:"closed_ms,omitempty"` // since when the border is closed
}

// bordersOf are those of a tile that the server serves.
func (i *inspector) bordersOf(id fence.TileID) (all []Border) {
	p := i.server.Host().Processor(id)
	if p == nil {
		return nil
	}
	for _, b := range p.Borders() {
		all = append(all, Border{Peer: b.Peer, UnderWay: b.UnderWay, Oldest: b.Oldest, Waiting: b.Waiting,
			Refused: b.Refused, Parked: b.Parked, Closed: fence.Millis(b.Closed)})
	}
	return all
}

// Mark is how far a consumer of a tile's stream is. The batches between the mark of the checkpointer and the
// end are what would be lost with the coordination store and the tile's owner.
type Mark struct {
	Consumer stream.Consumer `json:"consumer"`
	Seq      fence.Seq       `json:"seq"`
	Behind   fence.Seq       `json:"behind"` // batches
}

func (i *inspector) serveTiles(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), marksTimeout)
	defer cancel()
	seen := Server{Contact: i.server.Contact(), Control: i.cfg.Control, Problems: []string{}, Members: []string{},
		Tiles: []Tile{}}
	for _, p := range i.server.Health() {
		seen.Problems = append(seen.Problems, p.String())
	}
	for _, m := range i.server.Members() {
		seen.Members = append(seen.Members, m.Contact)
	}
	all := i.server.Host().Status()
	ids := make([]fence.TileID, len(all))
	for n := range all {
		ids[n] = all[n].Tile
	}
	marks, err := i.log.Marks(ctx, ids)
	for n := range all {
		row := rowOf(&all[n])
		row.Borders = i.bordersOf(row.Tile)
		switch {
		case row.Problem != "":
		case err != nil:
			row.Problem = err.Error()
		case marks[n].Err != nil:
			row.Problem = marks[n].Err.Error()
		default:
			lowest := fence.Seq(math.MaxUint64)
			for _, c := range slices.SortedFunc(maps.Keys(marks[n].Marks), stream.CompareConsumers) {
				at := marks[n].Marks[c].Seq
				row.Marks = append(row.Marks, Mark{Consumer: c, Seq: at, Behind: max(row.Seq, at) - at})
				if at < lowest {
					lowest, row.Floor = at, c
				}
			}
		}
		seen.Tiles = append(seen.Tiles, row)
	}
	answer(w, seen)
}

// rowOf is what the server itself knows of a tile.
func rowOf(s *tile.Status) Tile {
	owner := ownerOf(s)
	row := Tile{Tile: s.Tile, State: s.State.String(), Class: s.Durability.String(), Owner: owner.Contact,
		Epoch: owner.Epoch, Held: s.Epoch, Position: s.Position.String(), Seq: s.Position.Seq,
		Tick: s.Tick, Heat: s.Heat, Queued: s.Queued, Missed: s.Missed, Dilation: s.Dilation, Frozen: s.Pending,
		Failures: s.Failures, Marks: []Mark{}}
	if s.Quarantine != nil {
		row.State, row.Problem = "quarantined", s.Quarantine.Quarantine.String()
	}
	return row
}

// ownerOf is the tile's owner as far as the server knows: the one it has last heard of, or itself. A server that takes
// a tile holds an epoch before it owns the tile, so its own epoch says nothing of that owner.
func ownerOf(s *tile.Status) fence.Owner {
	owner := s.Owner
	if s.Successor.Epoch > owner.Epoch {
		owner = s.Successor
	}
	switch s.State {
	case tile.Serving, tile.Healing, tile.Draining:
		if s.Epoch > owner.Epoch {
			owner.Epoch, owner.Contact = s.Epoch, s.Contact
		}
	default: // it holds an epoch at most
	}
	return owner
}

// serveState answers with the game's state of a tile as of its last snapshot.
func (i *inspector) serveState(w http.ResponseWriter, r *http.Request) {
	id, ok := tileOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
	defer cancel()
	s, found, err := i.log.Snapshot(ctx, id)
	if err == nil && !found {
		http.Error(w, "the tile has no snapshot yet", http.StatusNotFound)
		return
	}
	var game []byte
	if err == nil {
		game, _, err = stream.OpenSnapshot(s.Blob)
	}
	state := any(map[string]int{"bytes": len(game)})
	if err == nil && i.cfg.Decode != nil {
		state, err = i.cfg.Decode(id, game)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, struct {
		Epoch fence.Epoch `json:"epoch"`
		Seq   fence.Seq   `json:"seq"`
		Tick  fence.Tick  `json:"tick"`
		State any         `json:"state"`
	}{s.Position.Epoch, s.Position.Seq, s.Tick, state})
}

// tileOf is the tile that a request names; false if it names none and has been answered.
func tileOf(w http.ResponseWriter, r *http.Request) (id fence.TileID, ok bool) {
	id, err := fence.ParseTileID(r.URL.Query().Get("tile"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return id, err == nil
}

// change serves what moves a tile.
func (i *inspector) change(move func(ctx context.Context, id fence.TileID, to string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, ok := tileOf(w, r)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
		defer cancel()
		if err := move(ctx, id, r.URL.Query().Get("to")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		i.cfg.Logger.Info("tile moved by the inspector", "tile", id, "how", r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // what Decode returned
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the reader has gone
}

func (i *inspector) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page)
}

//go:embed page.html
var page []byte
