package tilefence

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// MatchServerConfig holds the optional settings of a MatchServer. Nil and the zero value are valid.
type MatchServerConfig struct {
	// Worker and Supervisor are the settings of the two parts. Each calls its own Hooks.
	Worker     match.WorkerConfig
	Supervisor match.SupervisorConfig

	// Allocator finds a place for each match. Default: the seats that tile servers offer, see TileServerConfig.Seats,
	// held for 30 s.
	Allocator match.Allocator

	// DecisionLog takes where matches were assigned. Nil: it is not logged.
	DecisionLog *DecisionLog

	// Logger is also that of Worker and Supervisor if they have none. Nil discards.
	Logger *slog.Logger
}

// MatchServer is a complete server of matchmaking: a match.Worker that makes matches, and a match.Supervisor that
// returns what a dead server held. Run two at least, in different processes: each supervises the others.
//
// All methods may be called from any goroutine.
type MatchServer struct {
	watched

	lobby      *match.Lobby
	worker     *match.Worker
	supervisor *match.Supervisor
	log        *slog.Logger
	ran        atomic.Bool

	failed, seatless, refused    atomic.Uint64 // calls, matches, looks
	failing, noSeats, misfitting health.Rising
}

// NewMatchServer returns a server of these queues. A nil cfg means the defaults.
//
// It needs Matches. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewMatchServer(b Backends, queues []match.Queue, cfg *MatchServerConfig) (*MatchServer, error) {
	if err := require("MatchServer", b.matches()); err != nil {
		return nil, err
	}
	c := setting.Of(cfg)
	c.Logger = orDiscard(c.Logger)
	c.Worker.Logger, c.Supervisor.Logger = cmp.Or(c.Worker.Logger, c.Logger), cmp.Or(c.Supervisor.Logger, c.Logger)
	c.Worker.Name = cmp.Or(c.Worker.Name, rand.Text()[:10])
	s := &MatchServer{log: c.Logger}
	decisions := c.DecisionLog.server("match/" + c.Worker.Name)
	s.watch(&c.Worker.Hooks, decisions)
	s.watch(&c.Supervisor.Hooks, decisions)
	var err error
	if c.Allocator == nil {
		if c.Allocator, err = match.NewSeatAllocator(b.Matches, b.pool(), 0); err != nil {
			return nil, err
		}
	}
	if s.lobby, err = match.NewLobby(b.Matches, queues...); err != nil {
		return nil, err
	}
	if s.worker, err = match.NewWorker(b.Matches, c.Allocator, queues, &c.Worker); err != nil {
		return nil, err
	}
	if s.supervisor, err = match.NewSupervisor(b.Matches, c.Allocator, queues, &c.Supervisor); err != nil {
		return nil, err
	}
	s.conditions.Of(b.Matches)
	s.worlds = health.NewWorlds(b.Authority, c.Logger, []any{b.Matches}, nil)
	return s, nil
}

// watch has the server know what its parts meet.
func (s *MatchServer) watch(h *match.Hooks, decisions *decision.Server) {
	hook.Attach(&h.Failed, func(i match.FailInfo) {
		if errors.Is(i.Err, match.ErrLineup) {
			s.refused.Add(1)
			return
		}
		s.failed.Add(1)
	})
	hook.Attach(&h.Finished, func(i match.FinishInfo) {
		if i.Err != nil {
			s.seatless.Add(1)
			return
		}
		decisions.Assigned(i.Match.ID, i.Assignment.Tile, i.Assignment.Epoch)
	})
}

// Lobby reads the tickets of the server's queues, for figures and tools.
func (s *MatchServer) Lobby() *match.Lobby { return s.lobby }

// Run makes matches until ctx ends. Then it finishes those under way, for up to Worker.Drain, and gives back the
// tickets that it holds. It returns when every goroutine of the server has ended: nil, or what failed. It runs once:
// fence.ErrAlreadyRun.
func (s *MatchServer) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return alreadyRun("MatchServer")
	}
	if err := s.worlds.Enter(ctx); err != nil {
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForPart)
	c.Start("supervisor", s.supervisor.Run)
	c.Start("worker", s.worker.Run)
	c.Start("conditions", s.conditions.Watch)
	c.Start("worlds", s.worlds.Watch)
	c.Start("health", func(ctx context.Context) error { return s.loop.Log(ctx, s.log, s.problems) })
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// Health says what is wrong with matchmaking.
func (s *MatchServer) Health() []Problem { return shown(s.problems()) }

func (s *MatchServer) problems() (all health.Problems) {
	s.conditions.Add(&all)
	s.worlds.Add(&all)
	all.Trouble("matches", "the store of matches, or the allocator, is not reached", 0,
		s.failing.Lately(s.failed.Load()))
	all.Trouble("matches", "matches find no tile with enough free seats: their tickets wait", 0,
		s.noSeats.Lately(s.seatless.Load()))
	all.Trouble("matches", "a strategy's groups are refused: their tickets wait", 0,
		s.misfitting.Lately(s.refused.Load()))
	return all
}

// A tile's seats are offered each offerEvery, and may be taken for offerTTL after the last offer.
const (
	offerEvery = time.Second
	offerTTL   = 3 * offerEvery
	offersOnce = 16 // tiles that are offered at the same time
)

// seatOffers announces the seats of the tiles that a server serves.
type seatOffers struct {
	seats   match.Seats
	pool    string
	contact string
	of      func(fence.TileID) match.Offer
	host    *tilehost.Host
	log     *slog.Logger // sampled

	mu      sync.Mutex
	offered map[fence.TileID]fence.Epoch // tiles that have an offer

	failed  atomic.Uint64
	failing health.Rising
}

// openOffers has a server offer the seats of its tiles, if TileServerConfig.Seats says so.
func (s *TileServer) openOffers(b *Backends) error {
	if s.cfg.Seats == nil {
		return nil
	}
	if err := require("TileServer with Seats", b.matches()); err != nil {
		return err
	}
	if _, err := match.NewSeatAllocator(b.Matches, b.pool(), 0); err != nil { // which checks the name
		return err
	}
	s.offers = &seatOffers{seats: b.Matches, pool: b.pool(), contact: s.contact, of: s.cfg.Seats, host: s.host,
		log: sampled.Logger(s.cfg.Logger), offered: map[fence.TileID]fence.Epoch{}}
	return nil
}

// run offers until ctx ends. The last offers end by themselves, or the tiles' next owners replace them.
func (o *seatOffers) run(ctx context.Context) error {
	for ctx.Err() == nil {
		o.once(ctx)
		wait.For(ctx, offerEvery)
	}
	return nil
}

// once offers the seats of every tile once. A shard that hangs delays the others by no more than a period.
func (o *seatOffers) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, offerEvery)
	defer cancel()
	serving := map[fence.TileID]bool{}
	var all errgroup.Group
	all.SetLimit(offersOnce)
	for _, t := range o.host.Status() {
		if t.State == tile.Serving {
			serving[t.Tile] = true
			all.Go(func() error {
				o.offer(ctx, t.Tile, t.Epoch)
				return nil
			})
		}
	}
	_ = all.Wait() // none returns an error
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.offered {
		if !serving[id] {
			delete(o.offered, id)
		}
	}
}

// offer offers the seats of one tile, or withdraws them if it has no more.
func (o *seatOffers) offer(ctx context.Context, id fence.TileID, e fence.Epoch) {
	offer := o.of(id)
	o.mu.Lock()
	_, offered := o.offered[id]
	o.mu.Unlock()
	var err error
	switch {
	case offer.Seats > 0:
		offer.Tile, offer.Epoch, offer.Contact = id, e, o.contact
		_, err = o.seats.Offer(ctx, o.pool, offer, offerTTL)
	case offered:
		err = o.seats.Withdraw(ctx, o.pool, id, e)
	default:
		return
	}
	if err != nil && !errors.Is(err, match.ErrStaleOffer) { // it has another owner, as this one will learn
		o.failed.Add(1)
		o.log.Warn("seats were not offered", "tile", id, "error", err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if offer.Seats > 0 {
		o.offered[id] = e
	} else {
		delete(o.offered, id)
	}
}

func (o *seatOffers) problems(all *health.Problems) {
	if o != nil {
		all.Trouble("matches", "the seats of tiles are not offered: matches find none there", 0,
			o.failing.Lately(o.failed.Load()))
	}
}
