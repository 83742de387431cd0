package tilefence

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// GatewayServerConfig holds the optional settings of a GatewayServer. Nil and the zero value are valid.
type GatewayServerConfig struct {
	// Web is where clients connect. By default the server listens at its address, and every path is the
	// WebSocket's.
	Web Web

	// TLS makes the server end TLS itself; it needs a certificate. Nil: connections are not encrypted, unless
	// Web.Listener does that, or a load balancer before it.
	TLS *tls.Config

	// Gateway are the settings of the gateway. Its Hooks are also those of the ledger: Admitted and Settled are called
	// too. Without Gateway.Reconciler the server makes one.
	Gateway admission.GatewayConfig
	// Reconciler says how actions that are too old to be sent are settled from the tiles' streams. That needs Log among
	// the back ends, with the right to read all streams and snapshots; without it they stay pending until an operator
	// decides. Set Reconciler.RememberFor to have costs given back as well, which also needs Authority.
	Reconciler admission.ReconcilerConfig
	// Clients are the settings of the clients' connections.
	Clients gatewayws.Config

	// Spawn sends the intents for a tile without an owner to a tile server, always the same one while the
	// members are the same, which may begin the tile: see TileServerConfig.Spawn. Gateway.Spawn, if set, names the
	// process instead. Default: such an intent is answered with an error that asks the client to try again.
	Spawn bool

	// DrainTimeout bounds how long a gateway that stops lets intents under way finish. Default 5 s.
	DrainTimeout time.Duration

	// DecisionLog takes what the ledger answers: spends and refunds. Nil: it is not logged.
	DecisionLog *DecisionLog

	// Logger is also that of Gateway and Clients if they have none. Nil discards.
	Logger *slog.Logger
}

// GatewayServer is a complete gateway: clients' WebSockets, the ledger, and routing by gossip, owner hashes and
// redirects. Any number of them may run; they share the sweep of actions that were left behind.
//
// All methods may be called from any goroutine.
type GatewayServer struct {
	watched

	addr    string
	name    string // of this life, since others may listen at the same address of their own machine
	cfg     GatewayServerConfig
	member  route.Membership
	table   *route.Table
	router  *route.Router
	peers   *tilehttp.Client
	gateway *admission.Gateway
	clients *gatewayws.Handler
	players players
	keyed   bool

	unreached, unrouted, late, behind health.Rising

	ran atomic.Bool
}

// NewGatewayServer returns a gateway that listens at addr, a host, which may be empty, and a port. It tells that
// address to no other process: players come through a load balancer or by a name of yours, and many gateways may have
// one addr. authenticate says who a client is, and price what an action costs; neither may be nil, since nothing else
// keeps clients from naming themselves and their prices. A nil cfg means the defaults.
//
// It needs Store, Ledger and Members. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewGatewayServer(
	addr string, b Backends, authenticate session.AuthenticateFunc, price admission.PriceFunc, cfg *GatewayServerConfig,
) (*GatewayServer, error) {
	if err := require("GatewayServer", b.store(), b.ledger(), b.members()); err != nil {
		return nil, err
	}
	if err := checkAddress(addr); err != nil {
		return nil, err
	}
	if price == nil {
		return nil, argument("price", "nil", "a function that decides what an action costs")
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c.Gateway.Allow = b.exists(c.Gateway.Allow)
	g := &GatewayServer{addr: addr, name: addr + "#" + rand.Text()[:13], cfg: c, keyed: len(b.Keys) > 0}
	g.conditions.Of(b.Ledger, b.Matches, b.Plans)
	g.conditions.More(b.Checked)
	g.worlds = health.NewWorlds(b.Authority, c.Logger, nil, checked(&b, b.Store, b.Log, b.Ledger, b.Directory,
		b.Matches, b.Plans))
	members := new(address.Holders)
	g.table = &route.Table{Known: members.Lives}
	if g.member, err = b.Members.Join(address.GatewayPrefix+g.name, g.table, c.Logger, members.Changed); err != nil {
		return nil, err
	}
	if g.router, err = route.NewRouter(g.table, b.Store, &route.RouterConfig{Known: members.Lives}); err != nil {
		return nil, err
	}
	if g.peers, err = tilehttp.NewClient(&tilehttp.Config{Keys: b.Keys, TLS: b.TLS, Logger: c.Logger}); err != nil {
		return nil, err
	}
	ledger, err := admission.New(b.Ledger,
		&admission.Config{Logger: c.Logger, Hooks: c.DecisionLog.spends(g.name, c.Gateway.Hooks)})
	if err != nil {
		return nil, err
	}
	if c.Spawn && c.Gateway.Spawn == nil {
		g.cfg.Gateway.Spawn = g.spawnOn
	}
	if err := g.reconcile(&b); err != nil {
		return nil, err
	}
	if g.gateway, err = admission.NewGateway(ledger, g.router, g.peers, price, &g.cfg.Gateway); err != nil {
		return nil, err
	}
	err = g.players.open(&b, c.Logger, func(actor string) int { return g.clients.EndActor(actor) },
		func(actor string, message []byte) int { return g.clients.Tell(actor, message) })
	if err != nil {
		return nil, err
	}
	g.players.gateway(&c.Clients)
	if g.clients, err = gatewayws.New(g.gateway, authenticate, &c.Clients); err != nil {
		return nil, err
	}
	return g, nil
}

// reconcile gives the gateway a Reconciler over the back ends, if they are there.
func (g *GatewayServer) reconcile(b *Backends) (err error) {
	c := g.cfg.Reconciler
	if g.cfg.Gateway.Reconciler != nil || b.Log == nil && c.RememberFor == 0 {
		return nil
	}
	if c.RememberFor != 0 {
		if err := require("GatewayServer with Reconciler.RememberFor", b.authority(), b.log()); err != nil {
			return err
		}
	}
	c.RetryWindow = max(cmp.Or(c.RetryWindow, tile.DefaultRetryWindow), g.cfg.Gateway.RetryWindow)
	g.cfg.Gateway.Reconciler, err = admission.NewReconciler(b.Authority, b.Store, b.Log, &c)
	return err
}

func (c *GatewayServerConfig) withDefaults() (GatewayServerConfig, error) {
	d := setting.Of(c)
	d.Logger = orDiscard(d.Logger)
	d.DrainTimeout = cmp.Or(d.DrainTimeout, 5*time.Second)
	d.Gateway.Logger = cmp.Or(d.Gateway.Logger, d.Logger)
	d.Clients.Logger = cmp.Or(d.Clients.Logger, d.Logger)
	if d.DrainTimeout < 0 {
		return d, argument("DrainTimeout", d.DrainTimeout, "a duration, or zero for 5s")
	}
	return d, nil
}

// Members are the processes that the gateway knows to be alive, itself included while it runs.
func (g *GatewayServer) Members() []route.Member { return g.member.Members() }

// GatewayServerStats are the figures of a gateway.
type GatewayServerStats struct {
	Gateway admission.Stats
	Clients gatewayws.Stats
	Router  route.Stats      // of how it finds the tiles' owners
	Peers   tilehttp.Stats   // of its connections to tile servers
	Table   route.TableStats // of what it has learned of the tiles' owners
	Gossip  any              // the Stats of what Backends.Members has joined, as gossip.Stats; nil: it has none
}

// Stats returns the gateway's figures.
func (g *GatewayServer) Stats() GatewayServerStats {
	return GatewayServerStats{Gateway: g.gateway.Stats(), Clients: g.clients.Stats(), Router: g.router.Stats(),
		Peers: g.peers.Stats(), Table: g.table.Stats(), Gossip: statsOf(g.member)}
}

// Gateway is the gateway itself, for intents that come another way than over a WebSocket.
func (g *GatewayServer) Gateway() *admission.Gateway { return g.gateway }

// Clients are the clients' connections, to end sessions.
func (g *GatewayServer) Clients() *gatewayws.Handler { return g.clients }

// Players is the server's part in Backends.Directory, to find and reach players wherever they are; nil without one.
func (g *GatewayServer) Players() *directory.Directory { return g.players.directory }

// Run serves clients until ctx ends. Then it refuses new intents, finishes those under way, closes its connections
// and its listener, and leaves the gossip. It returns when every goroutine of the server has ended: nil, or what
// failed. It runs once: fence.ErrAlreadyRun.
func (g *GatewayServer) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return alreadyRun("GatewayServer")
	}
	if !g.keyed {
		warnOpen(g.cfg.Logger, "gateway")
	}
	l, err := g.cfg.Web.listen(ctx, g.addr, g.cfg.TLS)
	if err != nil {
		return err
	}
	if err := g.worlds.First(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	g.cfg.Logger.Info("gateway listens", "addr", l.Addr().String())
	c := taskgroup.New(ctx, taskgroup.ForPart)
	c.OnStop("peers", func(by time.Time) {
		g.drain(ctx, by, "intents were on their way to tile servers when the gateway ended", g.peers.Drain)
	})
	c.Start("membership", g.member.Run)
	g.players.start(c)
	c.Start("gateway", g.gateway.Run)
	c.Start("conditions", g.conditions.Watch)
	c.Start("worlds", g.worlds.Watch)
	c.Start("listener", func(ctx context.Context) error { return g.cfg.Web.serve(ctx, l, g.clients, g.cfg.Logger) })
	c.Start("health", func(ctx context.Context) error { return g.loop.Log(ctx, g.cfg.Logger, g.problems) })
	c.OnStop("clients", func(by time.Time) {
		g.drain(ctx, by, "intents were under way when the gateway ended", g.clients.Drain)
	})
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// drain gives part of the gateway DrainTimeout to finish, until by at most.
func (g *GatewayServer) drain(
	ctx context.Context, by time.Time, unfinished string, part func(context.Context) error,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(g.cfg.DrainTimeout, time.Until(by)))
	defer cancel()
	if err := part(ctx); err != nil {
		g.cfg.Logger.Warn(unfinished, "error", err)
	}
}

// spawnOn names the tile server that begins a tile without an owner.
func (g *GatewayServer) spawnOn(_ context.Context, id fence.TileID) (string, error) {
	servers := address.TileServers(g.member, "")
	if len(servers) == 0 {
		return "", &route.NoRouteError{Tile: id}
	}
	return address.Preferred(id, servers)[0], nil
}
