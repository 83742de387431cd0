package coldrestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/tile"
)

const (
	tickInterval = 20 * time.Millisecond
	cadence      = 100 * time.Millisecond // of the checkpointer
	soon         = 40 * time.Second       // a failover on a busy machine takes that long at most
)

// durable is a durable store: checkpoints, and the journal of write-through tiles.
type durable interface {
	checkpoint.Store
	checkpoint.JournalStore
}

// held is a durable store to which a checkpointer writes nothing new while it is shut: the cadence of a checkpointer
// that happens to be between two checkpoints, made as long as a test needs.
type held struct {
	checkpoint.Store
	shut atomic.Bool
}

func (h *held) Put(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	if h.shut.Load() {
		return &fence.StoreError{Op: "checkpoint", Tile: id, Outcome: fence.ErrNotApplied,
			Err: errors.New("held by the test")}
	}
	return h.Store.Put(ctx, id, s)
}

// servers are what a world stands on.
type servers struct {
	authority fence.Authority
	store     fence.Store
	log       stream.Log
	publisher fanout.Publisher
	watchers  fanout.Subscriber
	durable   durable
	class     tile.Durability
}

// world is one tile with all its actors but the owner: bridge, checkpointer, relay and a client. They run from
// beginning to end, whatever is lost.
type world struct {
	*testing.T
	servers
	tile        fence.TileID
	client      *client
	checkpoints *held
}

func newWorld(t *testing.T, s servers) *world {
	w := &world{T: t, servers: s, tile: fence.TileID(rand.Uint64()>>1 | 1), checkpoints: &held{Store: s.durable}}
	b, err := bridge.New(s.log, s.publisher, nil, []fence.TileID{w.tile}, nil)
	require.NoError(t, err)
	w.background(b.Run)
	c, err := checkpoint.New(s.log, w.checkpoints, s.durable, []fence.TileID{w.tile},
		&checkpoint.Config{Cadence: cadence, RetryMax: cadence})
	require.NoError(t, err)
	w.background(c.Run)
	r, err := relay.New(s.watchers, s.log, relay.Public, &relay.Config{CheckInterval: 200 * time.Millisecond,
		BehindGrace: time.Second})
	require.NoError(t, err)
	w.background(r.Run)
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	w.client = watch(t, server.URL, w.tile)
	return w
}

// background runs an actor until the end of the test.
func (w *world) background(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	w.Cleanup(func() {
		cancel()
		assert.NoError(w, <-ended)
	})
}

// owner is one run of the tile in a process of its own.
type owner struct {
	*world
	*power
	processor *tile.TileProcessor
	stop      context.CancelFunc
	ended     chan error

	mu       sync.Mutex
	restored []tile.RestoredInfo
}

// own starts an owner and waits until it serves.
func (w *world) own(contact string) *owner {
	w.Helper()
	o := &owner{world: w, power: &power{}, ended: make(chan error, 1)}
	cfg := &tile.Config{TickInterval: tickInterval, SnapshotEvery: 10, ConfirmEvery: 10, TakeOver: true,
		Durability: w.class,
		Timeouts: tile.Timeouts{BootTimeout: soon, DrainTimeout: 300 * time.Millisecond,
			CommitTimeout: 200 * time.Millisecond},
		Hooks: tile.Hooks{Restored: func(i tile.RestoredInfo) {
			o.mu.Lock()
			o.restored = append(o.restored, i)
			o.mu.Unlock()
		}},
	}
	var err error
	o.processor, err = tile.New(w.tile, contact,
		tile.Seams{Authority: intercept.AuthorityOf(w.authority, o.power.call),
			Store: intercept.StoreOf(w.store, o.power.call), Log: intercept.LogOf(w.log, o.power.call),
			Journal: poweredJournal{w.durable, o.power},
			Checkpoint: func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
				return checkpoint.Restore(ctx, w.durable, id)
			}}, &ledger{}, cfg)
	require.NoError(w, err)
	var ctx context.Context
	ctx, o.stop = context.WithCancel(context.Background())
	go func() { o.ended <- o.processor.Run(ctx) }()
	waittest.Until(w, func() bool {
		select {
		case err := <-o.ended:
			require.NoError(w, errors.Join(err, errors.New("the owner ended before it served")))
		default:
		}
		return o.processor.Status().State == tile.Serving
	}, soon, time.Millisecond, "%s serves", contact)
	return o
}

// crash ends the owner as a power cut does.
func (o *owner) crash() {
	o.cut.Store(true)
	o.stop()
	<-o.ended
}

// play submits actions one after the other until the owner's power is cut or until says so, and returns those that
// were acknowledged, in order.
func (o *owner) play(name string, until func(acknowledged int) bool) (acknowledged []string) {
	o.Helper()
	for i := 0; !o.cut.Load() && !until(len(acknowledged)); i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		ctx, cancel := context.WithTimeout(o.Context(), 500*time.Millisecond)
		outcome, err := o.processor.Submit(ctx, tile.Intent{Tile: o.tile, ActionID: id})
		cancel()
		if err == nil && !o.cut.Load() {
			require.Equal(o, stream.Applied, outcome.Outcome)
			acknowledged = append(acknowledged, id)
		}
	}
	return acknowledged
}

func times(n int) func(int) bool { return func(acknowledged int) bool { return acknowledged >= n } }

// state is what the owner's game holds.
func (o *owner) state() (actions []string, at fence.Position) {
	o.Helper()
	require.NoError(o, o.processor.Inspect(o.Context(), func(r tile.Rules, p fence.Position) {
		actions, at = slices.Clone(r.(*ledger).actions), p
	}))
	return actions, at
}

// report is the one restoration that the owner has reported.
func (o *owner) report() tile.RestoredInfo {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(o, o.restored, 1, "the owner reports what was lost, once")
	return o.restored[0]
}

// missing counts the acknowledged actions that a state does not have. They must be the last ones, since the state is
// one the tile has been in.
func (w *world) missing(acknowledged, state []string) int {
	w.Helper()
	have := map[string]bool{}
	for _, a := range state {
		require.False(w, have[a], "%s is there twice", a)
		have[a] = true
	}
	lost := 0
	for i, a := range acknowledged {
		if !have[a] {
			lost++
		} else {
			require.Zero(w, lost, "%s is kept, and one before it is not (%d of %d)", a, i, len(acknowledged))
		}
	}
	return lost
}

// checkpointed waits until the durable store holds a snapshot that was taken at a position or after it.
func (w *world) checkpointed(at fence.Position) {
	w.Helper()
	waittest.Until(w, func() bool {
		s, found, err := w.durable.Get(w.Context(), w.tile)
		return err == nil && found && s.Seq >= at.Seq
	}, soon, 5*time.Millisecond, "a checkpoint at %s or later", at)
}

// converges requires that the client's state becomes the owner's without further help.
func (w *world) converges(o *owner) {
	w.Helper()
	waittest.Until(w, func() bool {
		actions, at := o.state()
		held, heldAt, err := w.client.state()
		return err == nil && heldAt == at && slices.Equal(held, actions)
	}, soon, 20*time.Millisecond, "the client holds what the owner has")
}

// client is a player's view of the tile, through a relay. It connects once and gets no other information.
type client struct {
	mu      sync.Mutex
	game    ledger
	at      fence.Position
	highest fence.Seq // ever held
	err     error
}

func watch(t *testing.T, url string, id fence.TileID) *client {
	c := &client{}
	conn, err := relayclient.Dial(t.Context(), url, &relayclient.Config{Sync: c.sync, Frame: c.frame})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	require.NoError(t, conn.Subscribe(context.Background(), id))
	return c
}

func (c *client) sync(s relayclient.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved(s.Snapshot.Position, c.game.Restore(s.Snapshot.Blob))
}

func (c *client) frame(f fence.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved(f.Position, c.game.applyBatch(&f))
}

func (c *client) moved(to fence.Position, err error) {
	c.at, c.highest = to, max(c.highest, to.Seq)
	if c.err == nil {
		c.err = err
	}
}

// state is what the client's view is worth.
func (c *client) state() (actions []string, at fence.Position, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.game.actions), c.at, c.err
}

// seen is the highest sequence the client ever held.
func (c *client) seen() fence.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}

// ledger is a game whose state is the list of all actions that ever were applied, in order: what is lost of it is
// there to be counted.
type ledger struct{ actions []string }

func (l *ledger) Restore(snapshot []byte) error {
	l.actions = nil
	if len(snapshot) > 0 {
		l.actions = strings.Split(string(snapshot), "\n")
	}
	return nil
}

func (l *ledger) Resolve(_ fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	var events [][]byte
	var outcomes []stream.Outcome
	for _, in := range intents {
		events = append(events, []byte(in.ActionID))
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (l *ledger) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		l.actions = append(l.actions, string(e))
	}
	return nil
}

func (l *ledger) Snapshot() ([]byte, error) { return []byte(strings.Join(l.actions, "\n")), nil }

// applyBatch folds a batch, as a client does.
func (l *ledger) applyBatch(e *fence.Entry) error {
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return fmt.Errorf("tick %d: %w", e.Tick, err)
	}
	return l.Apply(e.Tick, b.Events)
}
