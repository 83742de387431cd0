package tilefence_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/intercept"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// counter is a game that counts its intents.
type counter struct{ n uint64 }

func (c *counter) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("one")), append(out, stream.Applied)
	}
	return events, out
}

func (c *counter) Apply(_ fence.Tick, events [][]byte) error { c.n += uint64(len(events)); return nil }
func (c *counter) Snapshot() ([]byte, error)                 { return binary.BigEndian.AppendUint64(nil, c.n), nil }

func (c *counter) Restore(snapshot []byte) error {
	c.n = 0
	if len(snapshot) > 0 {
		c.n = binary.BigEndian.Uint64(snapshot)
	}
	return nil
}

// attic is a world in one process whose quiet tiles are collected after an hour.
type attic struct {
	*testing.T
	authority fence.Authority
	store     *memfence.Store
	log       *memstream.Log
	durable   checkpoint.Backend
}

// mortal is an owner's way to its back ends. Once it is dead, nothing that the owner still writes arrives.
type mortal struct{ dead atomic.Bool }

func (m *mortal) call(ctx context.Context, c intercept.Call, do func(context.Context) error) error {
	if c.Write && m.dead.Load() {
		return &fence.StoreError{Op: c.Op, Tile: c.Tile, Outcome: fence.ErrNotApplied,
			Err: errors.New("the owner is dead")}
	}
	return do(ctx)
}

const atticTile fence.TileID = 0x85283083fffffff

func newAttic(t *testing.T) *attic {
	store := memfence.New()
	return &attic{T: t, authority: memfence.NewAuthority(), store: store, log: memstream.New(store),
		durable: memcheckpoint.New()}
}

// play runs the tile, counts n intents, and ends it: in good order, or as a process that is killed.
func (a *attic) play(n int, kill bool) (before uint64, at fence.Position) {
	a.Helper()
	rules := &counter{}
	life := &mortal{}
	p, err := tile.New(atticTile, "a:1", tile.Seams{Authority: intercept.AuthorityOf(a.authority, life.call),
		Store: intercept.StoreOf(a.store, life.call), Log: a.log, Checkpoint: a.durable.Get}, rules,
		&tile.Config{TakeOver: true, SnapshotEvery: 1 << 20})
	require.NoError(a, err)
	ctx, cancel := context.WithCancel(a.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	require.NoError(a, p.Inspect(ctx, func(tile.Rules, fence.Position) { before = rules.n }))
	for range n {
		_, err := p.Submit(ctx, tile.Intent{Tile: atticTile})
		require.NoError(a, err)
	}
	at = p.Status().Position
	life.dead.Store(kill)
	cancel()
	if err := <-ended; kill {
		require.ErrorIs(a, err, tile.ErrUnreleased)
	} else {
		require.NoError(a, err)
	}
	return before, at
}

// checkpointer runs a checkpointer until stop is called.
func (a *attic) checkpointer() (stop func()) {
	a.Helper()
	cfg := &checkpoint.Config{Collector: a.log, CollectAfter: time.Hour}
	c, err := checkpoint.New(a.log, a.durable, nil, []fence.TileID{atticTile}, cfg)
	require.NoError(a, err)
	ctx, cancel := context.WithCancel(a.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() { cancel(); require.NoError(a, <-ended) }
}

func (a *attic) stat() stream.Stat {
	a.Helper()
	stats, err := a.log.Stat(a.Context(), []fence.TileID{atticTile})
	require.NoError(a, err)
	return stats[0]
}

// TestQuietTileIsCollectedAndWakes: after it has been quiet for long enough nothing of the tile is left but its
// checkpoint and its record; its next owner goes on from there, under a higher epoch, with a jump of the sequence.
func TestQuietTileIsCollectedAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t)
		defer a.checkpointer()()
		_, at := a.play(3, false)
		time.Sleep(59 * time.Minute)
		require.True(t, a.stat().HasSnapshot, "not yet")
		time.Sleep(5 * time.Minute)
		st := a.stat()
		require.Zero(t, st.Entries)
		require.False(t, st.HasSnapshot)
		require.Empty(t, st.Marks)
		g, err := a.authority.Lookup(t.Context(), atticTile)
		require.NoError(t, err)

		before, woke := a.play(2, false)
		require.EqualValues(t, 3, before)
		require.Greater(t, woke.Epoch, g.Epoch)
		require.GreaterOrEqual(t, woke.Seq, at.Seq+fence.RebaseJump)
		time.Sleep(2 * time.Hour)
		require.False(t, a.stat().HasSnapshot, "collected again")
		before, _ = a.play(0, false)
		require.EqualValues(t, 5, before)
	})
}

// TestTileThatWakesInTimeKeepsItsHistory: an owner that comes back before the hour has passed ends it.
func TestTileThatWakesInTimeKeepsItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t)
		stop := a.checkpointer()
		_, at := a.play(3, false)
		time.Sleep(50 * time.Minute)
		stop()
		_, woke := a.play(1, true)
		require.Less(t, woke.Seq, at.Seq+fence.RebaseJump)
		time.Sleep(2 * time.Hour)
		require.NotZero(t, a.stat().Entries)
	})
}

// TestUncheckpointedTileStays: what an owner committed after its last snapshot is nowhere else when it is killed.
func TestUncheckpointedTileStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t)
		defer a.checkpointer()()
		a.play(1, false)
		time.Sleep(time.Minute)
		a.play(3, true)
		time.Sleep(100 * time.Hour)
		before, _ := a.play(0, false)
		require.EqualValues(t, 4, before)
	})
}

// TestRecordsOfDeadOwnersAreRetired: the row of an owner that was killed, of a tile that has expired since, goes too,
// and no epoch is used again.
func TestRecordsOfDeadOwnersAreRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t)
		stop := a.checkpointer()
		a.play(3, false)
		time.Sleep(time.Minute)
		// The owner of a moment: it claims the tile, and dies before it commits anything.
		g, err := a.authority.Lookup(t.Context(), atticTile)
		require.NoError(t, err)
		dead, err := a.authority.Claim(t.Context(),
			fence.Claim{Tile: atticTile, Contact: "dead:1", ID: fence.NewClaimID(), Expected: g.Epoch})
		require.NoError(t, err)
		release := func() (int, int) {
			released, retired, err := checkpoint.ReleaseQuiet(t.Context(), a.authority, a.log, time.Hour)
			require.NoError(t, err)
			return released, retired
		}
		released, retired := release()
		require.Zero(t, released+retired)
		time.Sleep(30 * time.Minute)
		released, _ = release()
		require.Zero(t, released, "it may be on its way still, and the tile has its history")
		time.Sleep(time.Hour)
		stop()
		released, retired = release()
		require.Equal(t, []int{1, 0}, []int{released, retired})
		time.Sleep(2 * time.Hour)
		released, retired = release()
		require.Equal(t, []int{0, 1}, []int{released, retired})
		_, err = a.authority.Lookup(t.Context(), atticTile)
		require.ErrorIs(t, err, fence.ErrNeverOwned)

		before, woke := a.play(0, false)
		require.EqualValues(t, 3, before)
		require.Greater(t, woke.Epoch, dead.Epoch)
		_, err = a.store.Commit(t.Context(),
			fence.Commit{Tile: atticTile, Epoch: dead.Epoch, Contact: "dead:1", Install: true})
		require.True(t, errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrReplay), "%v", err)
		_, _, err = checkpoint.ReleaseQuiet(t.Context(), a.authority, a.log, time.Second)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	})
}

// TestCheckpointsThatStopAreSaid: the durable store takes nothing for three minutes. The checkpointer's health names
// the plane and the tile, and is well again when the store is.
func TestCheckpointsThatStopAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t)
		a.play(3, false)
		durable := &downDurable{Backend: a.durable}
		durable.down.Store(true)
		s, err := tilefence.NewCheckpointServer(tilefence.Backends{Authority: a.authority, Log: a.log,
			Fanout: memfanout.New(), Durable: durable, Workers: share.NewMemory()}, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(30 * time.Second)
		require.Empty(t, s.Health(), "not yet")
		time.Sleep(3 * time.Minute)
		problems := s.Health()
		require.Len(t, problems, 1)
		require.Equal(t, "checkpoints", problems[0].Plane)
		require.Equal(t, atticTile, problems[0].Tile)
		require.Greater(t, problems[0].For, 2*time.Minute)
		durable.down.Store(false)
		time.Sleep(2 * time.Minute)
		require.Empty(t, s.Health())
		cancel()
		require.NoError(t, <-ended)
	})
}

// downDurable is a durable store that takes no checkpoints while it is down.
type downDurable struct {
	checkpoint.Backend
	down atomic.Bool
}

func (d *downDurable) Put(ctx context.Context, id fence.TileID, s fence.Snapshot) error {
	if d.down.Load() {
		return &fence.StoreError{Op: "put", Tile: id, Outcome: fence.ErrNotApplied, Err: errors.New("it is down")}
	}
	return d.Backend.Put(ctx, id, s)
}
