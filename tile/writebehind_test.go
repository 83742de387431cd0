package tile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// silence makes the journal refuse appends while it is so.
func (r *reach) silence(on *atomic.Bool) {
	r.set(func(_ context.Context, op string, applied bool) error {
		if on.Load() && !applied && (op == "append" || op == "put") {
			return errJournal
		}
		return nil
	})
}

func TestAJournalBehindDelaysNoTick(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteBehind})
		a.eventually(t, tile.Serving, time.Second)
		assert.Equal(t, sh.durableEnd(), a.Status().Position, "it begins with a base")
		all := a.words(t, "a", 3)
		time.Sleep(time.Second)
		assert.Equal(t, sh.durableEnd(), a.Status().Position)
		assert.Zero(t, a.Status().Unjournaled)
		assert.Positive(t, a.Status().Confirmed.Seq)
		assert.LessOrEqual(t, a.Status().Confirmed.Seq, a.Status().Position.Seq)
		var silent atomic.Bool
		a.reach.silence(&silent)
		silent.Store(true)
		began, missed := time.Now(), a.Status().Missed
		all = append(all, a.words(t, "b", 6)...)
		assert.LessOrEqual(t, time.Since(began), 7*500*time.Millisecond)
		assert.Equal(t, missed, a.Status().Missed)
		assert.Equal(t, 6, a.Status().Unjournaled)
		assert.NotEqual(t, sh.durableEnd(), a.Status().Position)
		silent.Store(false)
		time.Sleep(2 * time.Second)
		assert.Equal(t, sh.durableEnd(), a.Status().Position, "what waited follows, in order")
		require.NoError(t, a.drain())
		s.lose()
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteBehind, TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		assert.Equal(t, all, b.rules.Words)
		require.NoError(t, b.drain())
	})
}

// What the journal does not have when the owner dies with all of coordination is lost, and reported; nothing else is.
func TestWhatTheJournalHasOutlivesCoordination(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteBehind})
		kept := a.words(t, "kept", 30)
		time.Sleep(time.Second)
		var silent atomic.Bool
		a.reach.silence(&silent)
		silent.Store(true)
		a.words(t, "lost", 3)
		a.kill()
		<-a.done
		s.lose()
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteBehind, TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		assert.Equal(t, kept, b.rules.Words)
		require.Len(t, b.reports(), 1)
		assert.GreaterOrEqual(t, b.reports()[0].LostTicks, fence.Tick(3))
		assert.Less(t, b.reports()[0].LostTicks, fence.Tick(30), "not since the last checkpoint")
		require.NoError(t, b.drain())
	})
}

// More was committed than may wait: when the journal answers, the state follows as a base, and then what comes next.
func TestAJournalThatIsLongSilentGetsABase(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteBehind,
			Limits: tile.Limits{KeepBytes: 200}})
		a.eventually(t, tile.Serving, time.Second)
		var silent atomic.Bool
		a.reach.silence(&silent)
		silent.Store(true)
		a.words(t, "heavy", 30)
		bases := a.reach.calls("put")
		silent.Store(false)
		time.Sleep(3 * time.Second)
		assert.Equal(t, bases+1, a.reach.calls("put"))
		all := append([]string{}, a.rules.Words...)
		all = append(all, a.words(t, "after", 2)...)
		time.Sleep(time.Second)
		assert.Equal(t, a.Status().Position, sh.durableEnd())
		a.kill()
		<-a.done
		s.lose()
		b := s.spawn("b:1", sh, tile.Config{Durability: tile.WriteBehind, TakeOver: true})
		b.eventually(t, tile.Serving, time.Minute)
		assert.Equal(t, all, b.rules.Words)
		require.NoError(t, b.drain())
	})
}

func TestARestoredDurableStoreGetsABaseBehind(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteBehind})
		a.words(t, "a", 1)
		old := sh.snapshot()
		a.words(t, "b", 4)
		older := memcheckpoint.New()
		require.NoError(t, older.Put(t.Context(), testTile, old))
		synctest.Wait() // no append is under way
		sh.Backend = older
		a.words(t, "c", 2)
		time.Sleep(2 * time.Second)
		assert.Equal(t, a.Status().Position, sh.durableEnd())
		require.NoError(t, a.drain())
	})
}

// A later owner has sealed the journal, and the store does not know of it: the earlier one goes no further, and takes
// up what is there if that one has died.
func TestASealedJournalFreezesItsEarlierOwner(t *testing.T) {
	onShard(t, func(t *testing.T, s *shard, sh *shelf) {
		a := s.spawn("a:1", sh, tile.Config{Durability: tile.WriteBehind})
		all := a.words(t, "a", 2)
		time.Sleep(time.Second)
		require.NoError(t, sh.Seal(t.Context(), testTile, 7))
		all = append(all, a.words(t, "b", 1)...)
		all = append(all, a.words(t, "c", 2)...)
		assert.Greater(t, a.Status().Epoch, fence.Epoch(7))
		time.Sleep(time.Second)
		assert.Equal(t, a.Status().Position, sh.durableEnd())
		assert.Equal(t, all, a.rules.Words)
		require.NoError(t, a.drain())
	})
}

// durableSea is a sea whose ports have a journal, in a durable store that takes nothing while it is silent.
type durableSea struct {
	*sea
	*reach
	silent atomic.Bool
}

func newDurableSea(t *testing.T) *durableSea {
	s := &durableSea{sea: newSea(t), reach: &reach{shelf: newShelf()}}
	s.reach.silence(&s.silent)
	s.sea.durable = s.reach
	return s
}

// loseAll kills all owners and loses all that coordination has.
func (s *durableSea) loseAll(ids ...fence.TileID) {
	for _, id := range ids {
		s.kill(id)
	}
	s.lose(ids...)
}

// lose loses all that coordination has.
func (s *durableSea) lose(ids ...fence.TileID) {
	for _, id := range ids {
		s.sea.store.Update(id, func(m *memfence.State) { *m = memfence.State{} })
	}
}

// A ship is presented when the journal has its departure, and not before: if all of coordination is lost, it is in one
// port. So it is where the journal has the departure, and not yet the arrival.
func TestAShipIsInOnePortWhateverTheJournalsHave(t *testing.T) {
	for name, silent := range map[string]string{"departure": "departure", "arrival": "arrival", "neither": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newDurableSea(t)
				cfg := tile.Config{Durability: tile.WriteBehind}
				s.open(1, &port{}, cfg)
				s.open(2, &port{}, cfg)
				_, err := s.order(1, sailing{Born: "argo"})
				require.NoError(t, err)
				time.Sleep(time.Second)
				s.silent.Store(silent == "departure")
				presented := s.presented.Load()
				o, err := s.order(1, sailing{Gone: "argo", To: 2})
				require.NoError(t, err)
				require.Equal(t, stream.Applied, o.Outcome, "the tick does not wait")
				if silent == "arrival" {
					for range 5000 {
						if s.presented.Load() == presented {
							time.Sleep(time.Millisecond)
						}
					}
					s.silent.Store(true)
				}
				time.Sleep(2 * time.Second)
				switch silent {
				case "departure":
					assert.Equal(t, presented, s.presented.Load())
				case "arrival":
					assert.Equal(t, map[string][]fence.TileID{"argo": {2}}, s.census())
					assert.Equal(t, 1, s.owner(1).Status().UnderWay, "it is not settled")
				}
				s.loseAll(1, 2)
				s.silent.Store(false)
				s.open(1, &port{}, cfg)
				s.open(2, &port{}, cfg)
				time.Sleep(10 * time.Second)
				at := fence.TileID(2)
				if silent == "departure" {
					at = 1
				}
				assert.Equal(t, map[string][]fence.TileID{"argo": {at}}, s.census())
				s.drainAll()
			})
		})
	}
}

// All of coordination is lost, and the durable store is set back to what it had at one instant, any one, while no
// process runs. What a tile told another was in the store before it was told, so the instant has both or neither.
func TestADurableStoreMayGoBackAsAWhole(t *testing.T) {
	for _, n := range seed.Many(t, 3) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(n, 3))
			s, all := newDurableSea(t), []fence.TileID{1, 2, 3}
			cfg := tile.Config{Durability: tile.WriteBehind, SnapshotEvery: 10}
			const ships = 9
			var one sync.Mutex
			intN := func(n int) int {
				one.Lock()
				defer one.Unlock()
				return r.IntN(n)
			}
			for _, id := range all {
				s.open(id, &port{}, cfg)
			}
			for i := range ships {
				_, err := s.order(1, sailing{Born: fmt.Sprint(i)})
				require.NoError(t, err)
			}
			time.Sleep(time.Second) // the journal has their births; from now on it is slow, before it acts and after
			s.set(func(_ context.Context, op string, _ bool) error {
				if op == "append" {
					time.Sleep(time.Duration(intN(1500)) * time.Millisecond)
				}
				return nil
			})
			var then checkpoint.Backend
			for at, crossed := intN(60), 0; then == nil || crossed < 30; at-- {
				if name, from := fmt.Sprint(intN(ships)), s.census(); len(from[name]) == 1 {
					to := all[intN(len(all))]
					o, err := s.order(from[name][0], sailing{Gone: name, To: uint64(to)})
					require.NoError(t, err)
					if o.Outcome == stream.Applied {
						crossed++
					}
				}
				time.Sleep(time.Duration(intN(300)) * time.Millisecond)
				if at <= 0 && then == nil {
					then = s.as(all...)
				}
			}
			for _, id := range all {
				s.kill(id)
				<-s.owner(id).done
			}
			s.lose(all...)
			s.Backend = then
			for _, id := range all {
				s.open(id, &port{}, cfg)
			}
			time.Sleep(30 * time.Second)
			found := s.census()
			assert.Len(t, found, ships, "seed %d", n)
			for name, at := range found {
				assert.Len(t, at, 1, "seed %d: %s", n, name)
			}
			s.drainAll()
		})
	}
}

// as is a durable store that has what this one has now.
func (s *durableSea) as(ids ...fence.TileID) checkpoint.Backend {
	synctest.Wait()
	c, ctx := memcheckpoint.New(), s.t.Context()
	for _, id := range ids {
		snap, _, err := s.Get(ctx, id)
		require.NoError(s.t, err)
		tail, err := s.Backend.Tail(ctx, id, snap.Seq)
		require.NoError(s.t, err)
		require.NoError(s.t, c.Base(ctx, id, snap))
		for _, e := range tail {
			require.NoError(s.t, c.Seal(ctx, id, e.Epoch))
			require.NoError(s.t, c.Append(ctx, id, e))
		}
	}
	return c
}

// A tile with a journal and one without promise different things to what crosses between them.
func TestABorderBetweenTwoClassesIsClosed(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newDurableSea(t)
			cfg := tile.Config{MixedBorders: allowed, TickInterval: 50 * time.Millisecond}
			s.open(2, &port{}, cfg)
			cfg.Durability = tile.WriteBehind
			s.open(1, &port{}, cfg)
			for from := range fence.TileID(2) {
				name := fmt.Sprint(from)
				_, err := s.order(from+1, sailing{Born: name})
				require.NoError(t, err)
				_, err = s.order(from+1, sailing{Gone: name, To: uint64(2 - from)})
				require.NoError(t, err)
			}
			time.Sleep(time.Second) // less than a tile that does not answer is given
			if allowed {
				assert.Equal(t, map[string][]fence.TileID{"0": {2}, "1": {1}}, s.census())
			} else {
				assert.Empty(t, s.census())
				assert.Equal(t, 1, s.owner(1).Status().UnderWay)
				_, err := s.owner(2).Present(t.Context(), tile.Presentation{From: 1, To: 2, Durable: true})
				assert.ErrorIs(t, err, fence.ErrInvalidArgument)
				_, err = s.order(1, sailing{Born: "late"})
				require.NoError(t, err)
				o, err := s.order(1, sailing{Gone: "late", To: 2})
				require.NoError(t, err)
				assert.Equal(t, stream.Fizzled, o.Outcome, "the border is closed")
			}
			s.drainAll()
		})
	}
}
