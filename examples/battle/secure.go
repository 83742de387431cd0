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
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/sampled"
)

// secured is what -secure makes or, for actors that are processes, reads: the certificates that all connections of this
// battle have. A nil one encrypts nothing.
type secured struct {
	authority       *certs.Authority
	players, actors *http.Client // of those who present no certificate, and of those who do
	control         http.Handler // the page and its buttons, figures and health: not at the players' doors
}

// newSecured makes certificates, unless a directory has some.
func newSecured(dir string) (*secured, error) {
	var a *certs.Authority
	var err error
	if dir == "" {
		a, err = certs.New()
	} else {
		a, err = certs.Read(dir)
	}
	if err != nil {
		return nil, err
	}
	client := func(c *tls.Config) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c, MaxIdleConnsPerHost: 16}}
	}
	return &secured{authority: a, players: client(a.Client()), actors: client(a.Mutual())}, nil
}

// url is an address with ws or http, or their encrypted form.
func (s *secured) url(scheme, rest string) string {
	if s != nil {
		scheme += "s"
	}
	return scheme + "://" + rest
}

// doors is the TLS of relay and gateway.
func (s *secured) doors() *tls.Config {
	if s == nil {
		return nil
	}
	return s.authority.Server()
}

// certificates are those of the servers that -stack local starts.
func (s *secured) certificates() *certs.Authority {
	if s == nil {
		return nil
	}
	return s.authority
}

// inside is the TLS between gateway and tile hosts, and to the servers: both ends present certificates.
func (s *secured) inside() *tls.Config {
	if s == nil {
		return nil
	}
	return s.authority.Mutual()
}

// player makes the requests of players, and actor those of actors to each other.
func (s *secured) player() *http.Client {
	if s == nil {
		return http.DefaultClient
	}
	return s.players
}

func (s *secured) actor() *http.Client {
	if s == nil {
		return http.DefaultClient
	}
	return s.actors
}

// controlServer serves what is for those who run the battle, at a listener of its own.
type controlServer struct {
	listener net.Listener
	secured  *secured
	logger   *slog.Logger
}

// Run implements tilefence.Server.
func (c *controlServer) Run(ctx context.Context) error {
	server := &http.Server{Handler: c.secured.control, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: sampled.HTTP(c.logger)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(tls.NewListener(c.listener, c.secured.doors())) }()
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
	return append(servers, &controlServer{l, p.secure, p.logger}), nil
}
