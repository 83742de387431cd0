//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/session"
)

type options struct {
	relay, gateway string // URLs
	redis          string // host:port,host:port
	clients, first int
	tiles          int
	tick           time.Duration
	drawEvery      int // ticks
	seed           uint64
}

func main() {
	var o options
	flag.StringVar(&o.relay, "relay", "", "`URL` of the relay")
	flag.StringVar(&o.gateway, "gateway", "", "`URL` of the gateway")
	flag.StringVar(&o.redis, "redis", "", "`addresses` of the coordination cluster, host:port,host:port")
	flag.IntVar(&o.clients, "clients", 1000, "players")
	flag.IntVar(&o.first, "first", 0, "`number` of the first player")
	flag.IntVar(&o.tiles, "tiles", 7, "tiles of the world, as the battle has them")
	flag.DurationVar(&o.tick, "tick", 500*time.Millisecond, "time between two acts of a player")
	flag.IntVar(&o.drawEvery, "draw-every", 240, "ticks until a player draws the next card")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the players' decisions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, &o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "swarm:", err)
		os.Exit(1)
	}
}

// report is the last line that a swarm writes.
type report struct {
	Converged bool   `json:"converged"`
	Why       string `json:"why_not,omitempty"`
}

// play lets the swarm play until ctx ends, and then compares positions with the owners'.
func play(ctx context.Context, o *options, in io.Reader, out io.Writer) error {
	s, err := gather(ctx, o)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	g, running := errgroup.WithContext(running)
	g.Go(func() error { return s.run(running) })
	g.Go(func() error { return s.join(running, o) })
	obeying := make(chan error, 1)
	go func() { obeying <- figures.Obey(in, out, s.cut) }()
	select {
	case <-ctx.Done():
	case <-running.Done(): // a player cannot go on
	case err = <-obeying: // the harness is gone
		err = cmp.Or(err, errors.New("no more orders will come"))
	}
	var r report
	if err == nil && running.Err() == nil {
		r.Why = s.settle(running, o)
	}
	stop()
	err = errors.Join(err, g.Wait())
	if err != nil {
		r.Why = err.Error()
	}
	r.Converged = r.Why == ""
	return errors.Join(err, json.NewEncoder(out).Encode(r))
}

// gather makes the players and the pictures they look at.
func gather(ctx context.Context, o *options) (*swarm, error) {
	// Go has raised the limit as far as this user may.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < uint64(2*o.clients+200) {
		return nil, fmt.Errorf("%d players need %d open files, and the limit is %d: raise it, with ulimit -n",
			o.clients, 2*o.clients+200, files.Cur)
	}
	world, err := game.World(o.tiles)
	if err != nil {
		return nil, err
	}
	s := &swarm{every: o.tick, calls: make(chan func(), 64), ended: make(chan struct{}),
		toClient:  figures.NewHistogram(),
		toOutcome: figures.NewHistogram(), toRefusal: figures.NewHistogram(),
		counts: counts{outcomes: map[string]uint64{}}}
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	pictures := map[fence.TileID]*picture{}
	for i := range o.clients {
		number := o.first + i
		id := world[number%len(world)]
		if pictures[id] == nil {
			if pictures[id], err = paint(ctx, o.relay, id); err != nil {
				return nil, err
			}
		}
		actor := fmt.Sprintf("bot%04d", number)
		brain := game.NewBot(actor, pictures[id].ground, o.seed+uint64(number), &game.BotConfig{
			DrawEvery: fence.Tick(o.drawEvery), FirstDraw: 1 + fence.Tick(number%o.drawEvery)})
		s.players = append(s.players, &player{swarm: s, actor: actor, tile: pictures[id], brain: brain})
	}
	return s, nil
}

// joinAtOnce is how many players are on their way at the same time.
const joinAtOnce = 16

// join connects the players and hands them to the loop.
func (s *swarm) join(ctx context.Context, o *options) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(joinAtOnce)
	for i, p := range s.players {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			if p.relay, err = dial(ctx, o.relay, p.actor, relaypb.Subprotocol); err != nil {
				return fmt.Errorf("%s: relay: %w", p.actor, err)
			}
			if p.gateway, err = dial(ctx, o.gateway, p.actor, gatewayws.Subprotocol); err != nil {
				return fmt.Errorf("%s: gateway: %w", p.actor, err)
			}
			s.do(func() { err = s.admit(i) })
			return err
		})
	}
	return g.Wait()
}

// dialTries is how often a player tries to connect: thousands join at once, and a handshake may fail then.
const dialTries = 10

// day is longer than a run: the players of the swarm do not renew their sessions.
const day = 24 * time.Hour

// dial connects for the loop.
func dial(ctx context.Context, address, actor, subprotocol string) (s crowd.Socket, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return s, err
	}
	offered := subprotocol
	if secret := os.Getenv("TILEFENCE_SECRET"); secret != "" {
		token, err := game.PlayerKeys(secret).Sign(session.Identity{Actor: actor, Expires: time.Now().Add(day)})
		if err != nil {
			return s, err
		}
		offered += ", " + session.TokenProtocol + token
	}
	var client *crowd.Client
	for try := range dialTries {
		client, err = crowd.Dial(ctx, u.Host, u.Path+"?actor="+actor, offered)
		if err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Duration(100*(try+1)) * time.Millisecond)
	}
	if err != nil {
		return s, err
	}
	s, err = client.Detach()
	if err != nil {
		client.Close()
	}
	return s, err
}

// cut is what has been counted, and the histograms since the last cut.
func (s *swarm) cut() (set figures.Set, err error) {
	s.do(func() { set = s.figures() })
	return set, nil
}

func (s *swarm) figures() figures.Set {
	c := map[string]float64{"bots_joined": float64(s.joined.Load()), "client_bytes": float64(s.bytes),
		"client_frames": float64(s.frames), "client_syncs": float64(s.syncs), "client_gaps": float64(s.gaps),
		"client_resyncs": float64(s.resyncs), "moves_sent": float64(s.moves),
		"moves_failed": float64(s.movesFailed), "moves_refused": float64(s.movesRefused),
		"cards_played": float64(s.cards)}
	for outcome, n := range maps.All(s.outcomes) {
		c["ledger_outcomes_"+outcome] = float64(n)
	}
	return figures.Set{Counters: c, Histograms: map[string]figures.Sample{
		"commit_to_client": s.toClient.Cut(), "order": s.toOutcome.Cut(), "refusal": s.toRefusal.Cut()}}
}

// settleWithin is how long the players may take to have their outcomes and to hold their owners' positions, after the
// last order.
const settleWithin = 45 * time.Second

// settle ends the play, and waits until all players have arrived where their owners are. It says why they have not.
func (s *swarm) settle(ctx context.Context, o *options) (why string) {
	s.do(func() { s.over = true })
	client := redis.NewClusterClient(redisfence.Options(strings.Split(o.redis, ",")...))
	defer client.Close()
	store, err := redisfence.New(client, nil)
	if err != nil {
		return err.Error()
	}
	tiles := s.tiles()
	for deadline := time.Now().Add(settleWithin); ; time.Sleep(100 * time.Millisecond) {
		owners := map[fence.TileID]fence.Position{}
		for _, id := range tiles {
			owner, err := store.Owner(ctx, id)
			if err != nil {
				return err.Error()
			}
			owners[id] = owner.Position
		}
		if s.do(func() { why = s.lag(owners) }); why == "" || time.Now().After(deadline) {
			return why
		}
	}
}
