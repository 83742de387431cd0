package main

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// newPoller makes what the page of this process shows. hosts are those in this process, or nil.
func (p *plan) newPoller(hosts *hosts) *statuspoller.Poller {
	t := &statuspoller.Poller{Tiles: p.world, Log: p.meters.log, Store: p.backends.Store,
		Authority: p.backends.Authority, Inspector: p.inspectorOf, Totals: p.totals, Clients: p.clientStats,
		Latency: p.meters.players.Latency, Frames: &p.meters.players.Frames, Add: p.addStatus}
	if hosts != nil {
		t.Bots = p.options.clients
		t.Digest = func(ctx context.Context, owner string, id fence.TileID) (string, fence.Seq, bool) {
			for _, h := range hosts.all() {
				if h.Contact() == owner && h.line.Is(faultinject.Flowing) {
					s, err := h.state(ctx, id)
					return s.Digest, s.Seq, err == nil
				}
			}
			return "", 0, false
		}
	}
	return t
}

func (p *plan) inspectorOf(contact string) *inspect.Client {
	return &inspect.Client{URL: p.secure.url("http", contact+"/inspect"), HTTP: p.secure.actor()}
}

// clientStats are the counters of this process's bots.
func (p *plan) clientStats() relayclient.Stats {
	if f := p.fleet.Load(); f != nil {
		return f.Stats()
	}
	return relayclient.Stats{}
}

// addStatus adds what only the battle knows.
func (p *plan) addStatus(s *statuspoller.Status) {
	s.Routing, s.Lobby, s.Pilots = p.meters.routing(), p.lobby.shows(), p.pilot.status()
	if p.chaos != nil {
		s.Chaos = chaosStatus(p.chaos, p.options.seed)
	}
}

// printStatus prints the status line.
func (d *deployment) printStatus(ctx context.Context) error {
	return d.poller.Print(ctx, d.errs, func() string {
		if d.chaos == nil {
			return ""
		}
		return d.chaos.Line()
	})
}
