package tilefence

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/session"
)

// RelayServerConfig holds the optional settings of a RelayServer. Nil and the zero value are valid.
type RelayServerConfig struct {
	// Web is where watchers connect. By default the server listens at its address, and every path is the
	// WebSocket's.
	Web Web

	// TLS makes the server end TLS itself; it needs a certificate. Nil: connections are not encrypted, unless
	// Web.Listener does that, or a load balancer before it.
	TLS *tls.Config

	// Relay are the settings of the relay.
	Relay relay.Config

	// Logger is also that of Relay if it has none. Nil discards.
	Logger *slog.Logger
}

// RelayServer is a complete relay: watchers' WebSockets, and what they need of fan-out and coordination store.
//
// All methods may be called from any goroutine.
type RelayServer struct {
	watched

	addr    string
	web     Web
	tls     *tls.Config
	relay   *relay.Relay
	players players
	drain   time.Duration
	log     *slog.Logger
	ran     atomic.Bool

	failing, stale, forged, late health.Rising

	hearing sync.Mutex
	deaf    health.Deaf // guarded by hearing
}

// NewRelayServer returns a relay that listens at addr, a host, which may be empty, and a port. It tells that address to
// no other process: watchers come through a load balancer or by a name of yours. authorize decides over each
// subscription and each change of areas, from who the watcher is (cfg.Relay.Authenticate). It must not be nil, since it
// keeps watchers to tiles that exist, and to tiles and areas that they may see. A nil cfg means the defaults.
//
// It needs Log and Fanout. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewRelayServer(
	addr string, b Backends, authorize relay.AuthorizeFunc, cfg *RelayServerConfig,
) (*RelayServer, error) {
	if err := require("RelayServer", b.log(), b.fanout()); err != nil {
		return nil, err
	}
	if err := checkAddress(addr); err != nil {
		return nil, err
	}
	c := setting.Of(cfg)
	c.Logger = orDiscard(c.Logger)
	c.Relay.Logger = cmp.Or(c.Relay.Logger, c.Logger)
	if authorize == nil {
		return nil, argument("authorize", "nil", "a function that decides who may watch which areas of a tile")
	}
	exists := b.exists(nil)
	inWorld := func(ctx context.Context, who session.Identity, id fence.TileID, areas fence.AreaSet) error {
		if err := exists(id); err != nil {
			return err
		}
		return authorize(ctx, who, id, areas)
	}
	server := &RelayServer{addr: addr, web: c.Web, tls: c.TLS, log: c.Logger,
		drain: cmp.Or(c.Relay.DrainWindow, relay.DefaultDrainWindow) + shutdownTimeout}
	err := server.players.open(&b, c.Logger, func(actor string) int { return server.relay.EndActor(actor) }, nil)
	if err != nil {
		return nil, err
	}
	server.players.relay(&c.Relay.Hooks)
	if server.relay, err = relay.New(b.Fanout, b.Log, inWorld, &c.Relay); err != nil {
		return nil, err
	}
	server.conditions.Of(b.Fanout, c.Relay.Views)
	server.worlds = health.NewWorlds(b.Authority, c.Logger, nil, []any{b.Log, b.Fanout, c.Relay.Views, b.Directory})
	return server, nil
}

// Relay is the relay itself, for its figures and to end sessions.
func (r *RelayServer) Relay() *relay.Relay { return r.relay }

// Players is the server's part in Backends.Directory, to find and reach players wherever they are; nil without one.
func (r *RelayServer) Players() *directory.Directory { return r.players.directory }

// Run serves watchers until ctx ends. Then it sends them to other relays, over Relay.DrainWindow, and closes its
// listener. It returns when every goroutine of the server has ended: nil, or what failed. It runs once:
// fence.ErrAlreadyRun.
func (r *RelayServer) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return alreadyRun("RelayServer")
	}
	l, err := r.web.listen(ctx, r.addr, r.tls)
	if err != nil {
		return err
	}
	if err := r.worlds.First(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	r.log.Info("relay listens", "addr", l.Addr().String())
	c := taskgroup.New(ctx, taskgroup.ForPart)
	r.players.start(c)
	c.Start("relay", func(ctx context.Context) error {
		err := r.relay.Run(ctx)
		if errors.Is(err, fence.ErrAlreadyRun) { // it was drained before it had begun
			return nil
		}
		return err
	})
	c.Start("conditions", r.conditions.Watch)
	c.Start("worlds", r.worlds.Watch)
	c.Start("listener", func(ctx context.Context) error { return r.web.serve(ctx, l, r.relay.Handler(), r.log) })
	c.Start("health", func(ctx context.Context) error { return r.loop.Log(ctx, r.log, r.problems) })
	c.OnStop("drain", func(by time.Time) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.drain, time.Until(by)))
		defer cancel()
		_ = r.relay.Drain(bounded) // the clients left are closed by Run
	})
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}
