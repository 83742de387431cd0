package tilehttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Submitter takes intents for tiles: a tile.TileProcessor, or something that holds several and answers a
// *tile.RedirectError for tiles it does not run. It must be safe for concurrent use, and honour ctx.
type Submitter interface {
	Submit(ctx context.Context, in tile.Intent) (stream.Outcome, error)
}

// SubmitterFunc is a Submitter of one function.
type SubmitterFunc func(ctx context.Context, in tile.Intent) (stream.Outcome, error)

// Submit calls f.
func (f SubmitterFunc) Submit(ctx context.Context, in tile.Intent) (stream.Outcome, error) {
	return f(ctx, in)
}

// Handler serves intents to s. It answers POST on whatever path it is mounted, refuses more than
// MaxRequest bytes, and what it cannot read does not reach s. It leaves it to s to validate the intent, as
// tilehost.Host and tile.TileProcessor do. A request whose client has gone ends the
// context that s got; the intent may be resolved all the same.
func Handler(s Submitter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST an intent", http.StatusMethodNotAllowed)
			return
		}
		in, err := readIntent(w, r)
		if err != nil {
			fail(w, err)
			return
		}
		outcome, err := s.Submit(r.Context(), in)
		if err == nil && !outcome.Valid() {
			err = errors.New("the tile gave no outcome")
		}
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusOK, wireReply{Version: version, Outcome: outcome.String()})
	})
}

func readIntent(w http.ResponseWriter, r *http.Request) (tile.Intent, error) {
	b, err := readBody(w, r)
	if err != nil {
		return tile.Intent{}, err
	}
	return decodeIntent(b)
}

// readBody reads a request of at most MaxRequest bytes. Its error is a *fence.ArgumentError.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &fence.ArgumentError{Field: "request", Value: "too long",
			Want: "at most " + strconv.Itoa(MaxRequest) + " bytes"}
	}
	if err != nil {
		return nil, &fence.ArgumentError{Field: "request", Value: len(b), Want: "a whole body: " + err.Error()}
	}
	return b, nil
}

func fail(w http.ResponseWriter, err error) {
	e := encodeError(err)
	reply(w, statuses[e.Code], wireReply{Version: version, Error: &e})
}

func reply(w http.ResponseWriter, status int, r any) {
	b, err := json.Marshal(r)
	if err != nil { // the replies are structs of strings and numbers
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client has gone; the outcome is in the stream
}
