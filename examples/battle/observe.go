package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os/exec"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// newPoller makes what the page of this process shows. hosts are those in this process, or nil.
func (p *plan) newPoller(hosts *hosts) *statuspoller.Poller {
	t := &statuspoller.Poller{Tiles: p.world, Log: p.meters.Log, Store: p.backends.Store,
		Authority: p.backends.Authority, Inspector: p.inspectorOf, Totals: p.totals, Clients: p.clientStats,
		Latency: p.meters.Players.Latency, Frames: &p.meters.Players.Frames, Add: p.addStatus}
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
	return &inspect.Client{URL: p.secure.URL("http", contact+"/inspect"), HTTP: p.secure.Actor()}
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
	s.Routing, s.Lobby, s.Pilots = p.meters.Routing(), p.lobby.shows(), p.pilot.Status()
	if p.chaos != nil {
		s.Chaos = statuspoller.ChaosOf(p.chaos, p.options.seed)
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

// inspector is the library's page on the tiles of this host, for people on the same machine, who may move tiles.
func (h *host) inspector() http.Handler {
	page, err := inspect.New(h.TileServer, h.backends.Log, onThisMachine,
		&inspect.Config{Decode: decodeTile, Control: true, Logger: h.logger})
	if err != nil {
		h.logger.Error("there is no inspector", "error", err)
		return http.NotFoundHandler()
	}
	return page
}

// onThisMachine admits a browser that asked for a loopback address from one. A page elsewhere whose name leads here
// asks for that name.
func onThisMachine(r *http.Request) error {
	for _, at := range []string{r.RemoteAddr, r.Host} {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			return err
		}
		if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return errors.New("only this machine may inspect a battle")
		}
	}
	return nil
}

// decodeTile lists the ships of a tile.
func decodeTile(id fence.TileID, snapshot []byte) (any, error) {
	ground, err := game.GroundOf(id, nil)
	if err != nil {
		return nil, err
	}
	view, err := game.NewView(ground)
	if err != nil {
		return nil, err
	}
	if err := view.Restore(snapshot, fence.AreaSet{}); err != nil {
		return nil, err
	}
	return map[string]any{"ships": view.Ships()}, nil
}

// newMetrics are the library's metrics of a process.
func newMetrics() (*prometheus.Registry, *prommetrics.Metrics, error) {
	registry := prometheus.NewRegistry()
	metrics, err := prommetrics.New(registry)
	return registry, metrics, err
}

func (p *plan) metricsHandler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{})
}

// totals reads the library's metrics of this process.
func (p *plan) totals() (statuspoller.Totals, error) { return statuspoller.ReadTotals(p.registry) }

// observe starts Prometheus beside servers that this process has started, where it is installed.
func (d *deployment) observe() error {
	stack := d.backends.stack
	switch {
	case stack == nil:
		return nil
	case d.secure != nil:
		d.say("Prometheus is not started: the figures of a secure battle are not for every program\n")
		return nil
	}
	url, err := stack.StartPrometheus(context.Background(), d.page.Addr().String(), d.dir)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		d.say("Prometheus is not started: it is not installed (on Debian, apt-get install prometheus)\n")
	case err != nil:
		return err
	default:
		d.say("  Prometheus:        %s/\n\n", url)
	}
	return nil
}
