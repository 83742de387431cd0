package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/tile"
)

// hosts are the tile hosts of this process, each with a server of its own. Each follows the tiles of the others,
// to take them over when their owner falls silent. A host can be killed, and another be started in its place, at
// the same address.
type hosts struct {
	make func(contact string) (*host, error)

	mu     sync.Mutex
	places []place
	graves []*host // killed: their goroutines wait for the end
}

// place is a host and the server at its address.
type place struct {
	*host
	server *http.Server
	dying  *time.Timer // of one that was killed: when the others hear of its death
}

// open starts another host on any free port.
func (hs *hosts) open() (*host, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p, err := hs.serve(l)
	if err != nil {
		return nil, err
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.places = append(hs.places, p)
	return p.host, nil
}

func (hs *hosts) serve(l net.Listener) (place, error) {
	h, err := hs.make(l.Addr().String())
	if err != nil {
		return place{}, errors.Join(err, l.Close())
	}
	p := place{host: h, server: &http.Server{Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second}}
	go func() { _ = p.server.Serve(l) }() // it ends when the server is closed
	return p, nil
}

// all are the hosts that live, or are dead and not yet replaced.
func (hs *hosts) all() []*host {
	if hs == nil {
		return nil
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	all := make([]*host, len(hs.places))
	for i, p := range hs.places {
		all[i] = p.host
	}
	return all
}

// owner is the host that serves a tile under the highest epoch, or nil.
func (hs *hosts) owner(id fence.TileID) *host {
	var owner *host
	var highest fence.Epoch
	for _, h := range hs.all() {
		if s, ok := h.TileStatus(id); ok && !h.line.is(dead) && s.State == tile.Serving && s.Epoch > highest {
			owner, highest = h, s.Epoch
		}
	}
	return owner
}

// kill ends a host as kill -9 does: no call of it returns any more, its connections are closed by the
// kernel, and nothing is drained or released.
func (hs *hosts) kill(h *host) {
	h.line.set(dead)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for i, p := range hs.places {
		if p.host == h {
			_ = p.server.Close() // it is dead
			hs.graves = append(hs.graves, h)
			if m, ok := h.member.(*route.GroupMember); ok {
				hs.places[i].dying = time.AfterFunc(noticeAfter, m.Kill)
			}
		}
	}
}

// noticeAfter is when the members of a group hear that one was killed: gossip.Fast takes about as long.
const noticeAfter = time.Second

// restart starts a host in the place of one that was killed. It owns nothing and follows the world.
func (hs *hosts) restart(killed *host, world []fence.TileID) error {
	l, err := net.Listen("tcp", killed.contact)
	if err != nil {
		return err
	}
	p, err := hs.serve(l)
	if err != nil {
		return err
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	i := slices.IndexFunc(hs.places, func(p place) bool { return p.host == killed })
	if dying := hs.places[i].dying; dying != nil && dying.Stop() {
		killed.leave() // the new life is known before the death of the old one is: nobody hears of that
	}
	hs.places[i] = p
	return p.Follow(world...)
}

// drain ends them all: the living in order, the dead at last.
func (hs *hosts) drain() {
	hs.mu.Lock()
	places, graves := hs.places, hs.graves
	hs.mu.Unlock()
	for _, p := range places {
		if !p.line.is(dead) {
			p.drain()
		}
		bounded, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if p.server.Shutdown(bounded) != nil {
			_ = p.server.Close() // whoever still reads has had its moment
		}
		cancel()
	}
	for _, h := range graves {
		h.bury()
	}
}

// silence is how long an owner hash may stand still before a follower asks for the tile: four ticks, and a
// second at least.
func (o *options) silence() time.Duration { return max(4*o.tick, time.Second) }
