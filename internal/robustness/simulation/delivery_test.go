package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

// delivery is what brings committed batches to watchers and to the durable store: bridges, relays and a checkpointer,
// each of which is a process, and a fan-out that loses messages.
type delivery struct {
	*world
	fanout   *memfanout.Broker
	deaf     atomic.Bool // the fan-out loses everything
	servers  []*server   // bridges, relays, checkpointer
	relays   []*server
	watchers []*viewer
}

// server is a place at which one process runs after the other.
type server struct {
	name string
	run  func(context.Context, *host) error // until ctx ends

	host  *host
	runs  int
	kill  func() // returns when the process is gone
	doors *pipes // where clients of a relay come in; nil: it is no relay
}

// viewer is a watcher with the connection that it has now.
type viewer struct {
	*game.Watcher
	relays []*server

	mu   sync.Mutex
	made int
	conn net.Conn
}

// deliver starts two bridges, two relays, a checkpointer, and three watchers of all tiles.
func (w *world) deliver(ctx context.Context) *delivery {
	d := &delivery{world: w, fanout: memfanout.New()}
	for i := range 2 {
		d.servers = append(d.servers, &server{name: fmt.Sprintf("bridge-%d", i), run: d.forward})
	}
	for i := range 2 {
		r := &server{name: fmt.Sprintf("relay-%d", i), doors: &pipes{}}
		r.run = func(ctx context.Context, h *host) error { return d.relay(ctx, h, r.doors) }
		d.relays = append(d.relays, r)
	}
	d.servers = append(append(d.servers, d.relays...), &server{name: "checkpointer", run: d.checkpoint})
	for _, s := range d.servers {
		d.launch(s)
	}
	for i := range 3 {
		v := &viewer{relays: d.relays, made: i}
		var err error
		for v.Watcher == nil { // the first handshake is not tried again
			v.Watcher, err = game.Watch(ctx, w.recorder, fmt.Sprintf("watcher-%d", i), v.dial, w.tiles...)
			if err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		d.watchers = append(d.watchers, v)
	}
	return d
}

// launch starts a server's next process.
func (w *world) launch(s *server) {
	s.runs++
	s.host = newHost(w.net, fmt.Sprintf("%s.%d", s.name, s.runs), w.seed)
	h, done := s.host, make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- s.run(ctx, h) }()
	s.kill = func() {
		h.kill()
		if s.doors != nil {
			s.doors.cut()
		}
		cancel()
		if err := <-done; err != nil {
			w.fail(0, "%s ended: %v", h.name, err)
		}
	}
}

func (d *delivery) forward(ctx context.Context, h *host) error {
	b, err := bridge.New(d.seams(h).Log, &publisher{d, h}, nil, d.tiles,
		&bridge.Config{MarkEvery: 500 * time.Millisecond, DrainTimeout: time.Second})
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

func (d *delivery) checkpoint(ctx context.Context, h *host) error {
	c, err := checkpoint.New(d.seams(h).Log, &durable{Backend: d.durable, host: h, silent: &d.silent}, nil, d.tiles,
		&checkpoint.Config{Cadence: time.Second})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func (d *delivery) relay(ctx context.Context, h *host, doors *pipes) error {
	r, err := relay.New(&subscriber{d.fanout, h}, d.seams(h).Log, relay.Public, &relay.Config{
		DrainWindow: time.Millisecond, CheckInterval: time.Second,
		BehindGrace: 2 * ownerTTL})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: r.Handler(), ReadHeaderTimeout: readTimeout}
	ended := make(chan error, 1)
	l := doors.open()
	go func() { ended <- server.Serve(l) }()
	err = r.Run(ctx)
	doors.cut()
	closed := server.Close()
	<-ended // since its listener is closed
	return errors.Join(err, closed)
}

// subscriber is a relay's way to the fan-out.
type subscriber struct {
	*memfanout.Broker
	host *host
}

// Subscribe implements fanout.Subscriber. To a relay that is cut off nothing comes.
func (s *subscriber) Subscribe(ctx context.Context, tile fence.TileID, deliver func([]byte)) (func(), error) {
	return s.Broker.Subscribe(ctx, tile, func(data []byte) {
		if !s.host.isCutOff() {
			deliver(data)
		}
	})
}

// publisher is a bridge's way to the fan-out. Publishing is no promise: of what arrives, some is lost.
type publisher struct {
	of   *delivery
	host *host
}

// Publish implements fanout.Publisher.
func (p *publisher) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	late := slices.Clone(messages) // what arrives late is not to be changed by the caller
	for i := range late {
		late[i].Data = bytes.Clone(late[i].Data)
	}
	err := p.host.ask(ctx, "publish", messages[0].Tile, func() (bool, error) {
		for i, m := range late {
			if p.of.deaf.Load() || p.of.net.bad.Load() && p.host.intN("message", 30) == 0 {
				continue
			}
			if _, err := p.of.fanout.Publish(context.Background(), late[i:i+1]); err != nil {
				return false, fmt.Errorf("tile %s: %w", m.Tile, err)
			}
		}
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	return len(messages), nil
}

// dial connects to the next relay.
func (v *viewer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	v.mu.Lock()
	to := v.relays[v.made%len(v.relays)]
	v.made++
	v.mu.Unlock()
	c, err := to.doors.dial(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.conn = c
	v.mu.Unlock()
	return c, nil
}

// hop ends the connection, so that the watcher goes to another relay.
func (v *viewer) hop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conn != nil {
		_ = v.conn.Close() // the watcher notices
	}
}

// faults are what happens to delivery.
func (d *delivery) faults(b *breaker) []fault {
	some := func() *server { return d.servers[b.rng.IntN(len(d.servers))] }
	return []fault{
		{"delivery killed", false, func(ctx context.Context) {
			s := some()
			s.kill()
			b.rest(ctx, 0, 3*time.Second)
			d.launch(s)
		}},
		{"delivery paused", false, func(ctx context.Context) {
			h := some().host
			h.pause()
			b.rest(ctx, 100*time.Millisecond, 8*time.Second)
			h.resume()
		}},
		{"fan-out loses all", false, func(ctx context.Context) {
			d.deaf.Store(true)
			b.rest(ctx, 100*time.Millisecond, 5*time.Second)
			d.deaf.Store(false)
		}},
		{"relay cut off", false, func(ctx context.Context) {
			h := d.relays[b.rng.IntN(len(d.relays))].host
			h.cutOff(true)
			for range 2 { // once to the relay that is cut off, or from it
				b.rest(ctx, 100*time.Millisecond, 4*time.Second)
				for _, v := range d.watchers {
					v.hop()
				}
			}
			b.rest(ctx, 0, 2*time.Second)
			h.cutOff(false)
		}},
		{"forged frames", false, func(ctx context.Context) {
			for range 1 + b.rng.IntN(20) {
				d.forge(ctx, b.tile(), []fence.Epoch{1000, fence.MaxNumber}[b.rng.IntN(2)], b.rng.IntN(4) == 0)
				b.rest(ctx, time.Millisecond, 300*time.Millisecond)
			}
		}},
		{"watcher hops", false, func(context.Context) { d.watchers[b.rng.IntN(len(d.watchers))].hop() }},
	}
}

// forge publishes, as a stranger who reaches the fan-out may, a frame that follows the tile's head under an epoch that
// no authority has granted. Its chain is right.
func (d *delivery) forge(ctx context.Context, id fence.TileID, above fence.Epoch, rebase bool) {
	stranger := newHost(d.net, "stranger", d.seed)
	stranger.route, _ = d.cluster.masterNow()
	at, err := d.seams(stranger).Log.Last(ctx, id)
	if err != nil || at.IsZero() {
		return
	}
	epoch := min(at.Epoch+above, fence.MaxNumber)
	c := fence.Commit{Tile: id, Epoch: epoch, Contact: "stranger", Prev: at, Payload: []byte("forged"), Install: true}
	frame := c.Entry()
	if rebase {
		r := fence.Rebase{Tile: id, Epoch: epoch, Contact: "stranger", Seq: at.Seq + fence.RebaseJump}
		frame = r.Entry()
	}
	_, _ = d.fanout.Publish(ctx, []fanout.Message{{Tile: id, Data: frame.Frame}})
}

// converge waits until all watchers are where the tiles end, and records what they hold.
func (d *delivery) converge() {
	last := map[fence.TileID]fence.Position{}
	for _, id := range d.tiles {
		h := newHost(d.net, fmt.Sprintf("end of %s", id), d.seed)
		h.route, _ = d.cluster.masterNow()
		at, err := d.seams(h).Log.Last(context.Background(), id)
		if err != nil {
			d.fail(id, "its last position cannot be read: %v", err)
		}
		last[id] = at
	}
	for _, v := range d.watchers {
		for _, id := range d.tiles {
			for range 600 { // a minute
				if at, _ := v.At(id); at == last[id] {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			at, digest := v.At(id)
			if at != last[id] {
				d.fail(id, "%s is at %s a minute after the tile came to rest at %s", v.Name, at, last[id])
			}
			d.recorder.Held(v.Name, id, at, digest)
		}
		if err := v.Err(); err != nil {
			d.fail(0, "%s: %v", v.Name, err)
		}
	}
}

// end stops everything.
func (d *delivery) end() {
	for _, v := range d.watchers {
		v.Close()
	}
	for _, s := range d.servers {
		s.kill()
	}
}

// breaker for delivery draws from a source of its own.
func (d *delivery) breaker() *breaker {
	return &breaker{world: d.world, rng: rand.New(rand.NewPCG(d.seed, 3))}
}
