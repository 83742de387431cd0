package main

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/tile"
)

// hosts are the tile hosts of this process, each with a server of its own. A host can be killed, and another be
// started in its place, at the same address. It is a tilefence.Server.
type hosts struct {
	*plan

	mu     sync.Mutex
	places []*host // that live, or are dead and not yet replaced
	graves []*host // killed: their goroutines wait for the end
}

// open starts another host at an address. It owns some of the tiles, unless others own them, and follows the rest.
func (hs *hosts) open(address string) (*host, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	h, err := hs.newHost(l)
	if err != nil {
		return nil, err
	}
	h.stop = hs.start(func(ctx context.Context) error {
		if err := h.Run(ctx); !h.line.Is(faultinject.Buried) {
			return err
		}
		return nil // how a host that was killed ends is no news
	})
	return h, nil
}

// Run implements tilefence.Server: it stops the hosts when ctx ends.
func (hs *hosts) Run(ctx context.Context) error {
	<-ctx.Done()
	for _, h := range hs.all() {
		if !h.line.Is(faultinject.Dead) {
			h.stop()
		}
	}
	hs.mu.Lock()
	graves := hs.graves
	hs.mu.Unlock()
	for _, h := range graves { // nothing holds their goroutines any more, and they write nothing
		h.line.Bury()
		h.stop()
	}
	return nil
}

// all are the hosts that live, or are dead and not yet replaced.
func (hs *hosts) all() []*host {
	if hs == nil {
		return nil
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Clone(hs.places)
}

// owner is the host that serves a tile under the highest epoch, or nil.
func (hs *hosts) owner(id fence.TileID) *host {
	var owner *host
	var highest fence.Epoch
	for _, h := range hs.all() {
		if s := h.status(id); !h.line.Is(faultinject.Dead) && s.State == tile.Serving && s.Epoch > highest {
			owner, highest = h, s.Epoch
		}
	}
	return owner
}

// kill ends a host as kill -9 does: no call of it returns any more, its connections are closed by the kernel, and
// nothing is drained or released.
func (hs *hosts) kill(h *host) {
	h.line.Set(faultinject.Dead)
	h.conns.Kill()
	h.member.Fade()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.graves = append(hs.graves, h)
}

// restart starts a host in the place of one that was killed. It owns nothing and follows the world.
func (hs *hosts) restart(killed *host) error {
	killed.member.Die()
	h, err := hs.open(killed.Contact())
	if err != nil {
		return err
	}
	hs.mu.Lock()
	hs.places[slices.Index(hs.places, killed)] = h
	hs.mu.Unlock()
	return h.Follow(hs.world...)
}

// silence is how long an owner hash may stall before a follower asks for the tile: four ticks, and a second
// at least.
func (o *options) silence() time.Duration { return max(4*o.tick, time.Second) }
