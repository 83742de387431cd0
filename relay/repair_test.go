package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/stream"
)

func TestLostFramesAreReadFromTheTail(t *testing.T) {
	w := newWorld(t)
	var kinds sync.Map
	cfg := still()
	cfg.Hooks.Repaired = func(i RepairInfo) { kinds.Store(i.Kind, true) }
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	for range 20 {
		o.commit() // lost
		o.commit() // lost
		o.publish(o.commit())
		c.reaches(o)
	}
	require.NotZero(t, s.Stats().Gaps)
	require.LessOrEqual(t, s.Stats().Gaps, uint64(20), "a gap is counted once")
	require.EqualValues(t, 1, c.Stats().Syncs, "a repair from the tail reaches clients as frames")
	require.EqualValues(t, 0, c.Stats().Gaps, "a gap before the relay is not seen behind it")
	_, full := kinds.Load("full")
	require.False(t, full, "nothing but the tail was read")
	require.EqualValues(t, 1, w.log.snapshots.Load())
}

func TestOneRepairForManyFramesAndClients(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	var all []*watcher
	for range 20 {
		all = append(all, s.watch(t, nil, tileA))
	}
	for _, c := range all {
		c.reaches(o)
	}
	before := w.log.reads.Load()
	gate := make(chan struct{})
	w.log.set(func(l *testLog) {
		l.before = func(string) { <-gate }
	})
	o.commit() // lost
	o.tickOn(30)
	close(gate)
	for _, c := range all {
		c.reaches(o)
	}
	require.EqualValues(t, 1, s.Stats().Gaps)
	require.LessOrEqual(t, w.log.reads.Load()-before, int64(2))
}

func TestLastFrameBeforeSilenceIsCaughtByComparison(t *testing.T) {
	w := newWorld(t)
	s := w.serve(quick())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.commit() // lost, and nothing comes after it
	c.reaches(o)
	require.EqualValues(t, 1, s.Stats().Caught)
}

// TestFanoutAwayAndBack: a subscription that is cut and made again under way, as a broker's client does it, reports
// nothing. The comparison finds what was missed: more batches than it reads at once, a takeover, a rebase.
func TestFanoutAwayAndBack(t *testing.T) {
	w := newWorld(t)
	s := w.serve(quick())
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	for _, missed := range []func(){
		func() { o.commit() },
		func() {
			for range 3 * checkLimit {
				o.commit()
			}
		},
		func() { o = w.claim(tileA, o.epoch+1) },
		func() { o.rebase() },
		func() {
			for range checkLimit {
				o.commit()
			}
			o.snapshot()
			w.trim(tileA)
			o.commit()
		},
	} {
		missed()
		c.reaches(o) // nothing was published
		o.tickOn(2)
		c.reaches(o)
	}
}

func TestDuplicatesAndOldFramesAreIgnored(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	var old []fence.Entry
	for range 10 {
		f := o.commit()
		old = append(old, f)
		o.publish(f, f)
	}
	o.publish(old...)
	o.tickOn(1)
	c.reaches(o)
	require.EqualValues(t, 20, s.Stats().Duplicates)
	require.EqualValues(t, 0, s.Stats().Gaps)
	require.EqualValues(t, 11, c.Stats().Frames)
}

func TestReorderedFramesNeedNoRepairOnceTheyFit(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	w.log.set(func(l *testLog) { l.err = errDown }) // only the frames themselves can help
	a, b, d := o.commit(), o.commit(), o.commit()
	o.publish(d, b, a)
	c.reaches(o)
}

func TestTakeoverIsSeamlessAndTheOldOwnersFramesAreDropped(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	old := w.claim(tileA, 1)
	old.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(old)
	old.tickOn(3)
	late := old.commit()
	old.publish(late)

	next := &owner{w: w, tile: tileA, epoch: 2, at: old.at, tick: old.tick, state: old.state}
	next.publish(next.append(true))
	next.tickOn(3)
	c.reaches(next)
	require.EqualValues(t, 1, c.Stats().Syncs)
	require.EqualValues(t, 0, s.Stats().Gaps)

	// What a paused master still held of the first owner, on top of what both share.
	zombie := late
	zombie.Prev = late.Position
	zombie.Seq++
	old.publish(fence.NewEntry(zombie))
	next.tickOn(1)
	c.reaches(next)
	require.EqualValues(t, 1, s.Stats().StaleDrops)
	require.EqualValues(t, 0, s.Stats().Gaps)
}

func TestRebaseIsRepairedFromTheSnapshot(t *testing.T) {
	for _, lostMarker := range []bool{false, true} {
		w := newWorld(t)
		s := w.serve(still())
		o := w.claim(tileA, 1)
		o.tickOn(5)
		c := s.watch(t, nil, tileA)
		c.reaches(o)
		o.state = []byte("another world")
		marker := o.rebase()
		if !lostMarker {
			o.publish(marker)
		}
		o.tickOn(2)
		c.reaches(o)
		require.EqualValues(t, 2, c.Stats().Syncs)
		require.EqualValues(t, 0, c.Stats().Gaps)
		require.EqualValues(t, 1, s.Stats().Replaced)
	}
}

func TestTrimAndSnapshotWhileRepairing(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	var once, done atomic.Bool
	w.log.set(func(l *testLog) {
		l.before = func(op string) {
			// Between the snapshot and its tail: both move on.
			if op == "read" && w.log.snapshots.Load() > 1 && once.CompareAndSwap(false, true) {
				for range 5 {
					o.commit()
				}
				o.snapshot()
				w.trim(tileA)
				o.commit()
				done.Store(true)
			}
		}
	})
	for range 5 {
		o.commit()
	}
	o.snapshot()
	w.trim(tileA) // the tail no longer meets what the hub holds
	f := o.commit()
	o.publish(f) // from here on the owner belongs to the repair, until it is done
	eventually(t, done.Load, "the repair reads snapshot and tail")
	c.reaches(o)
	require.EqualValues(t, 2, c.Stats().Syncs)
}

func TestForkIsReplacedByTheStoresHistory(t *testing.T) {
	for _, by := range []string{"frame", "check"} {
		w := newWorld(t)
		cfg := still()
		if by == "check" {
			cfg = quick()
		}
		s := w.serve(cfg)
		o := w.claim(tileA, 1)
		o.snapshot()
		c := s.watch(t, nil, tileA)
		c.reaches(o)
		// A batch that only a paused master ever held, then another owner from before it.
		zombie := fence.NewEntry(fence.Entry{Tile: tileA, Kind: fence.KindBatch,
			Position: fence.Position{Epoch: 1, Seq: o.at.Seq + 1},
			Prev:     o.at, Tick: 9, Payload: []byte("lost")})
		o.publish(zombie)
		eventually(t, func() bool { at, _ := c.Position(tileA); return at == zombie.Position },
			"the zombie's batch is shown")
		next := &owner{w: w, tile: tileA, epoch: 2, at: o.at, tick: 9, state: o.state}
		f := next.append(true) // the same sequence
		if by == "frame" {
			next.publish(f)
		}
		c.reaches(next)
		require.EqualValues(t, 2, c.Stats().Syncs)
	}
}

// setBack makes the store forget a tile's last n entries, as a failover to a lagging replica does.
func (w *world) setBack(tile fence.TileID, n int) {
	w.store.Update(tile, func(s *memfence.State) {
		s.Entries = s.Entries[:len(s.Entries)-n]
		last := s.Entries[len(s.Entries)-1]
		s.Owner.Position, s.Owner.Epoch = last.Position, last.Epoch
	})
}

func TestStoreBehindIsTrustedOnlyAfterTheGrace(t *testing.T) {
	w := newWorld(t)
	cfg := quick()
	cfg.BehindGrace = 300 * time.Millisecond
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(3)
	o.snapshot()
	o.tickOn(3)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	ahead := o.at
	w.setBack(tileA, 2)
	time.Sleep(100 * time.Millisecond)
	at, _ := c.Position(tileA)
	require.Equal(t, ahead, at, "the living owner is given time to append its entries again")

	rest := w.claimState(tileA)
	c.reaches(rest)
	require.EqualValues(t, 1, s.Stats().Replaced)
}

// claimState is an owner that has written nothing yet, at what the store has.
func (w *world) claimState(tile fence.TileID) *owner {
	rec, err := stream.Recover(context.Background(), w.log.Log, tile)
	require.NoError(w.t, err)
	o := &owner{w: w, tile: tile, at: rec.Position, state: opened(w.t, rec.Snapshot.Blob)}
	for _, e := range rec.Entries {
		o.state, o.tick = w.fold(o.state, e.Payload), e.Tick
	}
	return o
}

func TestStoreAtALowerEpochIsRefused(t *testing.T) {
	w := newWorld(t)
	cfg := quick()
	cfg.BehindGrace = time.Millisecond
	s := w.serve(cfg)
	o := w.claim(tileA, 1)
	o.tickOn(2)
	next := w.claim(tileA, 2)
	c := s.watch(t, nil, tileA)
	c.reaches(next)
	w.setBack(tileA, 1) // the install is lost
	eventually(t, func() bool { return s.Stats().LowerEpoch > 3 }, "comparisons see the lower epoch")
	at, _ := c.Position(tileA)
	require.Equal(t, next.at, at)

	late := s.watch(t, nil, tileA) // served from what the relay knows
	late.reaches(next)
}

func TestStoreDownIsToldAndHealed(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	w.log.set(func(l *testLog) { l.err = errDown })
	c := s.watch(t, nil, tileA)
	told := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.refused) == 1 && c.refused[0].Tile == tileA.String() &&
			c.refused[0].Code == "CODE_UNAVAILABLE"
	}
	eventually(t, told, "the client is told")
	eventually(t, func() bool { return s.Stats().RepairsFailed > 3 }, "the relay tries again")
	require.True(t, told(), "once")
	o.tickOn(3)
	w.log.set(func(l *testLog) { l.err = nil })
	c.reaches(o)
}

func TestFanoutDownIsServedFromTheStore(t *testing.T) {
	w := newWorld(t)
	w.fan.err = errors.New("fan-out is down")
	s := w.serve(quick())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	o.tickOn(3)
	c.reaches(o)
	w.fan.mu.Lock()
	w.fan.err = nil
	w.fan.mu.Unlock()
	eventually(t, func() bool { return w.fan.count(tileA) == 1 }, "the subscription is made when it can be")
	o.tickOn(3)
	c.reaches(o)
}

func TestCorruptFrameIsDroppedAndRepaired(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	f := o.commit()
	w.fan.publish(tileA, append(bytes.Clone(f.Frame), "not what was committed"...))
	w.fan.publish(tileA, []byte("no frame at all"))
	f.Tile = tileB
	w.fan.publish(tileA, fence.NewEntry(f).Frame)
	o.tickOn(1)
	c.reaches(o)
	require.EqualValues(t, 3, s.Stats().Corrupt)
	require.EqualValues(t, 1, s.Stats().Gaps)
}

// TestOwnersPartIsNotSent: neither batches nor snapshots show what is for owners only.
func TestOwnersPartIsNotSent(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	o.commit()
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	m := receive(t, c)
	require.NotContains(t, m.String(), string(secret))
	require.Equal(t, o.state[:8], m.GetSync().GetBlob(), "the game's part alone")
	require.Equal(t, fence.Checksum(o.state[:8]), m.GetSync().GetSum())
	require.Equal(t, fence.Sum(secret), m.GetSync().GetTail()[0].GetHidden())
	o.tickOn(1)
	m = receive(t, c)
	require.NotContains(t, m.String(), string(secret))
	require.Equal(t, fence.Sum(secret), m.GetFrame().GetHidden())
}

func TestPoisonEntryIsPassedByASnapshot(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	c := s.watch(t, nil, tileA)
	c.reaches(o)
	bad := o.at.Seq + 1
	w.log.set(func(l *testLog) {
		l.edit = func(chunks []stream.Chunk) {
			for i := range chunks {
				for j, e := range chunks[i].Entries {
					if e.Seq == bad {
						chunks[i].Entries = chunks[i].Entries[:j]
						chunks[i].Poison = &stream.Poison{Tile: tileA, Seq: bad, Reason: "test"}
						break
					}
				}
			}
		}
	})
	o.commit()
	o.tickOn(2)
	eventually(t, func() bool { return s.Stats().RepairsFailed > 2 }, "the entry cannot be read")
	o.snapshot()
	o.tickOn(1)
	c.reaches(o)
}

func TestAnswerShorterThanTheStoresPositionIsNotTaken(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	for range 5 {
		o.commit()
	}
	var lags atomic.Int64
	lags.Store(3)
	w.log.set(func(l *testLog) {
		l.edit = func(chunks []stream.Chunk) { // a replica that lags behind the one asked for the position
			if lags.Add(-1) >= 0 {
				chunks[0].Entries = chunks[0].Entries[:2]
			}
		}
	})
	c := s.raw(t, relaypb.Subprotocol)
	send(t, c, subscribeTo(tileA.String()))
	m := receive(t, c)
	for m.GetError().GetCode() == relaypb.Code_CODE_UNAVAILABLE {
		m = receive(t, c)
	}
	require.Equal(t, o.at, m.GetSync().GetPosition().Fence())
	require.EqualValues(t, 3, s.Stats().RepairsFailed)
}

func TestOfTwoHeldFramesTheHigherEpochStays(t *testing.T) {
	base := line{}.grow(3, 1, 'a')
	h := newHub(tileA, &Config{}, nil, nil)
	older, newer := base.next(1, 'x'), base.next(2, 'y')
	for _, e := range []fence.Entry{newer, older} {
		h.hold(&batch{Entry: e})
	}
	require.Equal(t, newer.Position, h.held[base.end()].Position)
	h.hold(&batch{Entry: base.next(3, 'z')})
	require.EqualValues(t, 3, h.held[base.end()].Epoch)
	for i := range maxHeld * 2 {
		e := base.next(1, 'm')
		e.Prev.Seq = fence.Seq(100 + i)
		h.hold(&batch{Entry: e})
	}
	require.LessOrEqual(t, len(h.held), maxHeld)
}

func TestRepairsAreBounded(t *testing.T) {
	w := newWorld(t)
	cfg := still()
	cfg.MaxRepairs = 3
	s := w.serve(cfg)
	var now, most atomic.Int64
	w.log.set(func(l *testLog) {
		l.before = func(op string) {
			if op != "last" {
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(5 * time.Millisecond)
			now.Add(-1)
		}
	})
	var tiles []fence.TileID
	for i := range 60 {
		tiles = append(tiles, tileA+fence.TileID(i))
	}
	c := s.watch(t, nil, tiles...)
	eventually(t, func() bool { return c.Stats().Syncs == 60 }, "all tiles are synced")
	require.LessOrEqual(t, most.Load(), int64(3))
	require.EqualValues(t, 60, s.Stats().Tiles)
}

func TestReconnectStormIsOneColdRead(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.tickOn(10)
	o.snapshot()
	o.tickOn(10)
	n := 300
	if testing.Short() {
		n = 50
	}
	clients := make([]*watcher, n)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { clients[i] = s.watch(t, nil, tileA) })
	}
	group.Wait()
	for _, c := range clients {
		c.reaches(o)
	}
	require.EqualValues(t, 1, w.log.snapshots.Load())
	require.LessOrEqual(t, w.log.reads.Load(), int64(1))
	o.tickOn(3)
	for _, c := range clients {
		c.reaches(o)
	}
	require.EqualValues(t, n, s.Stats().Subscriptions, fmt.Sprint(s.Stats()))
}
