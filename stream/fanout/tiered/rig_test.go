package tiered_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// interval is how often the processes of the tests look at their tiles.
const interval = 500 * time.Millisecond

// settings of the tests: two subscribers move a tile.
func settings() *tiered.Config {
	return tiered.Config{Subscribers: 2, Logger: slog.New(slog.DiscardHandler)}.With(tiered.Tuning{
		Interval: interval, Cooldown: 5 * time.Second})
}

const theTile fence.TileID = 0x85283473fffffff

// world is two tiers in one process, the tile's history, and the processes that publish and listen. It runs in a bubble
// of synctest: every delay is exact.
type world struct {
	t                *testing.T
	tile             fence.TileID
	ordinary, broker *memfanout.Broker

	mu      sync.Mutex
	history []fence.Entry // committed, as the store has it
}

func newWorld(t *testing.T) *world {
	return &world{t: t, tile: theTile, ordinary: memfanout.New(), broker: memfanout.New()}
}

// commit appends n batches of an owner to the tile's history, and returns their frames.
func (w *world) commit(n int) (messages []fanout.Message) { return w.commitOf(n, 100) }

// commitOf commits n batches of size bytes.
func (w *world) commitOf(n, size int) (messages []fanout.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		var last fence.Position
		if len(w.history) > 0 {
			last = w.history[len(w.history)-1].Position
		}
		e := fence.NewEntry(fence.Entry{Tile: w.tile, Kind: fence.KindBatch, Prev: last, Tick: fence.Tick(last.Seq + 1),
			Position: fence.Position{Epoch: max(last.Epoch, 1), Seq: last.Seq + 1}, Payload: make([]byte, size)})
		w.history = append(w.history, e)
		messages = append(messages, fanout.Message{Tile: w.tile, Data: e.Frame})
	}
	return messages
}

func (w *world) head() fence.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.history) == 0 {
		return fence.Position{}
	}
	return w.history[len(w.history)-1].Position
}

// path is a process's way to one tier.
type path struct {
	*memfanout.Broker

	mu    sync.Mutex
	lag   time.Duration // of what is delivered to this process
	slow  time.Duration // of a Subscribe
	down  bool          // nothing passes
	deny  bool          // it may not subscribe
	calls int           // of Publish
}

var errDown = errors.New("the tier cannot be reached")

func (p *path) set(change func(*path)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *path) state() (down bool, lag, slow time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down, p.lag, p.slow
}

func (p *path) Publish(ctx context.Context, m []fanout.Message) (int, error) {
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
	if down, _, _ := p.state(); down {
		return 0, errDown
	}
	return p.Broker.Publish(ctx, m)
}

func (p *path) Subscribe(ctx context.Context, tile fence.TileID, deliver func([]byte)) (func(), error) {
	down, _, slow := p.state()
	time.Sleep(slow)
	if down || p.deny {
		return nil, errDown
	}
	type late struct {
		data []byte
		at   time.Time
	}
	queue := make(chan late, 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range queue {
			time.Sleep(time.Until(m.at))
			deliver(m.data)
		}
	}()
	stop, err := p.Broker.Subscribe(ctx, tile, func(data []byte) {
		if down, lag, _ := p.state(); !down {
			queue <- late{data, time.Now().Add(lag)}
		}
	})
	if err != nil {
		close(queue)
		return nil, err
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			stop()
			close(queue)
		})
		<-done
	}, nil
}

func (p *path) Audience(ctx context.Context, tiles []fence.TileID) ([]int, error) {
	if down, _, _ := p.state(); down {
		return nil, errDown
	}
	return p.Broker.Audience(ctx, tiles)
}

func (p *path) PublishPresence(ctx context.Context, process uint64, tiles []fence.TileID) error {
	if down, _, _ := p.state(); down {
		return errDown
	}
	return p.Broker.PublishPresence(ctx, process, tiles)
}

func (p *path) SubscribePresence(tile fence.TileID, deliver func(uint64)) (func(), error) {
	return p.Broker.SubscribePresence(tile, func(process uint64) {
		if down, _, _ := p.state(); !down {
			deliver(process)
		}
	})
}

// process is a bridge or a relay: a Fanout with ways of its own to both tiers.
type process struct {
	*tiered.Fanout
	w                *world
	ordinary, broker *path

	mu    sync.Mutex
	moves []tiered.MoveInfo
}

func (w *world) process(cfg *tiered.Config) *process {
	p := &process{w: w, ordinary: &path{Broker: w.ordinary}, broker: &path{Broker: w.broker}}
	c := *cfg
	c.Hooks.Moved = func(m tiered.MoveInfo) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.moves = append(p.moves, m)
	}
	var err error
	p.Fanout, err = tiered.New(p.ordinary, p.broker, &c)
	require.NoError(w.t, err)
	w.t.Cleanup(p.Close)
	return p
}

func (p *process) state() tiered.State {
	for _, t := range p.Tiles() {
		if t.Tile == theTile {
			return t.State
		}
	}
	return tiered.Ordinary
}

// history checks that every move was one of the table, and returns the states passed through.
func (p *process) history() (states []tiered.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := tiered.Ordinary
	for _, m := range p.moves {
		require.Equal(p.w.t, at, m.From)
		require.True(p.w.t, m.From == tiered.Both || m.State == tiered.Both, "%s to %s", m.From, m.State)
		at = m.State
		states = append(states, at)
	}
	return states
}

// send publishes frames as a bridge does: what was not handed over is sent again.
func (p *process) send(messages []fanout.Message) {
	for len(messages) > 0 {
		sent, err := p.Publish(p.w.t.Context(), messages)
		partial := (*fanout.PublishError)(nil)
		if errors.As(err, &partial) {
			for sent < len(messages) && partial.Handed[sent] {
				sent++
			}
		}
		if messages = messages[sent:]; len(messages) > 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// tick commits and sends a batch every interval for so long.
func (p *process) tick(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.send(p.w.commit(1))
		time.Sleep(tickEvery)
	}
}

const tickEvery = 20 * time.Millisecond

// watcher is what a relay does with the frames of a tile: it follows the chain, and repairs from the store when a frame
// does not follow.
type watcher struct {
	w    *world
	stop func()

	mu         sync.Mutex
	loaded     bool
	early      [][]byte // came before the store was read
	at         fence.Position
	known      map[fence.Chain]bool
	gaps       int
	duplicates int
}

// watch subscribes and then reads the store, as a relay does.
func (p *process) watch() *watcher {
	in := &watcher{w: p.w, known: map[fence.Chain]bool{}}
	stop, err := p.Subscribe(p.w.t.Context(), p.w.tile, in.deliver)
	require.NoError(p.w.t, err)
	in.stop = stop
	p.w.t.Cleanup(stop)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.repair()
	for _, data := range in.early {
		in.judge(data)
	}
	in.loaded = true
	return in
}

// repair brings the watcher to the end of the history. The caller holds mu.
func (in *watcher) repair() {
	in.w.mu.Lock()
	defer in.w.mu.Unlock()
	for i := range in.w.history {
		in.at = in.w.history[i].Position
		in.known[in.w.history[i].Chain] = true
	}
}

func (in *watcher) deliver(data []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.loaded {
		in.early = append(in.early, data)
		return
	}
	in.judge(data)
}

// judge takes a frame. The caller holds mu.
func (in *watcher) judge(data []byte) {
	e, err := fence.DecodeEntry(data)
	require.NoError(in.w.t, err)
	switch {
	case in.known[e.Chain]:
		in.duplicates++
	case e.Prev == in.at:
		in.at = e.Position
		in.known[e.Chain] = true
	default:
		in.gaps++
		in.repair()
	}
}

func (in *watcher) result() (at fence.Position, gaps, duplicates int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.at, in.gaps, in.duplicates
}

// requireWhole fails if the watcher has missed a frame or is not at the end of the history.
func (in *watcher) requireWhole() {
	in.w.t.Helper()
	at, gaps, _ := in.result()
	require.Zero(in.w.t, gaps, "frames were missed or came out of order")
	require.Equal(in.w.t, in.w.head(), at)
}

// inBubble runs a test under synctest.
func inBubble(t *testing.T, run func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { run(t, newWorld(t)) })
}
