package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/sampled"
)

// controlServer serves what is for those who run the battle, at a listener of its own.
type controlServer struct {
	listener net.Listener
	handler  http.Handler
	tls      *tls.Config
	logger   *slog.Logger
}

// Run implements tilefence.Server.
func (c *controlServer) Run(ctx context.Context) error {
	server := &http.Server{Handler: c.handler, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: sampled.HTTP(c.logger)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(tls.NewListener(c.listener, c.tls)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_ = server.Close() // its requests are not waited for
		return ignoreClosed(<-ended)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

var _ tilefence.Server = (*controlServer)(nil)

// controlAt serves what is not at the players' doors at a listener.
func (p *plan) controlAt(l net.Listener) *controlServer {
	return &controlServer{l, p.control, p.secure.Doors(), p.logger}
}

// beside adds to the servers of an actor that players connect to the one of its control, if the battle is secure.
func (p *plan) beside(servers []tilefence.Server, err error) ([]tilefence.Server, error) {
	if err != nil || p.secure == nil {
		return servers, err
	}
	l, err := listen(p.options.control, false)
	if err != nil {
		return nil, err
	}
	p.say("control at https://%s/\n", l.Addr())
	return append(servers, p.controlAt(l)), nil
}
