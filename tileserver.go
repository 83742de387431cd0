package tilefence

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/spawn"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// TileServerConfig holds the optional settings of a TileServer. Nil and the zero value are valid.
type TileServerConfig struct {
	// Web is where intents and hand-overs are served. By default the server listens at its contact; set Web.Listener
	// where the others reach it at an address that it does not have itself. It ends TLS with Backends.TLS.
	Web Web

	// Host are the settings of the tiles. The server sets Refollow and Restart. Hooks and Announce are called beside
	// the server's own. A Configure that replaces Hooks.Committed switches wake hints off.
	Host tilehost.Config

	// Spawn decides whether the server begins a tile without an owner because an intent or another tile's entity has
	// come for it, or because it has entities under way (see Backends.Workers): nil says yes, an error says no and
	// answers the intent. ErrFull is the one for a server that has no room, and
	// a *tile.RedirectError sends the intent elsewhere. Several tiles may be decided on at once, one tile once
	// at a time. Default: the server begins no tile that Own or Follow does not name.
	Spawn func(ctx context.Context, r SpawnRequest) error

	// Seats says what a tile that the server serves offers to matches: how many seats, and what its players are told
	// of it (match.Offer's Seats and Info; the server gives the rest). The server repeats the offer each second for as
	// long as it serves the tile. No seats withdraw the tile from the pool: its battle is over. It needs
	// Backends.Matches. It may be called from several goroutines, and must not wait. Default: no tile offers seats.
	Seats func(fence.TileID) match.Offer

	// HandOverTimeout bounds how long a server that stops hands its tiles to others. Those that are left are
	// released. Default 10 s.
	HandOverTimeout time.Duration

	// RebalanceEvery is about how often the server looks whether another tile server has less to do, as gossip knows;
	// then it hands tiles over, see tilehost.Host.Rebalance. So a server that comes back empty gets its share. A server
	// that stops, or is full, takes none. 1s is a good value. Default: never.
	RebalanceEvery time.Duration

	// Notify is called for each member that comes or goes, see route.Event. suspected is how many tiles of a member
	// that died the server follows and now takes over.
	Notify func(e route.Event, suspected int)

	// DecisionLog takes what the tiles' owners decide and are answered. Nil: it is not logged.
	DecisionLog *DecisionLog

	// Logger takes what an operator should read. It is also that of the tiles if Host.Tile has none. Nil
	// discards.
	Logger *slog.Logger
}

// TileServer is a complete tile server: a tilehost.Host whose tiles are found by gossip, announced to bridges by wake
// hints, restored from checkpoints, journaled where they write through, taken over when their owner dies, and
// handed over when the server stops. It serves intents and hand-overs over HTTP.
//
// A tile of its own that another server holds is followed, and taken when that server dies or hands it over: a
// server that comes back does not guess what it still owns. It also follows a tile that it lost or handed over.
//
// All methods may be called from any goroutine.
type TileServer struct {
	watched

	contact string
	tls     *tls.Config // of Backends
	cfg     TileServerConfig

	host    *tilehost.Host
	players players
	member  route.Membership
	table   *route.Table
	hinter  *fanout.Hinter
	peers   *tilehttp.Client // for hand-overs, and for what crosses a tile's border
	router  *route.Router    // to the owners of neighbours

	intents   *tilehttp.Handler
	inbound   tilehttp.HandlerConfig
	holders   address.Holders
	events    *slog.Logger     // of members, who may be many
	lease     *address.Lease   // nil without Backends.Workers
	consumers health.Consumers // of its tiles' streams
	flapping  health.Flapping

	spawner  spawn.Spawner // its Decide is nil if the server begins no tile
	waker    *spawn.Waker  // of tiles that need an owner; nil: it begins none, or has no list of them
	plans    *planDesk     // nil without Backends.Plans
	offers   *seatOffers   // nil without TileServerConfig.Seats
	ran      atomic.Bool
	stopping atomic.Bool

	mu     sync.Mutex
	wanted map[fence.TileID]bool  // the tiles of Own and Follow
	kept   map[fence.TileID]error // those whose owners ended here without releasing them
}

// NewTileServer returns a tile server that other processes reach at contact, a host and port. rules makes a
// tile's rules, empty and for that tile alone, each time the tile is begun. A nil cfg means the defaults.
//
// It needs Authority, Store, Log, Fanout, Durable and Members. With Workers, Run refuses to begin while another process
// runs at contact. It does no I/O and starts nothing. Errors: a
// *fence.ArgumentError.
func NewTileServer(
	contact string, b Backends, rules func(fence.TileID) (tile.Rules, error), cfg *TileServerConfig,
) (*TileServer, error) {
	err := require("TileServer", b.authority(), b.store(), b.log(), b.fanout(), b.durable(), b.members())
	if err != nil {
		return nil, err
	}
	if err := checkContact(contact); err != nil {
		return nil, err
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c.Host.Allow = b.exists(c.Host.Allow)
	s := &TileServer{contact: contact, tls: b.TLS, cfg: c, table: new(route.Table),
		wanted: map[fence.TileID]bool{}, events: sampled.Logger(c.Logger)}
	s.table.Known = func(c string) bool { return c == contact || s.holders.Lives(c) }
	if s.member, err = b.Members.Join(contact, s.table, c.Logger, s.memberChanged); err != nil {
		return nil, err
	}
	if s.router, err = route.NewRouter(s.table, b.Store, &route.RouterConfig{Known: s.table.Known}); err != nil {
		return nil, err
	}
	if s.hinter, err = fanout.NewHinter(b.Fanout, c.Logger); err != nil {
		return nil, err
	}
	if s.peers, err = tilehttp.NewClient(&tilehttp.Config{Keys: b.Keys, TLS: b.TLS, Logger: c.Logger}); err != nil {
		return nil, err
	}
	s.inbound = tilehttp.HandlerConfig{Keys: b.Keys, Contact: contact, Logger: c.Logger,
		Queue: func(ctx context.Context, in tile.Intent, answered func(tile.Result, error)) error {
			return s.host.Queue(ctx, in, answered)
		}}
	if s.intents, err = tilehttp.NewHandler(s, &s.inbound); err != nil {
		return nil, err
	}
	if b.Workers != nil {
		s.lease = address.NewLease(b.Workers, contact, c.Logger)
	}
	if err = s.players.open(&b, c.Logger, nil, nil); err != nil {
		return nil, err
	}
	if err = s.openPlans(b.Plans); err != nil {
		return nil, err
	}
	decisions, host := c.DecisionLog.server(contact), s.hostConfig()
	logEnds(decisions, &host.Hooks)
	seams := tile.Seams{Authority: decisions.Authority(b.Authority), Store: decisions.Store(b.Store), Log: b.Log,
		Journal: b.Durable, Handover: s.peers.Handover, Present: s.present,
		Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
			return checkpoint.Restore(ctx, b.Durable, id)
		}}
	s.host, err = tilehost.New(contact, seams, rules, host)
	if err != nil {
		return nil, err
	}
	if err = s.openOffers(&b); err != nil {
		return nil, err
	}
	s.openSpawner(&b)
	s.conditions.Of(b.Authority, b.Store, b.Fanout, b.Durable, b.Workers, b.Plans, b.Matches)
	s.conditions.More(b.Checked)
	s.worlds = health.NewWorlds(b.Authority, c.Logger, []any{b.Store, b.Log, b.Durable},
		checked(&b, b.Fanout, b.Workers, b.Directory, b.Plans, b.Matches))
	s.consumers = health.Consumers{Host: s.host, Log: b.Log, After: health.ConsumersAfter,
		Silent: health.SilentAfter(c.Host.Tile.MarkLease)}
	return s, nil
}

// openSpawner makes what begins tiles without an owner, if TileServerConfig.Spawn says so.
func (s *TileServer) openSpawner(b *Backends) {
	s.spawner = spawn.Spawner{Host: s.host, Store: b.Store, Members: s.member, Contact: s.contact, Logger: s.cfg.Logger}
	if s.cfg.Spawn != nil {
		s.spawner.Decide = func(ctx context.Context, id fence.TileID, held int) error {
			return s.cfg.Spawn(ctx, SpawnRequest{Tile: id, Tiles: held})
		}
		if b.Workers != nil {
			s.waker = &spawn.Waker{List: b.Workers, Spawner: &s.spawner, Authority: b.Authority, Logger: s.cfg.Logger}
		}
	}
}

func (c *TileServerConfig) withDefaults() (TileServerConfig, error) {
	d := setting.Of(c)
	d.HandOverTimeout = cmp.Or(d.HandOverTimeout, 10*time.Second)
	d.Logger = orDiscard(d.Logger)
	switch {
	case d.HandOverTimeout < 0:
		return d, argument("HandOverTimeout", d.HandOverTimeout, "a duration, or zero for 10s")
	case d.RebalanceEvery != 0 && d.RebalanceEvery < time.Millisecond:
		return d, argument("RebalanceEvery", d.RebalanceEvery, "at least 1ms, or zero for never")
	}
	return d, nil
}

// hostConfig is the caller's configuration of the host with the server's own parts.
func (s *TileServer) hostConfig() *tilehost.Config {
	c := s.cfg.Host
	c.Refollow, c.Restart = true, true
	hook.Attach(&c.Announce, func(o fence.Owner) {
		if err := s.member.Announce(route.Entry{Tile: o.Tile, Epoch: o.Epoch, Contact: o.Contact}); err != nil {
			s.cfg.Logger.Debug("owner not announced", "tile", o.Tile, "epoch", o.Epoch, "error", err)
		}
	})
	hook.Attach(&c.Hooks.Ended, s.tileEnded)
	hook.Attach(&c.Tile.Hooks.Committed, func(i tile.CommitInfo) {
		if !i.Refresh {
			s.hinter.Hint(i.Tile)
		}
	})
	s.players.tiles(&c.Tile.Hooks)
	if s.plans != nil {
		c.Tile.Hooks = s.plans.Hooks(c.Tile.Hooks)
	}
	if c.Tile.Logger == nil {
		c.Tile.Logger = s.cfg.Logger
	}
	return &c
}

// Host is the host of the server's tiles, for everything else: its status, single hand-overs, take-overs. It is
// run by the server.
func (s *TileServer) Host() *tilehost.Host { return s.host }

// Players is the server's part in Backends.Directory, to find and reach players wherever they are; nil without one.
func (s *TileServer) Players() *directory.Directory { return s.players.directory }

// Plans is where the rules of the server's tiles ask for slow decisions; the server runs it. It is nil without
// Backends.Plans.
func (s *TileServer) Plans() *plan.Desk {
	if s.plans == nil {
		return nil
	}
	return s.plans.Desk
}

// Members are the processes that the server knows to be alive, itself included while it runs.
func (s *TileServer) Members() []route.Member { return s.member.Members() }

// TileServerStats are the figures of a tile server, beside those of its Host.
type TileServerStats struct {
	Hinter fanout.HinterStats // of the wake hints that it sends
	Peers  tilehttp.Stats     // of the connections to those that it hands tiles to
	Table  route.TableStats   // of what it has learned of the tiles' owners
	Gossip any                // the Stats of what Backends.Members has joined, as gossip.Stats; nil: it has none
}

// Stats returns the server's figures.
func (s *TileServer) Stats() TileServerStats {
	return TileServerStats{Hinter: s.hinter.Stats(), Peers: s.peers.Stats(), Table: s.table.Stats(),
		Gossip: statsOf(s.member)}
}

// Contact is the address at which the server takes intents.
func (s *TileServer) Contact() string { return s.contact }

// Own makes the server own those of the tiles that no other process holds, and follow the others. It does not wait,
// and may be called before Run. Errors as for tilehost.Host.Own.
func (s *TileServer) Own(tiles ...fence.TileID) error {
	if err := s.host.Own(tiles...); err != nil {
		return err
	}
	s.want(tiles)
	return nil
}

// Follow makes the server a warm follower of tiles. A tile without an owner is taken after Config.SuspectAfter.
// Otherwise it is like Own.
func (s *TileServer) Follow(tiles ...fence.TileID) error {
	if err := s.host.Follow(tiles...); err != nil {
		return err
	}
	s.want(tiles)
	return nil
}

func (s *TileServer) want(tiles []fence.TileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range tiles {
		s.wanted[id] = true
	}
}

// ErrFull is what TileServerConfig.Spawn answers when the server has no room for another tile, and what clients get
// when Host.MaxTiles is reached. It is a tile.ErrOverloaded: nothing was queued, and the client may try again later.
var ErrFull = tilehost.ErrFull

// SpawnRequest asks whether a server begins a tile without an owner.
type SpawnRequest struct {
	Tile  fence.TileID
	Tiles int // that the server runs or follows already
}

// Submit queues an intent at its tile and waits for its outcome, as tilehost.Host.Submit does. If the tile has no
// owner and TileServerConfig.Spawn agrees, the server claims it first. The server that the authority gives the tile to
// resolves the intent: a server that loses the race redirects to the winner.
//
// Errors: those of tilehost.Host.Submit; what Spawn answered; what kept the tile from being begun. None of the last
// two has queued anything.
func (s *TileServer) Submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	r, err := s.host.Submit(ctx, in)
	away, redirected := errors.AsType[*tile.RedirectError](err)
	if s.spawner.Decide == nil || !redirected || away.Contact != "" {
		return r, err
	}
	if err := s.spawner.Begin(ctx, in.Tile); err != nil {
		return tile.Result{}, err
	}
	return s.host.Submit(ctx, in)
}

// tileEnded makes the server follow a tile that it wants and another server owns.
func (s *TileServer) tileEnded(i tilehost.EndInfo) {
	id := i.Status.Tile
	if errors.Is(i.Err, tile.ErrSuperseded) {
		s.flapping.Note(id)
	}
	s.noteKept(&i)
	elsewhere := errors.Is(i.Err, fence.ErrLost) || i.Err == nil && i.Status.Successor.Present()
	s.mu.Lock()
	wanted := s.wanted[id]
	if i.Err == nil && !elsewhere {
		delete(s.wanted, id) // it was given up
	}
	s.mu.Unlock()
	if !elsewhere || !wanted || s.stopping.Load() {
		return
	}
	if err := s.host.Follow(id); err != nil {
		s.cfg.Logger.Warn("tile is not followed", "tile", id, "error", err)
	}
}

// memberChanged makes the server go after the tiles of a member that died. What counts is the member, not the contact
// that it claimed.
func (s *TileServer) memberChanged(e route.Event) {
	suspected, m := 0, e.Member
	if e.Kind == route.Joined {
		if holder := s.holders.Joined(m); holder != m.Name || m.Contact == s.contact {
			s.events.Warn("member has the contact of another that is alive: a process started again, or an impostor",
				"contact", m.Contact, "name", m.Name, "holder", holder)
		}
		s.host.Vouch(m.Contact)
	} else {
		held, lives := s.holders.Ended(m)
		if held && e.Kind == route.Died {
			suspected = s.host.Suspect(m.Contact)
		}
		if lives {
			s.host.Vouch(m.Contact)
		}
	}
	s.events.Info("member "+e.Kind.String(), "contact", m.Contact, "name", m.Name, "suspected_tiles", suspected)
	if s.cfg.Notify != nil {
		s.cfg.Notify(e, suspected)
	}
}

// Run serves until ctx ends. Then it hands its tiles to other members, releases those that no member takes, each
// after its last tick and snapshot, closes its listener, and leaves the gossip last of all. It returns when every
// goroutine of the server has ended, or after StopTimeout: nil, or what failed; an *UnreleasedError names tiles that it
// could neither hand over nor release; a *fence.WorldError if a back end belongs to another world, and then the server
// has taken no tile; a *fence.ArgumentError if another process runs at the server's address. If one was killed there,
// Run begins after 4 s at most. It waits, and says so in the log, until it knows the world of Authority, Store, Log and
// Durable. It runs once: fence.ErrAlreadyRun.
func (s *TileServer) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return alreadyRun("TileServer")
	}
	if len(s.inbound.Keys) == 0 {
		warnOpen(s.cfg.Logger, "tile server")
	}
	l, err := s.open(ctx)
	if err != nil {
		s.host.Abandon(err)
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForPart)
	if s.lease != nil {
		c.Start("address", s.lease.Keep)
	}
	c.OnStop("peers", func(time.Time) { s.peers.Close() })
	c.Start("membership", s.member.Run)
	c.Start("hinter", s.hinter.Run)
	s.players.start(c)
	c.Start("listener", func(ctx context.Context) error { return s.cfg.Web.serve(ctx, l, s.handler(), s.cfg.Logger) })
	c.OnStop("intents", func(by time.Time) { s.drainIntents(context.WithoutCancel(ctx), by) })
	if s.plans != nil { // it is stopped after the tiles
		c.Start("plans", s.plans.Run)
	}
	c.Start("host", s.host.Run)
	if s.offers != nil {
		c.Start("seats", s.offers.run)
	}
	if s.waker != nil {
		c.Start("waker", s.waker.Run)
	}
	c.Start("consumers", s.consumers.Watch)
	c.Start("conditions", s.conditions.Watch)
	c.Start("worlds", s.worlds.Watch)
	c.Start("health", func(ctx context.Context) error { return s.loop.Log(ctx, s.cfg.Logger, s.problems) })
	c.Start("loads", s.announceLoads)
	balanced, tilt := context.WithCancel(ctx) // the rebalancer ends before the tiles are handed over
	defer tilt()
	if every := s.cfg.RebalanceEvery; every > 0 {
		c.Start("rebalancer", func(context.Context) error { return s.host.Rebalance(balanced, every, s.loads) })
	}
	c.Wait(ctx)
	tilt()
	s.stopping.Store(true)
	by := taskgroup.StopBy(ctx, StopTimeout)
	s.handOver(context.WithoutCancel(ctx), by)
	return s.unreleased(c.Stop(by))
}

// open takes what a server needs before it may begin: its port, its world, and the lease of its address.
func (s *TileServer) open(ctx context.Context) (net.Listener, error) {
	l, err := s.cfg.Web.listen(ctx, s.contact, s.tls)
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.Info("tile server listens", "addr", l.Addr().String(), "contact", s.contact)
	if err = s.worlds.Enter(ctx); err == nil && s.lease != nil {
		err = s.lease.Acquire(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// drainIntents answers the intents that gateways have sent, and has the gateways end their connections. The tiles have
// ended before, so that every answer is there but for the redirects.
func (s *TileServer) drainIntents(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithTimeout(ctx, min(shutdownTimeout, time.Until(by)))
	defer cancel()
	if err := s.intents.Drain(ctx); err != nil {
		s.cfg.Logger.Warn("intents were under way when the tile server ended", "error", err)
	}
}

func (s *TileServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, s.intents)
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(successor{s}, &s.inbound))
	mux.Handle(tilehttp.PresentPath, tilehttp.PresentHandler(s.presented, &s.inbound))
	return mux
}
