package tilefence

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// inspectTimeout bounds what one request asks of the coordination store, and a drain.
const inspectTimeout = 10 * time.Second

// marksTimeout bounds the reading of the marks: what the server itself knows is wanted most when the store hangs.
const marksTimeout = 500 * time.Millisecond

// InspectorConfig holds the optional settings of an inspector. Nil and the zero value are valid.
type InspectorConfig struct {
	// Decode explains a tile's state, as Rules.Snapshot has returned it, by what JSON can say. Default: its size.
	Decode func(id fence.TileID, snapshot []byte) (any, error)

	// Control adds buttons that take tiles over and drain them. Default: the inspector only reads.
	Control bool
}

// NewInspector returns a page, and its JSON, on the tiles of a server: owners, epochs, positions, watermarks and how
// far behind they are, members, health, and the game's own state as of the last snapshot. Mount it under a path that
// ends with a slash:
//
//	inspector, err := tilefence.NewInspector(server, b, mayInspect, nil)
//	mux.Handle("/inspect/", http.StripPrefix("/inspect", inspector))
//
// authorize decides over every request, from its cookies or headers: an error refuses it with status 403. It must not
// be nil, since the state of a game is not for everybody. Requests that change something are POSTs, need
// InspectorConfig.Control, and are refused if they come from a page of another origin.
//
// It needs Log. Errors: a *fence.ArgumentError.
func NewInspector(
	s *TileServer, b Backends, authorize func(*http.Request) error, cfg *InspectorConfig,
) (http.Handler, error) {
	switch {
	case s == nil:
		return nil, argument("server", "nil", "a TileServer")
	case authorize == nil:
		return nil, argument("authorize", "nil", "a function that decides who may inspect")
	}
	if err := require("Inspector", b.log()); err != nil {
		return nil, err
	}
	i := &inspector{server: s, log: b.Log}
	if cfg != nil {
		i.cfg = *cfg
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
	server *TileServer
	log    stream.Log
	cfg    InspectorConfig
}

// Inspection is what an inspector answers to GET tiles, as JSON: the tiles of one server.
type Inspection struct {
	Contact  string          `json:"contact"`
	Control  bool            `json:"control"` // tiles can be taken over and drained
	Problems []string        `json:"problems"`
	Members  []string        `json:"members"` // contacts
	Tiles    []InspectedTile `json:"tiles"`
}

// InspectedTile is one server's part in a tile.
type InspectedTile struct {
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
	Marks    []InspectedMark `json:"marks"`
	Floor    stream.Consumer `json:"floor,omitempty"` // the consumer that holds the trim floor: the one farthest behind
	Problem  string          `json:"problem,omitempty"`
}

// InspectedMark is how far a consumer of a tile's stream is. The batches between the mark of the checkpointer and the
// end are what would be lost with the coordination store and the tile's owner.
type InspectedMark struct {
	Consumer stream.Consumer `json:"consumer"`
	Seq      fence.Seq       `json:"seq"`
	Behind   fence.Seq       `json:"behind"` // batches
}

func (i *inspector) serveTiles(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), marksTimeout)
	defer cancel()
	seen := Inspection{Contact: i.server.Contact(), Control: i.cfg.Control, Problems: []string{}, Members: []string{},
		Tiles: []InspectedTile{}}
	for _, p := range i.server.Health() {
		seen.Problems = append(seen.Problems, p.String())
	}
	for _, m := range i.server.Members().Members() {
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
				row.Marks = append(row.Marks, InspectedMark{Consumer: c, Seq: at, Behind: max(row.Seq, at) - at})
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
func rowOf(s *tile.Status) InspectedTile {
	owner := ownerOf(s)
	row := InspectedTile{Tile: s.Tile, State: s.State.String(), Class: s.Durability.String(), Owner: owner.Contact,
		Epoch: owner.Epoch, Held: s.Epoch, Position: s.Position.String(), Seq: s.Position.Seq,
		Tick: s.Tick, Heat: s.Heat, Queued: s.Queued, Missed: s.Missed, Dilation: s.Dilation, Frozen: s.Pending,
		Failures: s.Failures, Marks: []InspectedMark{}}
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
		i.server.cfg.Logger.Info("tile moved by the inspector", "tile", id, "how", r.URL.Path)
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
	_, _ = io.WriteString(w, inspectorPage)
}

const inspectorPage = `<!doctype html>
<meta charset="utf-8">
<title>Tiles</title>
<style>
body { font: 14px system-ui; margin: 2em } td, th { padding: .2em .8em; text-align: left } pre { background: #8881 }
</style>
<h1></h1><p id="problems"></p><p id="members"></p>
<table><thead><tr><th>tile<th>state<th>owner<th>epoch<th>seq<th>tick<th>queued<th>missed<th>durability<th>behind<th>
<tbody></tbody></table>
<pre></pre>
<script type="module">
const $ = (s) => document.querySelector(s);
const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
async function ask(url, method = "GET") {
  const r = await fetch(url, { method });
  const text = await r.text();
  if (!r.ok) throw new Error(text);
  return text ? JSON.parse(text) : null;
}
const show = (of) => of.then((v) => { $("pre").textContent = v && JSON.stringify(v, null, 1); },
  (err) => { $("pre").textContent = err.message; });
function buttons(t, control) {
  const td = cell("");
  const add = (textContent, onclick) =>
    td.append(Object.assign(document.createElement("button"), { textContent, onclick }));
  add("state", () => show(ask("state?tile=" + t.tile)));
  if (control && t.state !== "serving") add("take over", () => show(ask("takeover?tile=" + t.tile, "POST")));
  if (control && t.state === "serving") add("drain", () => {
    const to = prompt("To which contact? Empty: release it");
    if (to !== null) show(ask("drain?tile=" + t.tile + "&to=" + encodeURIComponent(to), "POST"));
  });
  return td;
}
async function look() {
  const s = await ask("tiles").catch((err) => { $("#problems").textContent = err.message; });
  if (!s) return;
  $("h1").textContent = "Tiles of " + s.contact;
  $("#problems").textContent = s.problems.join("; ") || "no problems";
  $("#members").textContent = "members: " + (s.members.join(", ") || "none");
  $("tbody").replaceChildren(...s.tiles.map((t) => {
    const tr = document.createElement("tr");
    const behind = t.problem ?? t.marks.map((m) => m.consumer + " " + m.behind + (m.consumer === t.floor ? " (floor)" : ""))
      .join(", ");
    const state = t.frozen ? "frozen" : t.state + (t.dilation > 1 ? ", time × " + t.dilation : "");
    tr.append(...[t.tile, state, t.owner, t.epoch, t.seq, t.tick, t.queued, t.missed_ticks,
      t.durability, behind].map(cell), buttons(t, s.control));
    return tr;
  }));
}
look();
setInterval(look, 1000);
</script>
`
