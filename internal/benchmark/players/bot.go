package players

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Bot is one client: a watcher of what it can see of its tile through the relay, and a player through the gateway. It
// knows nothing but what these two report.
type Bot struct {
	cfg    *Config
	actor  string
	ship   string // its name in the world
	world  *seas
	home   fence.TileID
	brain  *game.Bot
	relay  *relayclient.Client
	player *gatewayws.Client
	cards  []playedCard  // in the order of play; read when the battle is over
	phase  time.Duration // of its ticks: bots that begin together do not act together

	watch, act TokenFunc // of a guest who came through the lobby, for relay and gateway; else nil

	crossings *relayclient.Crossings[game.Ship]
	errands   errands
	hop       uint64       // of its ship, when that was last seen to come to a tile
	sought    fence.TileID // where the directory says that the ship is; zero: it is not lost

	mu    sync.Mutex // guards what follows; frames come from the client's goroutine
	tiles map[fence.TileID]*watched
	tile  fence.TileID // where its ship is, or may be
	alone int          // ticks since it last saw its ship
}

// playedCard is a card, and the outcome that its player got.
type playedCard struct {
	id      string
	outcome stream.Outcome // zero: none
}

// Prefix begins the actors of bots.
const Prefix = "bot"

// Name is the actor of a bot.
func Name(i int) string { return fmt.Sprintf("%s%04d", Prefix, i) }

func newBot(i, of int, world *seas, cfg *Config) (*Bot, error) {
	habits := &game.BotConfig{DrawEvery: fence.Tick(cfg.DrawEvery)}
	if i >= cfg.AtHome {
		habits.Sails, habits.Fleets, habits.Gather = sails, fleets/float64(of), world.gather
	}
	if cfg.DealLater {
		habits.FirstDraw = 1 + fence.Tick(i%cfg.DrawEvery)
	}
	b, err := newPlayer(Name(i), world.tiles[i%len(world.tiles)], world, cfg.Seed+uint64(i), habits, cfg)
	if err == nil {
		b.phase = cfg.Tick * time.Duration(i*617%1000) / 1000
	}
	return b, err
}

// NewGuest makes a bot for a guest who came through the lobby, with the tokens for relay and gateway. It has no cards,
// so nothing of it is in the ledger but its welcome.
func NewGuest(actor string, id fence.TileID, seed uint64, watch, act TokenFunc, cfg *Config) (*Bot, error) {
	b, err := newPlayer(actor, id, &seas{tiles: []fence.TileID{id}}, seed,
		&game.BotConfig{FirstDraw: fence.Tick(1) << 40}, cfg)
	if err == nil {
		b.watch, b.act = watch, act
	}
	return b, err
}

func newPlayer(
	actor string, id fence.TileID, world *seas, seed uint64, habits *game.BotConfig, cfg *Config,
) (*Bot, error) {
	ground, err := world.of(id)
	if err != nil {
		return nil, err
	}
	own := game.Ship{Owner: actor, Home: id}
	b := &Bot{cfg: cfg, actor: actor, ship: own.Name(), home: id, tile: id, world: world,
		tiles: map[fence.TileID]*watched{}, brain: game.NewBot(actor, ground, seed, habits)}
	b.crossings = &relayclient.Crossings[game.Ship]{Join: func(id fence.TileID) { b.errands.add(id, false) },
		Quit: func(id fence.TileID) { b.errands.add(id, true) }}
	b.crossings.Follow(b.ship)
	b.crossings.Crossed(id)
	return b, nil
}

// Visit lets a guest play until ctx ends, at these URLs.
func (b *Bot) Visit(ctx context.Context, relayURL, gatewayURL string) error {
	begin := make(chan struct{})
	close(begin) // it waits for no other
	return b.run(ctx, ctx, relayURL, gatewayURL, func() <-chan struct{} { return begin })
}

// run connects and calls joined, which says when to begin. It watches and plays until playing ends, then only watches
// until ctx ends.
func (b *Bot) run(
	ctx, playing context.Context, relayURL, gatewayURL string, joined func() (begin <-chan struct{}),
) error {
	client, err := Dial(ctx, func(ctx context.Context) (*relayclient.Client, error) {
		address, token := b.show(relayURL, b.watch)
		return relayclient.Dial(ctx, address, &relayclient.Config{Token: token, HTTPClient: b.cfg.HTTP,
			Sync: b.onSync, Frame: b.onFrame, Reconnect: true, Logger: b.cfg.Logger})
	})
	if err != nil {
		return fmt.Errorf("%s: relay: %w", b.actor, err)
	}
	defer func() { _ = client.Close() }() // it ends with the bot
	b.mu.Lock()
	b.relay = client
	b.mu.Unlock()
	if b.player, err = Dial(ctx, func(ctx context.Context) (*gatewayws.Client, error) {
		return b.enter(ctx, gatewayURL)
	}); err != nil {
		return fmt.Errorf("%s: gateway: %w", b.actor, err)
	}
	defer func() { _ = b.player.Close() }() // the battle is over
	if err := b.follow(ctx); err != nil {
		return err
	}
	b.cfg.Measures.Joined.Add(1)
	select {
	case <-joined():
	case <-playing.Done():
	}
	if err := b.play(playing, gatewayURL); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// show is what the bot shows at an address: the token of a guest, or a bot's.
func (b *Bot) show(address string, guest TokenFunc) (string, TokenFunc) {
	if guest != nil {
		return address, guest
	}
	return b.cfg.Credentials(address, b.actor)
}

// enter connects to the gateway.
func (b *Bot) enter(ctx context.Context, gatewayURL string) (*gatewayws.Client, error) {
	address, token := b.show(gatewayURL, b.act)
	return gatewayws.Dial(ctx, address, &gatewayws.DialConfig{Token: token, HTTPClient: b.cfg.HTTP,
		Crossed: func(c tile.Crossing) { b.crossings.Crossed(c.To) }})
}

// joinAttempts is how often a bot tries to connect, after pauses of 100 ms more each time; joinTimeout is how long it
// waits each time.
const (
	joinAttempts = 10
	joinTimeout  = 10 * time.Second
)

// Dial connects. It tries again a few times: something may be broken just now, or thousands join at once, and a
// handshake then fails or hangs.
func Dial[T any](ctx context.Context, connect func(context.Context) (T, error)) (client T, err error) {
	for attempt := range joinAttempts {
		limited, cancel := context.WithTimeout(ctx, joinTimeout)
		client, err = connect(limited)
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
		wait.For(ctx, time.Duration(100*(attempt+1))*time.Millisecond)
	}
	return client, err
}

// look watches what the brain wants to see now. What is left out is forgotten before the relay hears of it, so that
// nothing in the view can grow old.
func (b *Bot) look(ctx context.Context) error {
	b.mu.Lock()
	w := b.tiles[b.tile]
	if w == nil {
		b.mu.Unlock()
		return nil
	}
	want := b.brain.Viewport(w.view)
	same := w.areas == fence.Areas(want...)
	w.areas = fence.Areas(want...)
	w.view.Keep(w.areas)
	b.mu.Unlock()
	if same {
		return nil
	}
	if err := b.relay.Watch(ctx, b.tile, want...); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: watch: %w", b.actor, err)
	}
	return nil
}

// play lets the brain decide once a tick and sends its orders one at a time, as a person would. It keeps
// its own time, at the pace that the tile announces: a quiet tile sends no frames to go by.
func (b *Bot) play(ctx context.Context, gatewayURL string) error {
	wait.For(ctx, b.phase)
	ticker := time.NewTicker(b.cfg.Tick)
	defer ticker.Stop()
	every := b.cfg.Tick
	for tick := fence.Tick(1); ; tick++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// To the end, also when playing ends meanwhile: what the bot has noted, the relay must hear.
		if err := b.follow(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := b.look(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		o, acts, interval := b.decide(tick)
		if interval != every {
			every = interval
			ticker.Reset(every)
		}
		if !acts {
			continue
		}
		request := gatewayws.Request{Tile: b.tile, Kind: admission.Move, Body: o.Encode()}
		if o.Kind.Card() {
			request.Kind, request.Action = admission.Act, admission.NewActionID()
			b.cfg.Measures.Cards.Add(1)
		} else {
			b.cfg.Measures.Moves.Add(1)
		}
		b.send(gatewayURL, request)
	}
}

// decide is the brain's order, and how long a tick lasts, as far as the bot knows.
func (b *Bot) decide(tick fence.Tick) (o game.Order, acts bool, interval time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.tiles[b.tile]
	if w == nil {
		return o, false, b.cfg.Tick
	}
	o, acts = b.brain.Decide(w.view, tick)
	return o, acts, time.Duration(w.view.Pace() * float64(b.cfg.Tick))
}

// orderTimeout is how long a bot waits for an outcome before it asks again.
const orderTimeout = 3 * time.Second

// insistFor is how long a bot presents a card: it was paid for, and gateways send an action for as long.
const insistFor = 5 * time.Minute

// send presents an order until it has an outcome, also when playing has ended meanwhile. A card is presented again
// under the same action ID. A move that fails is forgotten; the next tick brings another.
func (b *Bot) send(gatewayURL string, r gatewayws.Request) {
	pause := 50 * time.Millisecond
	for end := time.Now().Add(insistFor); time.Now().Before(end); pause = min(2*pause, time.Second) {
		outcome, err := b.present(gatewayURL, r)
		switch {
		case err == nil && r.Action != "":
			b.cfg.Measures.Outcomes.Add(outcome.String())
			b.cards = append(b.cards, playedCard{r.Action, outcome})
			return
		case err == nil:
			return
		case r.Action == "" && errors.Is(err, tile.ErrOverloaded): // the client sends none until the gateway wants it
			b.cfg.Measures.MovesRefused.Add(1)
			return
		case r.Action == "" || errors.Is(err, fence.ErrInvalidArgument):
			b.cfg.Measures.MovesFailed.Add(1)
			return
		}
		again := pause
		if refused, ok := errors.AsType[*gatewayws.Error](err); ok && refused.RetryAfter > 0 {
			again = refused.RetryAfter + rand.N(refused.RetryAfter/2+1)
		}
		time.Sleep(again)
	}
	b.cfg.Measures.Outcomes.Add("unanswered")
	b.cards = append(b.cards, playedCard{id: r.Action})
}

// present presents an order once, over another connection if the last one was lost.
func (b *Bot) present(gatewayURL string, r gatewayws.Request) (stream.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), orderTimeout)
	defer cancel()
	began := time.Now()
	answer, err := b.player.Do(ctx, r)
	b.cfg.Measures.OrderLatency.Record(time.Since(began))
	if errors.Is(err, gatewayws.ErrDisconnected) {
		var again *gatewayws.Client
		if again, err = b.enter(ctx, gatewayURL); err == nil {
			b.player = again
			answer, err = again.Do(ctx, r)
		}
	}
	return answer.Outcome, err
}

func (b *Bot) onSync(s relayclient.Sync) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.tiles[s.Tile]
	if w == nil { // it has left that one
		return
	}
	areas := s.Areas.And(w.areas) // not what it has left since
	if s.Opens {
		if err := w.view.Open(s.Snapshot.Blob, areas); err != nil {
			w.broken = err
		}
		return
	}
	w.broken = w.view.Restore(s.Snapshot.Blob, areas)
	w.at, w.synced = s.Snapshot.Position, s.Position.Seq
}

func (b *Bot) onFrame(f fence.Entry) {
	now := time.Now()
	b.mu.Lock()
	w := b.tiles[f.Tile]
	if w == nil { // it has left that one
		b.mu.Unlock()
		return
	}
	if err := w.view.Apply(&f); err != nil {
		w.broken = err
	}
	news := false
	if f.Prev == w.at { // not so while areas that it has opened catch up
		w.at, news = f.Position, f.Seq > w.synced
	}
	b.mu.Unlock()
	if news {
		if b.cfg.Delivered != nil {
			b.cfg.Delivered(f.Tile, f.At)
		}
		b.cfg.Measures.Latency.Record(now.Sub(f.At))
		b.cfg.Measures.Frames.Add(1)
	}
}

// where is the tile that the bot watches.
func (b *Bot) where() fence.TileID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tile
}

// differs says how what the bot sees differs from its owner's state; nothing if it does not. What it sees must be the
// areas that it watches.
func (b *Bot) differs(owner *OwnerState) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.tiles[owner.Tile]
	if w == nil {
		return fmt.Sprintf("%s does not watch tile %s", b.actor, owner.Tile)
	}
	broken := w.broken
	if broken == nil && !w.view.Holds(w.areas) {
		broken = errors.New("areas that it watches are missing")
	}
	if broken == nil && w.at.Seq == owner.Seq && w.at.Chain == owner.Chain && owner.agrees(w.view.Digests()) {
		return ""
	}
	return fmt.Sprintf("%s holds tile %s at %s, its owner is at %d/%d/%s (view broken: %v)",
		b.actor, owner.Tile, w.at, owner.Epoch, owner.Seq, owner.Chain, broken)
}

// stats are the counters of the bot's connection to the relay; zero before there is one.
func (b *Bot) stats() relayclient.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.relay == nil {
		return relayclient.Stats{}
	}
	return b.relay.Stats()
}
