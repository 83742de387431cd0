package spectator

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/relay/relayjs"
)

//go:embed assets
var assets embed.FS

// maxEvents is how many events one answer carries.
const maxEvents = 200

// policy lets the page load from its own host only, and open WebSockets, since the relay may be another.
const policy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; object-src 'none'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// API is what the page asks of the servers behind it. Its methods are called from many goroutines at
// once; Status and Events for every watcher about twice a second, so they must be cheap.
type API interface {
	// Status says how things stand now.
	Status() statuspoller.Status

	// Events lists what has happened after the event with that ID, oldest first; after zero means as far
	// back as is remembered. More than 200 are cut to the last 200.
	Events(after uint64) []statuspoller.Event

	// TakeOver has another server take a tile from its owner and returns once that has begun, without
	// waiting until it is done. The text of an error is shown to the person who asked. It is only called
	// with tiles of the World.
	TakeOver(ctx context.Context, tile fence.TileID) error
}

// Report is the body of GET /api/status.
type Report struct {
	// Instance differs from one Handler to the next: with another instance event IDs start over, and with
	// in-memory back ends the epochs do.
	Instance string               `json:"instance"`
	Status   statuspoller.Status  `json:"status"`
	Events   []statuspoller.Event `json:"events"` // after the ID asked for, oldest first
}

// handler is the page and its API.
type handler struct {
	instance string
	world    World
	tiles    map[fence.TileID]bool
	api      API
}

// Handler serves the page and its API; see the package comment for the addresses, which are absolute:
// mount it at the root. It does no I/O but the API's.
func Handler(world World, api API) http.Handler {
	h := &handler{instance: rand.Text(), world: world, tiles: map[fence.TileID]bool{}, api: api}
	for _, t := range world.Tiles {
		h.tiles[t.Tile] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/world", h.serveWorld)
	mux.HandleFunc("GET /api/status", h.serveStatus)
	mux.HandleFunc("POST /api/takeover", h.serveTakeOver)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "assets/page.html")
	})
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.Handle("GET /relay/", http.StripPrefix("/relay/", http.FileServerFS(relayjs.Files)))
	return headers(http.NewCrossOriginProtection().Handler(mux))
}

// headers sets what every answer carries. Nothing is cached: the page of a new build must not meet the
// scripts of the last one.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

func (h *handler) serveWorld(w http.ResponseWriter, _ *http.Request) { reply(w, h.world) }

func (h *handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	var after uint64
	if s := r.URL.Query().Get("after"); s != "" {
		var err error
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			http.Error(w, "after: want the ID of an event", http.StatusBadRequest)
			return
		}
	}
	// Events first: what they tell of must not be missing from the status that comes with them.
	report := Report{Events: h.api.Events(after)}
	report.Status = h.api.Status()
	if n := len(report.Events); n > maxEvents {
		report.Events = report.Events[n-maxEvents:]
	}
	if report.Events == nil {
		report.Events = []statuspoller.Event{}
	}
	report.Instance = h.instance
	report.Status.At = time.Now().UnixMilli() // the page sets its clock by it, so it must not be a cached one
	reply(w, report)
}

func (h *handler) serveTakeOver(w http.ResponseWriter, r *http.Request) {
	tile, err := fence.ParseTileID(r.URL.Query().Get("tile"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !h.tiles[tile] {
		http.Error(w, "tile "+tile.String()+" is not part of this world", http.StatusNotFound)
		return
	}
	if err := h.api.TakeOver(r.Context(), tile); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func reply(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // the API gave what JSON cannot say, such as NaN
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that has gone is no concern of ours
}
