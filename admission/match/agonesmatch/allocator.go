package agonesmatch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	atOnce  = 64 // requests; Agones takes a hundred into a batch
	tries   = 3  // of one call, while others take the game servers
	backoff = 100 * time.Millisecond
)

// PlaceFunc says which tile a match plays on, and what its players are told: Assignment.Info, such as "gateway" and
// "relay" with the URLs of the game server. It may be called again for the same match, and with another game server:
// the tile should follow from the match alone. It must not block.
type PlaceFunc func(m match.Match, g GameServer) (tile fence.TileID, info map[string]string)

// GameServer is a game server that was allocated, as Agones describes it.
type GameServer struct {
	Name        string            `json:"gameServerName"`
	Address     string            `json:"address"` // an IP or a name, without a port
	Ports       []Port            `json:"ports"`
	NodeName    string            `json:"nodeName"`
	Labels      map[string]string `json:"-"` // of the game server, after the allocation
	Annotations map[string]string `json:"-"`
}

// Port is a port of a game server that players reach.
type Port struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

// Allocator is a match.Allocator. Its methods may be called from any goroutine.
type Allocator struct {
	labels map[string]string
	place  PlaceFunc
	cfg    Config
}

var _ match.Allocator = (*Allocator)(nil)

// New returns an allocator of the game servers with these labels, such as agones.dev/fleet. A nil cfg is for a pod in
// the cluster of the game servers: New reads the pod's service account. It asks no server. Errors: a
// *fence.ArgumentError; of the files.
func New(labels map[string]string, place PlaceFunc, cfg *Config) (*Allocator, error) {
	switch {
	case len(labels) == 0:
		return nil, &fence.ArgumentError{Field: "labels", Value: 0,
			Want: `those of the game servers, such as "agones.dev/fleet": "battles"`}
	case place == nil:
		return nil, &fence.ArgumentError{Field: "place", Value: nil, Want: "a function"}
	}
	for name, value := range labels { // they select what Release deletes
		if !labelName.MatchString(name) || value != "" && !labelForm.MatchString(value) {
			return nil, &fence.ArgumentError{Field: "labels", Value: name + "=" + value, Want: "a label of Kubernetes"}
		}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Allocator{labels: maps.Clone(labels), place: place, cfg: c}, nil
}

// Allocate implements match.Allocator. Each match is a request, up to 64 at once.
func (a *Allocator) Allocate(ctx context.Context, matches []match.Match) []match.Allocation {
	answers := make([]match.Allocation, len(matches))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, m := range matches {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			answers[i].Assignment, answers[i].Err = a.allocate(ctx, m)
		})
	}
	all.Wait()
	return answers
}

func (a *Allocator) allocate(ctx context.Context, m match.Match) (match.Assignment, error) {
	if m.Tile != 0 {
		return match.Assignment{}, &match.DeniedError{Err: match.ErrNoSeat,
			What: fmt.Sprintf("match %s, a backfill of tile %s: a game server of Agones takes one match", m.ID,
				m.Tile)}
	}
	body, err := a.request(m)
	if err != nil {
		return match.Assignment{}, err
	}
	for try := 1; ; try++ {
		began := time.Now()
		g, state, err := a.ask(ctx, m.ID, body)
		switch {
		case err != nil:
			return match.Assignment{}, err
		case state == allocated:
			return a.assign(m, g, began)
		case state == unallocated:
			return match.Assignment{}, &match.DeniedError{Err: match.ErrNoSeat,
				What: fmt.Sprintf("match %s: no game server with the labels %v is Ready", m.ID, a.labels)}
		case try >= tries || !wait.For(ctx, backoff/2+rand.N(backoff)):
			return match.Assignment{}, fmt.Errorf("agones: allocate match %s: %w, %d times", m.ID, ErrContention, try)
		}
	}
}

// assign is the assignment of a match to a game server that was asked for at a time.
func (a *Allocator) assign(m match.Match, g GameServer, asked time.Time) (match.Assignment, error) {
	tile, info := a.place(m, g)
	if tile == 0 {
		return match.Assignment{}, &fence.ArgumentError{Field: "tile", Value: tile,
			Want: "of PlaceFunc, an H3 index, not zero, for match " + m.ID}
	}
	s := match.Assignment{Match: m.ID, Tile: tile, Contact: g.contact(), Info: info, Seats: map[string][]int{},
		TakeBy: asked.Add(a.cfg.Hold)}
	next := 0
	for _, t := range m.Tickets {
		for range t.Players {
			s.Seats[t.ID] = append(s.Seats[t.ID], next)
			next++
		}
	}
	return s, nil
}

// Release implements match.Allocator: it deletes the game servers that the match has.
func (a *Allocator) Release(ctx context.Context, m match.Match) error {
	what := "release match " + m.ID
	query := url.Values{"labelSelector": {selector(a.with(label(m.ID)))}}
	code, answer, err := a.cfg.do(ctx, what, "DELETE",
		"/apis/agones.dev/v1/namespaces/"+a.cfg.Namespace+"/gameservers?"+query.Encode(), nil)
	if err == nil && !success(code) {
		err = refusal(what, code, answer)
	}
	return err
}

// Lapsed implements match.Allocator. Nothing lapses: see the package comment.
func (a *Allocator) Lapsed(context.Context, int) ([]match.Lapse, error) { return nil, nil }

// Settled implements match.Allocator.
func (a *Allocator) Settled(context.Context, []match.Lapse) error { return nil }
