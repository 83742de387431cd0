package certs

import (
	"crypto/tls"
	"net/http"
)

// Transport is the TLS of all connections of a deployment. A nil one encrypts nothing.
type Transport struct {
	authority       *Authority
	players, actors *http.Client // of those who present no certificate, and of those who do
}

// NewTransport makes certificates, unless a directory has some.
func NewTransport(dir string) (*Transport, error) {
	var a *Authority
	var err error
	if dir == "" {
		a, err = New()
	} else {
		a, err = Read(dir)
	}
	if err != nil {
		return nil, err
	}
	client := func(c *tls.Config) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c, MaxIdleConnsPerHost: 16}}
	}
	return &Transport{authority: a, players: client(a.Client()), actors: client(a.Mutual())}, nil
}

// URL is an address with ws or http, or their encrypted form.
func (s *Transport) URL(scheme, rest string) string {
	if s != nil {
		scheme += "s"
	}
	return scheme + "://" + rest
}

// Doors is the TLS of relay and gateway.
func (s *Transport) Doors() *tls.Config {
	if s == nil {
		return nil
	}
	return s.authority.Server()
}

// Certificates are those of the servers that -stack local starts.
func (s *Transport) Certificates() *Authority {
	if s == nil {
		return nil
	}
	return s.authority
}

// Inside is the TLS between gateway and tile hosts, and to the servers: both ends present certificates.
func (s *Transport) Inside() *tls.Config {
	if s == nil {
		return nil
	}
	return s.authority.Mutual()
}

// Player makes the requests of players.
func (s *Transport) Player() *http.Client {
	if s == nil {
		return http.DefaultClient
	}
	return s.players
}

// Actor makes the requests of actors to each other.
func (s *Transport) Actor() *http.Client {
	if s == nil {
		return http.DefaultClient
	}
	return s.actors
}
