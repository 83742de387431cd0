package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/memstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tileA, tileB = fence.TileID(0x85283473fffffff), fence.TileID(0x85283447fffffff)

// world is one coordination store and its fan-out, with a hand on both.
type world struct {
	t     testing.TB
	areas int // into which tiles are divided; zero: they are not, and payloads are any bytes
	store *memfence.Store
	log   *testLog
	fan   *testFanout
}

func newWorld(t testing.TB) *world {
	store := memfence.New()
	return &world{t: t, store: store, log: &testLog{Log: memstream.New(store)},
		fan: &testFanout{subs: map[fence.TileID]map[int]func([]byte){}}}
}

// testLog counts calls and fails on demand.
type testLog struct {
	stream.Log
	snapshots, reads, lasts, marks, markCalls atomic.Int64

	mu     sync.Mutex
	err    error
	before func(op string) // called before each call
	edit   func([]stream.Chunk)
}

func (l *testLog) set(f func(*testLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *testLog) step(op string) error {
	l.mu.Lock()
	before, err := l.before, l.err
	l.mu.Unlock()
	if before != nil {
		before(op)
	}
	return err
}

func (l *testLog) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	l.reads.Add(1)
	if err := l.step("read"); err != nil {
		return nil, err
	}
	chunks, err := l.Log.Read(ctx, cursors)
	l.mu.Lock()
	edit := l.edit
	l.mu.Unlock()
	if edit != nil && err == nil {
		edit(chunks)
	}
	return chunks, err
}

func (l *testLog) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	l.snapshots.Add(1)
	if err := l.step("snapshot"); err != nil {
		return fence.Snapshot{}, false, err
	}
	return l.Log.Snapshot(ctx, tile)
}

func (l *testLog) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	l.lasts.Add(1)
	if err := l.step("last"); err != nil {
		return fence.Position{}, err
	}
	return l.Log.Last(ctx, tile)
}

func (l *testLog) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	l.marks.Add(int64(len(writes)))
	l.markCalls.Add(1)
	if err := l.step("mark"); err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	return l.Log.Mark(ctx, writes)
}

// testFanout delivers inside Publish, so that a test knows when a frame has been taken.
type testFanout struct {
	mu   sync.Mutex
	next int
	subs map[fence.TileID]map[int]func([]byte)
	err  error
}

var _ fanout.Subscriber = (*testFanout)(nil)

func (f *testFanout) Subscribe(_ context.Context, tile fence.TileID, deliver func([]byte)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.subs[tile] == nil {
		f.subs[tile] = map[int]func([]byte){}
	}
	f.next++
	id := f.next
	var one sync.Mutex // deliver runs in one goroutine at a time
	f.subs[tile][id] = func(p []byte) {
		one.Lock()
		defer one.Unlock()
		deliver(p)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subs[tile], id)
	}, nil
}

func (f *testFanout) publish(tile fence.TileID, data []byte) {
	f.mu.Lock()
	var all []func([]byte)
	for _, d := range f.subs[tile] {
		all = append(all, d)
	}
	f.mu.Unlock()
	for _, d := range all {
		d(data)
	}
}

func (f *testFanout) count(tile fence.TileID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs[tile])
}

// secret is the part of every batch and snapshot that only owners read.
var secret = []byte("for owners only")

// opened is the game's part of a snapshot.
func opened(t testing.TB, blob []byte) []byte {
	game, _, err := stream.OpenSnapshot(blob)
	require.NoError(t, err)
	return bytes.Clone(game)
}

// fold is the state after a payload. It is the concatenation of all payloads, by area in a divided world.
func (w *world) fold(state, payload []byte) []byte {
	if w.areas == 0 {
		return append(state, payload...)
	}
	content := map[fence.Area][]byte{}
	for _, list := range [][]byte{state, payload} {
		require.NoError(w.t, fence.CheckParts(list))
		for p := range fence.Parts(list) {
			content[p.Area] = append(bytes.Clone(content[p.Area]), p.Content...)
		}
	}
	var list []byte
	for _, a := range slices.Sorted(maps.Keys(content)) {
		list = fence.AppendPart(list, a, content[a])
	}
	return list
}

// blob is a snapshot of a state.
func (w *world) blob(state []byte) []byte {
	if w.areas == 0 {
		return stream.AppendSnapshot(nil, state, secret)
	}
	return stream.AppendDivided(nil, state, secret)
}

// owner writes a tile's history.
type owner struct {
	w     *world
	tile  fence.TileID
	epoch fence.Epoch
	at    fence.Position
	tick  fence.Tick
	state []byte
}

// claim starts a new owner of a tile from what the store has, under the given epoch.
func (w *world) claim(tile fence.TileID, epoch fence.Epoch) *owner {
	rec, err := stream.Recover(context.Background(), w.log.Log, tile)
	require.NoError(w.t, err)
	o := &owner{w: w, tile: tile, epoch: epoch, at: rec.Position, tick: rec.Snapshot.Tick,
		state: opened(w.t, rec.Snapshot.Blob)}
	for _, e := range rec.Entries {
		o.state, o.tick = w.fold(o.state, e.Payload), e.Tick
	}
	o.append(true)
	return o
}

// commit appends a batch and returns it as the bridge would publish it; it is not published yet.
func (o *owner) commit() fence.Entry { return o.append(false) }

func (o *owner) append(install bool) fence.Entry {
	o.tick++
	content := binary.BigEndian.AppendUint64(nil, uint64(o.epoch)<<32|uint64(o.at.Seq+1))
	if o.w.areas == 0 {
		return o.appendPayload(content, install)
	}
	var list []byte
	for a := range o.w.areas {
		if rand.IntN(3) == 0 {
			list = fence.AppendPart(list, fence.Area(a), append(content, byte(a)))
		}
	}
	return o.appendPayload(list, install)
}

func (o *owner) appendPayload(payload []byte, install bool) fence.Entry {
	c := fence.Commit{Tile: o.tile, Epoch: o.epoch, Contact: fmt.Sprint("owner-", o.epoch), Prev: o.at, Tick: o.tick,
		At: time.Now(), Payload: payload, Private: secret, Install: install}
	receipt, err := o.w.store.Commit(context.Background(), c)
	require.NoError(o.w.t, err)
	o.at, o.state = receipt.Position, o.w.fold(o.state, payload)
	return c.Entry()
}

// refresh is a tick without events.
func (o *owner) refresh() {
	o.tick++
	_, err := o.w.store.Commit(context.Background(),
		fence.Commit{Tile: o.tile, Epoch: o.epoch, Contact: fmt.Sprint("owner-", o.epoch), Prev: o.at, Tick: o.tick})
	require.NoError(o.w.t, err)
}

func (o *owner) publish(frames ...fence.Entry) {
	for i := range frames {
		o.w.fan.publish(o.tile, frames[i].Frame)
	}
}

// tickOn commits and publishes n batches.
func (o *owner) tickOn(n int) {
	for range n {
		o.publish(o.commit())
	}
}

func (o *owner) snapshot() {
	require.NoError(o.w.t, o.w.store.SaveSnapshot(context.Background(),
		fence.SnapshotWrite{Tile: o.tile, Position: o.at, Tick: o.tick,
			Blob: o.w.blob(o.state)}))
}

// rebase installs the next epoch from this owner's state and returns the marker's frame.
func (o *owner) rebase() fence.Entry {
	o.epoch++
	o.tick++
	r := fence.Rebase{Tile: o.tile, Epoch: o.epoch, Contact: fmt.Sprint("owner-", o.epoch),
		Seq:  o.at.Seq + fence.RebaseJump,
		Tick: o.tick, At: time.Now(), Blob: o.w.blob(o.state)}
	receipt, err := o.w.store.Rebase(context.Background(), r)
	require.NoError(o.w.t, err)
	o.at = receipt.Position
	return r.Entry()
}

// trim removes what the snapshot covers, whatever the marks say.
func (w *world) trim(tile fence.TileID) {
	w.store.Update(tile, func(s *memfence.State) { s.TrimBelow(s.Snapshot.Seq) })
}

// quick is a configuration whose periods suit a test.
func quick() *Config {
	return &Config{
		CheckInterval: 40 * time.Millisecond,
		DrainWindow:   50 * time.Millisecond, StoreTimeout: time.Second,
		tuning: tuning{
			markInterval: 40 * time.Millisecond,
			repairJitter: time.Millisecond, backoffMin: 2 * time.Millisecond, backoffMax: 20 * time.Millisecond,
			closeTimeout: time.Second,
		},
	}
}

// still is quick without periodic comparisons, for tests of everything else.
func still() *Config {
	c := quick()
	c.CheckInterval, c.markInterval = time.Hour, time.Hour
	return c
}

// server is a running relay behind a listener.
type server struct {
	*Relay
	world *world
	url   string
	stop  func()
}

func (w *world) serve(cfg *Config) *server {
	w.t.Helper()
	authorize := cfg.authorize
	if authorize == nil {
		authorize = Public
	}
	r, err := New(w.fan, w.log, authorize, cfg)
	require.NoError(w.t, err)
	ts := httptest.NewUnstartedServer(r.Handler())
	ts.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) // so that a client that does not read is noticed soon
		return ctx
	}
	ts.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	var once sync.Once
	s := &server{Relay: r, world: w, url: "ws" + strings.TrimPrefix(ts.URL, "http")}
	s.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(w.t, <-ran)
			ts.Close()
		})
	}
	w.t.Cleanup(s.stop)
	waittest.Until(w.t, func() bool { return r.life.reached(serving) }, 5*time.Second, time.Millisecond)
	return s
}

// narrow makes a client's socket hold little.
func narrow(c *relayclient.Config) {
	c.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: narrowDial}}
}

func narrowDial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	}
	return conn, err
}

// watcher is a client that folds what it is given, and checks that it is given things in order.
type watcher struct {
	*relayclient.Client
	t    testing.TB
	fold func(state, payload []byte) []byte

	mu      sync.Mutex
	states  map[fence.TileID][]byte
	at      map[fence.TileID]fence.Position
	areas   map[fence.TileID]fence.AreaSet
	opened  int
	syncs   int
	refused []relayclient.Refusal
	lost    error
}

func (s *server) watch(t testing.TB, edit func(*relayclient.Config), tiles ...fence.TileID) *watcher {
	t.Helper()
	w := &watcher{t: t, fold: s.world.fold, states: map[fence.TileID][]byte{}, at: map[fence.TileID]fence.Position{},
		areas: map[fence.TileID]fence.AreaSet{}}
	cfg := &relayclient.Config{
		Sync: func(y relayclient.Sync) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if y.Opens {
				w.open(y)
				return
			}
			w.syncs++
			w.states[y.Tile], w.at[y.Tile] = bytes.Clone(y.Snapshot.Blob), y.Snapshot.Position
		},
		Frame: func(f fence.Entry) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if f.Prev != w.at[f.Tile] {
				w.t.Errorf("tile %s: at %s, given %s after %s", f.Tile, w.at[f.Tile], f.Position, f.Prev)
			}
			w.states[f.Tile], w.at[f.Tile] = w.fold(w.states[f.Tile], f.Payload), f.Position
		},
		Refused: func(r relayclient.Refusal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, r)
		},
		Disconnected: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lost = err
		},
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond,
	}
	if edit != nil {
		edit(cfg)
	}
	c, err := relayclient.Dial(context.Background(), s.url, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w.Client = c
	require.NoError(t, c.Subscribe(context.Background(), tiles...))
	return w
}

// open takes up areas: they start from the snapshot, and the frames up to the position held are of them alone.
func (w *watcher) open(y relayclient.Sync) {
	w.opened++
	if y.Position != w.at[y.Tile] {
		w.t.Errorf("tile %s: at %s, areas opened at %s", y.Tile, w.at[y.Tile], y.Position)
	}
	if !y.Divided && !y.Snapshot.IsZero() {
		return // all of the state is in area 0
	}
	for p := range fence.Parts(y.Snapshot.Blob) {
		if !y.Areas.Has(p.Area) {
			w.t.Errorf("areas %v opened with a part of area %d", y.Areas.List(), p.Area)
		}
	}
	kept, some := fence.AreaSet{}.Without(y.Areas)
	require.True(w.t, some)
	stays, _ := fence.SelectParts(w.states[y.Tile], kept)
	w.states[y.Tile], w.at[y.Tile] = w.fold(stays, y.Snapshot.Blob), y.Snapshot.Position
}

// look changes the areas that the client watches.
func (w *watcher) look(tile fence.TileID, areas ...fence.Area) {
	w.mu.Lock()
	w.areas[tile] = fence.Areas(areas...)
	w.mu.Unlock()
	_ = w.Watch(context.Background(), tile, areas...) // a lost connection asks again by itself
}

func (w *watcher) state(tile fence.TileID) ([]byte, fence.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.states[tile]), w.at[tile]
}

// reaches waits until the client's view is the owner's.
func (w *watcher) reaches(o *owner) {
	w.t.Helper()
	there := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.at[o.tile] == o.at && bytes.Equal(w.seen(o.tile, w.states[o.tile]), w.seen(o.tile, o.state))
	}
	if waittest.Holds(there, time.Minute, time.Millisecond) {
		return
	}
	state, at := w.state(o.tile)
	require.Equal(w.t, o.at.String(), at.String(), "the client's position")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(w.t, w.seen(o.tile, o.state), w.seen(o.tile, state), "the client's state")
}

// seen is what the client watches of a state.
func (w *watcher) seen(tile fence.TileID, state []byte) []byte {
	selected, _ := fence.SelectParts(state, w.areas[tile])
	return selected
}

func eventually(t testing.TB, f func() bool, what string, args ...any) {
	t.Helper()
	waittest.Until(t, f, 10*time.Second, time.Millisecond, append([]any{what}, args...)...)
}

var errDown = &fence.StoreError{Op: "read", Outcome: fence.ErrNotApplied, Err: errors.New("store is down")}

// expire removes a tile's owner hash.
func (w *world) expire(tile fence.TileID) {
	w.store.Update(tile, func(s *memfence.State) { s.Owner = fence.Owner{} })
}
