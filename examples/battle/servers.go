package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/benchmark/pilots"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/metrics/prommetrics"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/relay/viewcache"
)

// Where the WebSockets are.
const (
	viewPath   = "/view"
	intentPath = "/intent"
)

// plan is what the servers of a battle are made from.
type plan struct {
	options  *options
	backends *backends
	world    []fence.TileID
	meters   *measure.Meters
	registry *prometheus.Registry
	metrics  *prommetrics.Metrics // the library's, in registry
	logger   *slog.Logger
	dir      string      // for files; it is removed when the battle has ended
	errs     io.Writer   // for the person who watches
	fail     func(error) // ends the battle

	secure    *certs.Transport       // nil: nothing is encrypted
	control   http.Handler           // page, buttons, figures and health, if they are not at the players' doors
	decisions *tilefence.DecisionLog // nil: they are not logged

	lobby *lobby                        // of this process, or nil
	pilot *pilots.Pilots                // the same
	chaos *chaos.Runner                 // the same
	fleet atomic.Pointer[players.Fleet] // the same

	parts []tilefence.Server // of this process, whose health is asked
}

// ask has the health and the figures of servers asked. It is called before they run.
func (p *plan) ask(servers ...tilefence.Server) {
	p.metrics.Servers(servers...)
	p.parts = append(p.parts, servers...)
}

// newPlan opens the back ends of a battle. The battle is over when the context that it returns ends.
func newPlan(
	ctx context.Context, o *options, dir string, logger *slog.Logger, errs io.Writer,
) (context.Context, *plan, error) {
	world, err := game.World(o.tiles)
	if err != nil {
		return nil, nil, err
	}
	var secure *certs.Transport
	if o.secure {
		if secure, err = certs.NewTransport(o.certificates); err != nil {
			return nil, nil, err
		}
	}
	registry, metrics, err := newMetrics()
	if err != nil {
		return nil, nil, err
	}
	var views viewcache.Hooks
	prommetrics.Attach(metrics, &views)
	b, err := awaitBackends(ctx, o, secure, views, dir, logger, errs)
	if err != nil {
		return nil, nil, err
	}
	p := &plan{options: o, backends: b, world: world, meters: measure.NewMeters(), logger: logger, dir: dir, errs: errs,
		secure: secure, registry: registry, metrics: metrics}
	if o.trace != "" {
		if p.decisions, err = tilefence.CreateDecisionLog(o.trace); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.fail = func(err error) { cancel(&failure{err}) }
	if o.duration > 0 {
		time.AfterFunc(o.duration, func() { cancel(nil) })
	}
	return ctx, p, nil
}

// close closes what newPlan opened, after all servers have ended.
func (p *plan) close() {
	if p.decisions != nil {
		if err := p.decisions.Close(); err != nil {
			p.say("battle: %s: %v\n", p.options.trace, err)
		}
	}
	p.backends.close()
}

// failure is the cause of the end of a battle that was not told to end.
type failure struct{ error }

// failed is what ended the battle, if it was not told to end.
func failed(ctx context.Context) error {
	if f, ok := context.Cause(ctx).(*failure); ok { //nolint:errorlint // it is never wrapped
		return f.error
	}
	return nil
}

// say tells the person who started the process something.
func (p *plan) say(format string, args ...any) { fmt.Fprintf(p.errs, format, args...) }

// start runs f beside the servers, and returns what stops it and waits for its end. Its error ends the battle.
func (p *plan) start(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil {
			p.fail(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// listen takes an address. If the port is taken and free says so, any free one will do.
func listen(address string, free bool) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if host, _, splitErr := net.SplitHostPort(address); err != nil && free && splitErr == nil {
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	return l, err
}

func (p *plan) newBridge(b tilefence.Backends) (*tilefence.BridgeServer, error) {
	cfg := tilefence.BridgeServerConfig{Logger: p.logger}
	prommetrics.Attach(p.metrics, &cfg)
	return tilefence.NewBridgeServer(b, &cfg)
}

func (p *plan) newCheckpointer() (*tilefence.CheckpointServer, error) {
	cfg := tilefence.CheckpointServerConfig{Logger: p.logger}
	prommetrics.Attach(p.metrics, &cfg)
	return tilefence.NewCheckpointServer(p.backends.Backends, &cfg)
}

// newRelay makes the relay, which serves the page of a poller too.
func (p *plan) newRelay(l net.Listener, t *statuspoller.Poller) (*tilefence.RelayServer, error) {
	known := map[fence.TileID]bool{}
	for _, id := range p.world {
		known[id] = true
	}
	// Nothing is hidden in an area of a battle: clients name few of them to be sent less.
	mayWatch := func(_ context.Context, _ session.Identity, id fence.TileID, _ fence.AreaSet) error {
		if !known[id] {
			return fmt.Errorf("tile %s is not part of this battle", id)
		}
		return nil
	}
	page, err := p.page(t)
	if err != nil {
		return nil, err
	}
	if p.secure != nil {
		p.control = page
	}
	cfg := tilefence.RelayServerConfig{
		TLS: p.secure.Doors(), Web: tilefence.Web{Listener: l, Handler: func(own http.Handler) http.Handler {
			page.Handle(viewPath, own)
			page.Handle("GET /livez", tilefence.LiveHandler(p.parts...))
			page.Handle("GET /readyz", tilefence.ReadyHandler(p.parts...))
			if p.secure == nil {
				return page
			}
			doors := http.NewServeMux()
			doors.Handle(viewPath, own)
			if p.lobby != nil {
				doors.Handle(lobbyPath, p.lobby.handler)
			}
			return doors
		}},
		Relay: relay.Config{Authenticate: p.watcher, ShowOwners: p.secure == nil,
			Limits: relay.Limits{MaxClients: 25000}, DrainWindow: time.Second,
			Views: p.backends.views}, Logger: p.logger}
	prommetrics.Attach(p.metrics, &cfg)
	s, err := tilefence.NewRelayServer(l.Addr().String(), p.backends.Backends, mayWatch, &cfg)
	if err == nil {
		t.Relay = s.Relay()
	}
	return s, err
}

// page serves the spectator page and the figures.
func (p *plan) page(t *statuspoller.Poller) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.metricsHandler())
	if p.lobby != nil {
		mux.Handle(lobbyPath, p.lobby.handler)
	}
	if p.options.noPage {
		return mux, nil
	}
	w, err := spectator.NewWorld(viewPath, p.options.tick, p.world...)
	if err != nil {
		return nil, err
	}
	mux.Handle("/", spectator.Handler(w, t))
	return mux, nil
}
