package tilefence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// How often Await tries: after awaitFirst, and then twice as long each time until awaitMost.
const (
	awaitFirst = 250 * time.Millisecond
	awaitMost  = 5 * time.Second
)

// Starting is a process that opens its back ends: Await waits for each of them, and as a handler it answers probes
// meanwhile. Until Started it answers /livez with 200, and all else with 503 and the back end that it waits for.
// The zero value is ready for use. It is safe for concurrent use.
//
//	start := &tilefence.Starting{Logger: slog.Default()}
//	go http.ListenAndServe("127.0.0.1:8082", start)
//	err := start.Await(ctx, "PostgreSQL", func(ctx context.Context) error {
//		_, err := authority.World(ctx)
//		return err
//	})
//	start.Started(mux) // with LiveHandler and ReadyHandler
type Starting struct {
	// Logger takes a line for each try that failed. Default: nothing is logged.
	Logger *slog.Logger

	awaited atomic.Pointer[string]
	started atomic.Pointer[http.Handler]
}

// Await calls open, which connects to a back end or prepares it, until it succeeds, ctx ends, or it fails for another
// reason than that a server does not answer, or not yet, which is a *fence.StoreError. So a process that starts while a
// master fails over waits, and one with a wrong setting ends at once. Each failure is a line of the log that names
// what. The error is that of open, or ctx's cause together with the last one of open, as one line that begins with
// what. A process that is asked to stop has not failed: look at ctx.Err().
func (s *Starting) Await(ctx context.Context, what string, open func(context.Context) error) error {
	s.awaited.Store(&what)
	log := orDiscard(s.Logger)
	began := time.Now()
	for try := 1; ; try++ {
		err := open(ctx)
		if _, away := errors.AsType[*fence.StoreError](err); !away {
			if err != nil {
				return &openError{what, err}
			}
			if try > 1 {
				log.Info("a back end answers: starting", "backend", what, "waited",
					time.Since(began).Round(time.Second))
			}
			return nil
		}
		if ctx.Err() == nil {
			log.Warn("waiting for a back end before starting", "backend", what, "waited",
				time.Since(began).Round(time.Second), "error", err)
		}
		if !wait.For(ctx, wait.Backoff(awaitFirst, awaitMost, try)) {
			return &openError{what, fmt.Errorf("%w before it answered: %w", context.Cause(ctx), err)}
		}
	}
}

// Started has h answer from now on.
func (s *Starting) Started(h http.Handler) { s.started.Store(&h) }

// ServeHTTP implements http.Handler.
func (s *Starting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := s.started.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/livez" {
		answerProbe(w, nil)
		return
	}
	what := "its back ends"
	if awaited := s.awaited.Load(); awaited != nil {
		what = *awaited
	}
	answerProbe(w, []string{"starting: waiting for " + what})
}

// openError is a back end that cannot be opened, in one line: drivers write a line for each server that they tried.
type openError struct {
	what string
	err  error
}

func (e *openError) Error() string {
	var lines []string
	for line := range strings.Lines(e.err.Error()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return e.what + ": " + strings.Join(lines, "; ")
}

func (e *openError) Unwrap() error { return e.err }
