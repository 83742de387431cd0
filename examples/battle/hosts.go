package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// hosts are the tile hosts of this process, each with a server of its own. A host can be killed, and another
// be started in its place, at the same address.
type hosts struct {
	make   func(contact string) (*host, error)
	logger *slog.Logger

	mu     sync.Mutex
	places []place
	graves []*host // killed: their goroutines wait for the end
}

// place is a host and the server at its address.
type place struct {
	*host
	server *http.Server
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

// at is the host at a contact, or nil.
func (hs *hosts) at(contact string) *host {
	all := hs.all()
	if i := slices.IndexFunc(all, func(h *host) bool { return h.contact == contact }); i >= 0 {
		return all[i]
	}
	return nil
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
	for _, p := range hs.places {
		if p.host == h {
			_ = p.server.Close() // it is dead
			hs.graves = append(hs.graves, h)
		}
	}
}

// restart starts an empty host in the place of one that was killed.
func (hs *hosts) restart(killed *host) error {
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
	hs.places[slices.IndexFunc(hs.places, func(p place) bool { return p.host == killed })] = p
	return nil
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

// silence is how long an owner hash may stand still before somebody else tries to take the tile over: four
// ticks, and a second at least. It only decides when to ask: the authority decides who owns the tile.
func (o *options) silence() time.Duration { return max(4*o.tick, time.Second) }

// supervise has the tiles of silent owners taken over by the living host with the fewest, until ctx ends.
func (hs *hosts) supervise(ctx context.Context, b *backends, o *options, world []fence.TileID) error {
	type sight struct {
		owner fence.Owner
		since time.Time
	}
	last := map[fence.TileID]sight{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.tick / 2):
		}
		for _, id := range world {
			bounded, cancel := context.WithTimeout(ctx, o.tick)
			owner, err := b.store.Owner(bounded, id)
			cancel()
			if s := last[id]; err != nil || owner != s.owner || s.since.IsZero() {
				last[id] = sight{owner, time.Now()} // a store that cannot be asked says nothing about the owner
				continue
			} else if time.Since(s.since) < o.silence() {
				continue
			}
			last[id] = sight{owner, time.Now()}
			if h := hs.successor(owner.Contact); h != nil {
				if err := h.takeOver(id); err != nil {
					hs.logger.Info("silent tile not taken over", "tile", id, "by", h.contact, "err", err)
				}
			}
		}
	}
}

// successor is the living host with the fewest tiles, except for the one at a contact.
func (hs *hosts) successor(except string) *host {
	var best *host
	fewest := 0
	for _, h := range hs.all() {
		if n := h.load(); h.contact != except && h.line.is(flowing) && (best == nil || n < fewest) {
			best, fewest = h, n
		}
	}
	return best
}
