package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/relay/viewcache"
)

// errStopped is a process that was stopped before it had begun: nothing has failed.
var errStopped = errors.New("stopped before every back end had answered")

// awaitBackends opens the back ends, and answers the probes of this process meanwhile. errs takes what it waits for,
// whether or not the rest is logged.
func awaitBackends(
	ctx context.Context, o *options, secure *certs.Transport, rebuilds viewcache.Hooks, dir string, logger *slog.Logger,
	errs io.Writer,
) (*backends, error) {
	start := &tilefence.Starting{Logger: slog.New(slog.NewTextHandler(errs, nil))}
	stop, err := o.answerProbes(start, secure, logger)
	if err != nil {
		return nil, err
	}
	defer stop()
	b, err := openBackends(ctx, o, start, secure, rebuilds, dir, logger, errs)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errStopped, err)
	}
	return b, err
}

// answerProbes has h answer until stop is called, where this process answers probes once it has begun.
func (o *options) answerProbes(h http.Handler, secure *certs.Transport, logger *slog.Logger) (stop func(), err error) {
	address := o.listen
	switch o.command {
	case "bridge", "checkpointer", "bots": // they have no address
		return func() {}, nil
	case "relay", "gateway":
		if secure != nil {
			address = o.control
		}
	}
	if o.stack == "embedded" {
		return func() {}, nil
	}
	l, err := listen(address, o.command == "")
	if err != nil {
		return nil, err
	}
	switch {
	case secure == nil:
	case o.command == "tile":
		l = tls.NewListener(l, secure.Inside())
	default:
		l = tls.NewListener(l, secure.Doors())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ErrorLog: sampled.HTTP(logger)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until stop
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
