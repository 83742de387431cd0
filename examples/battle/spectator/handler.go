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
	"github.com/tilefence/tilefence/relay/relayjs"
)

//go:embed assets
var assets embed.FS

// maxEvents is how many events one answer carries.
const maxEvents = 200

// Code says what was wrong with a request, for a program.
type Code string

// The codes of errors under /api.
const (
	CodeNotFound      Code = "not_found"          // 404: no such address
	CodeMethod        Code = "method_not_allowed" // 405: Allow says which is
	CodeInvalid       Code = "invalid_argument"   // 400: a parameter that cannot be read
	CodeUnknownTile   Code = "unknown_tile"       // 404: not a tile of this world
	CodeCrossOrigin   Code = "cross_origin"       // 403: asked by a page of another origin
	CodeTakeOverFails Code = "takeover_failed"    // 409: API.TakeOver returned an error; the message is its text
	CodeUnavailable   Code = "unavailable"        // 503: the servers behind the page could not be asked
	CodeInternal      Code = "internal"           // 500: the API gave what JSON cannot say, such as NaN
)

// Error is the body of an error, under the key "error".
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // for a person
}

// policy lets the page load from its own host only, and open WebSockets, since the relay may be another.
const policy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; object-src 'none'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handler is the page and its API.
type handler struct {
	instance string
	world    []byte // encoded
	tiles    map[fence.TileID]bool
	api      API
}

// Handler serves the page and its API; see the package comment for the addresses, which are absolute:
// mount it at the root. It does no I/O but the API's. A *fence.ArgumentError refuses a World without
// tiles and a missing API.
func Handler(world World, api API) (http.Handler, error) {
	if len(world.Tiles) == 0 {
		return nil, &fence.ArgumentError{Field: "world", Value: "no tiles", Want: "what NewWorld returns"}
	}
	if api == nil {
		return nil, &fence.ArgumentError{Field: "api", Value: "nil", Want: "an API"}
	}
	encoded, err := json.Marshal(world)
	if err != nil {
		return nil, err
	}
	h := &handler{instance: rand.Text(), world: encoded, tiles: map[fence.TileID]bool{}, api: api}
	for _, t := range world.Tiles {
		h.tiles[t.Tile] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/world", only(http.MethodGet, h.serveWorld))
	mux.HandleFunc("/api/status", only(http.MethodGet, h.serveStatus))
	mux.Handle("/ownership", OwnershipHandler(api))
	mux.HandleFunc("/api/takeover", only(http.MethodPost, h.serveTakeOver))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, CodeNotFound, "no such address")
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "assets/page.html")
	})
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.Handle("GET /relay/", http.StripPrefix("/relay/", http.FileServerFS(relayjs.Files)))
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, CodeCrossOrigin, "only this page itself may do that")
	}))
	return headers(guard.Handler(mux)), nil
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

// only admits one method; HEAD goes with GET.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			fail(w, http.StatusMethodNotAllowed, CodeMethod, "use "+method)
			return
		}
		next(w, r)
	}
}

func (h *handler) serveWorld(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(h.world)
}

func (h *handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	var after uint64
	if s := r.URL.Query().Get("after"); s != "" {
		var err error
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			fail(w, http.StatusBadRequest, CodeInvalid, "after: want the ID of an event")
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
		report.Events = []Event{}
	}
	report.Instance = h.instance
	report.Status.At = time.Now().UnixMilli() // the page sets its clock by it, so it must not be a cached one
	reply(w, http.StatusOK, report)
}

// OwnershipHandler serves GET /ownership alone, where there is no page.
func OwnershipHandler(api API) http.Handler {
	return only(http.MethodGet, func(w http.ResponseWriter, r *http.Request) {
		bounded, cancel := context.WithTimeout(r.Context(), ownershipTimeout)
		defer cancel()
		tiles, err := api.Ownership(bounded)
		if err != nil {
			fail(w, http.StatusServiceUnavailable, CodeUnavailable, err.Error())
			return
		}
		if tiles == nil {
			tiles = []Ownership{}
		}
		reply(w, http.StatusOK, struct {
			At    int64       `json:"at"` // server clock, milliseconds since 1970
			Tiles []Ownership `json:"tiles"`
		}{time.Now().UnixMilli(), tiles})
	})
}

// ownershipTimeout bounds the question to the authority and the store.
const ownershipTimeout = 2 * time.Second

func (h *handler) serveTakeOver(w http.ResponseWriter, r *http.Request) {
	tile, err := fence.ParseTileID(r.URL.Query().Get("tile"))
	if err != nil {
		fail(w, http.StatusBadRequest, CodeInvalid, err.Error())
		return
	}
	if !h.tiles[tile] {
		fail(w, http.StatusNotFound, CodeUnknownTile, "tile "+tile.String()+" is not part of this world")
		return
	}
	if err := h.api.TakeOver(r.Context(), tile); err != nil {
		fail(w, http.StatusConflict, CodeTakeOverFails, err.Error())
		return
	}
	reply(w, http.StatusAccepted, struct{}{})
}

func fail(w http.ResponseWriter, status int, code Code, message string) {
	reply(w, status, struct {
		Error Error `json:"error"`
	}{Error{Code: code, Message: message}})
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, CodeInternal, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is no concern of ours
}
