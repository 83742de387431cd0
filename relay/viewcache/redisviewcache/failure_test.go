package redisviewcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/memstream"
)

// Of a rebuilder that is a process of its own: the address of the server and the tile, separated by a blank.
const envRebuilder = "TILEFENCE_TEST_REBUILDER"

// rebuilderProcess takes the lock of a tile, says so, and never comes to the end of its read of the log.
func rebuilderProcess() error {
	addr, name, _ := strings.Cut(os.Getenv(envRebuilder), " ")
	tile, err := fence.ParseTileID(name)
	if err != nil {
		return err
	}
	store, err := redisviewcache.New(redis.NewClient(redisviewcache.Options(addr)), fence.World{}, 0)
	if err != nil {
		return err
	}
	log := &viewcachetest.Log{Log: memstream.New(memfence.New()), Before: func(context.Context) error {
		fmt.Println("reading")
		select {} // its own deadline does not end it either
	}}
	views, err := viewcache.New(store, log, viewcachetest.Keys, nil)
	if err != nil {
		return err
	}
	_, err = views.View(context.Background(), tile, fence.Position{})
	return err
}

// scene is a server of views, a coordination store, and a tile with a history.
type scene struct {
	*viewcachetest.World
	*testing.T
	stack  *devstack.Stack
	client redis.UniversalClient
	log    *viewcachetest.Log
	tile   fence.TileID

	// timeout is that of caches: where servers stay well, a slow one is not taken for one that hangs.
	timeout time.Duration
}

// newScene has a server of its own, so that scenes can be played at once.
func newScene(t *testing.T) *scene {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})
	return sceneOn(t, stack, connect(t, stack.ViewsAddr))
}

func sceneOn(t *testing.T, stack *devstack.Stack, client redis.UniversalClient) *scene {
	mem := memfence.New()
	s := &scene{World: &viewcachetest.World{Store: mem, Bytes: 500}, T: t, stack: stack, client: client,
		log: &viewcachetest.Log{Log: memstream.New(mem)}, tile: fence.TileID(rand.Uint64()>>1 | 1),
		timeout: 10 * time.Second}
	s.play(s.tile)
	return s
}

// play gives a tile a snapshot and a tail.
func (s *scene) play(tile fence.TileID) {
	for i := range 6 {
		_, err := s.Commit(s.Context(), tile)
		require.NoError(s, err)
		if i == 2 {
			require.NoError(s, s.Snapshot(s.Context(), tile))
		}
	}
}

// cache is the cache of one more relay; nothing is fresh to it.
func (s *scene) cache(limits *viewstore.Limits) (*viewcache.Cache, *redisviewcache.Store) {
	store, err := redisviewcache.NewWith(s.client, fence.World{}, limits)
	require.NoError(s, err)
	s.Cleanup(store.Close)
	c, err := viewcache.New(store, s.log, viewcachetest.Keys,
		&viewcache.Config{Fresh: time.Nanosecond, Timeout: s.timeout})
	require.NoError(s, err)
	return c, store
}

// view reads a view and audits it: as nothing is fresh, it ends at the head, or another holds the lock. shared is false
// when the caller was sent to the log.
func (s *scene) view(c *viewcache.Cache, tile fence.TileID) (shared bool) {
	s.Helper()
	v, err := c.View(s.Context(), tile, fence.Position{})
	if errors.Is(err, viewcache.ErrNotShared) {
		return false
	}
	require.NoError(s, err)
	require.NoError(s, s.Audit(tile, &v))
	require.True(s, v.Stale || v.Position == s.Head(tile), "a view ends at %s, and the history at %s", v.Position,
		s.Head(tile))
	return true
}

// TestAKilledRebuilder: a relay is killed while it reads a tile. Another that waits for it reads the tile in its place.
func TestAKilledRebuilder(t *testing.T) {
	s := newScene(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envRebuilder+"="+s.stack.ViewsAddr+" "+s.tile.String())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make([]byte, len("reading"))
	_, err = out.Read(said)
	require.NoError(t, err)
	require.Equal(t, "reading", string(said))

	c, _ := s.cache(nil)
	answered := make(chan viewcache.View, 1)
	time.Sleep(1300 * time.Millisecond) // longer than a lock lasts that is not renewed
	go func() {
		v, err := c.View(s.Context(), s.tile, fence.Position{})
		for errors.Is(err, viewcache.ErrNotShared) { // it has waited for long enough
			v, err = c.View(s.Context(), s.tile, fence.Position{})
		}
		if err != nil {
			t.Error(err)
		}
		answered <- v
	}()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, answered, "the living holder is waited for")
	require.Zero(t, s.log.Calls())
	killed := time.Now()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	v := <-answered
	require.Less(t, time.Since(killed), 5*time.Second, "a lock lasts a second if it is not renewed")
	require.NoError(t, s.Audit(s.tile, &v))
	require.Equal(t, s.Head(s.tile), v.Position)
	require.EqualValues(t, 1, c.Stats().Rebuilds)
	require.EqualValues(t, 2, s.log.Calls())
}

// fewFailed: of many reads few have met a store that does not work, three and then one a second.
func (s *scene) fewFailed(n uint64, began time.Time) {
	s.Helper()
	require.LessOrEqual(s, n, 4+uint64(time.Since(began)/time.Second))
}

// TestTheServerRestarts: it is down at the start, comes, is killed in the middle, and comes back empty.
func TestTheServerRestarts(t *testing.T) {
	s := newScene(t)
	server, _ := s.stack.Process("views")
	kill := func() {
		require.NoError(t, server.Signal(os.Kill))
		<-server.Exited()
	}
	kill()
	s.timeout = 500 * time.Millisecond
	c, store := s.cache(nil)
	heard := make(chan struct{}, 100)
	defer store.Listen(s.tile, func(viewstore.Version) { heard <- struct{}{} })()
	for range 2 {
		began, before := time.Now(), c.Stats().Failures
		for range 100 {
			require.False(t, s.view(c, s.tile))
		}
		s.fewFailed(c.Stats().Failures-before, began)
		require.NoError(t, server.Restart(t.Context()))
		waittest.Until(t, func() bool { return s.view(c, s.tile) }, 10*time.Second, 10*time.Millisecond)
		for len(heard) > 0 {
			<-heard
		}
		waittest.Until(t, func() bool { // announcements come again
			_, err := s.Commit(t.Context(), s.tile)
			require.NoError(t, err)
			s.view(c, s.tile)
			return len(heard) > 0
		}, 10*time.Second, 20*time.Millisecond)
		kill()
	}
}

// TestThePausedServer: what hangs is not waited for.
func TestThePausedServer(t *testing.T) {
	s := newScene(t)
	s.timeout = 500 * time.Millisecond
	c, _ := s.cache(nil)
	waittest.Until(t, func() bool { return s.view(c, s.tile) }, 10*time.Second, 10*time.Millisecond)
	server, _ := s.stack.Process("views")
	require.NoError(t, server.Signal(devstack.Pause))
	began, before := time.Now(), c.Stats().Failures
	for range 1000 {
		require.False(t, s.view(c, s.tile))
	}
	s.fewFailed(c.Stats().Failures-before, began)
	require.NoError(t, server.Signal(devstack.GoOn))
	waittest.Until(t, func() bool { return s.view(c, s.tile) }, 10*time.Second, 10*time.Millisecond)
}

// TestFailover: a cluster's master with the tile's group is killed and its replica promoted. The version that the
// replica has is there before any rebuild, and is extended.
func TestFailover(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination},
		NodeTimeout: 500 * time.Millisecond})
	client := connect(t, stack.CoordAddrs...)
	s := sceneOn(t, stack, client)
	s.timeout = 500 * time.Millisecond
	c, store := s.cache(nil)
	waittest.Until(t, func() bool { return s.view(c, s.tile) }, 10*time.Second, 10*time.Millisecond)
	had, ok, err := store.Find(t.Context(), s.tile)
	require.NoError(t, err)
	require.True(t, ok)
	master, err := client.(*redis.ClusterClient).MasterForKey(t.Context(), redisviewcache.Keys(s.tile)[0])
	require.NoError(t, err)
	waittest.Until(t, func() bool { // the replica has what the master has now
		replicas, err := master.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && replicas > 0
	}, 10*time.Second, 10*time.Millisecond)
	for _, p := range stack.Processes() {
		if p.Addr() == master.Options().Addr {
			require.NoError(t, p.Signal(os.Kill))
			<-p.Exited()
		}
	}
	_, err = s.Commit(t.Context(), s.tile)
	require.NoError(t, err)
	require.False(t, s.view(c, s.tile), "nothing was broken")
	rebuilds := c.Stats().Rebuilds
	var v viewstore.Version
	waittest.Until(t, func() bool {
		v, ok, err = store.Find(t.Context(), s.tile)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, ok, "the replica has no version")
	require.Equal(t, had.At, v.At)
	require.Equal(t, rebuilds, c.Stats().Rebuilds)
	waittest.Until(t, func() bool { return s.view(c, s.tile) }, 20*time.Second, 10*time.Millisecond)
	v, _, err = store.Find(t.Context(), s.tile)
	require.NoError(t, err)
	require.Equal(t, s.Head(s.tile), v.At)
	require.EqualValues(t, 1, c.Stats().Whole, "it was read whole once, before, and extended")
}

// TestTheServerForgets: parts of what is stored, the functions, the locks.
func TestTheServerForgets(t *testing.T) {
	s := newScene(t)
	c, _ := s.cache(nil)
	for i := range 40 {
		require.True(t, s.view(c, s.tile))
		switch keys := redisviewcache.Keys(s.tile); i % 6 {
		case 5:
			require.NoError(t, s.client.FunctionFlush(t.Context()).Err())
		default:
			require.NoError(t, s.client.Del(t.Context(), keys[i%6]).Err())
		}
		if i%7 == 0 {
			_, err := s.Commit(t.Context(), s.tile)
			require.NoError(t, err)
		}
	}
	require.Greater(t, c.Stats().Rebuilds, uint64(20), "what is not there is read again")
	require.Zero(t, c.Stats().NotShared)
}

// TestADamagedIndexIsAMiss: whatever it says of a tile, views are right, and it is right after.
func TestADamagedIndexIsAMiss(t *testing.T) {
	s := newScene(t)
	c, store := s.cache(nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	at := "7/99/00000000000000ff"
	for _, entry := range []string{"", "x", at, at + " " + at, at + " " + at + " 1 1", at + " " + at + " x 1",
		at + " " + at + " 1 9999999999999999", "07/99/00000000000000ff " + at + " 1 1",
		"7/99/00000000000000FF " + at + " 1 1", "9999999999999999/1/00000000000000ff " + at + " 1 1",
		at + " " + at + " 99999999999999999999 1", "damage"} {
		key := redisviewcache.Keys(s.tile)[0]
		if entry == "damage" {
			b, err := s.client.HGet(t.Context(), key, s.tile.String()).Bytes()
			require.NoError(t, err)
			b[r.IntN(len(b))] ^= 1 << r.IntN(7)
			entry = string(b)
		}
		require.NoError(t, s.client.HSet(t.Context(), key, s.tile.String(), entry).Err())
		require.True(t, s.view(c, s.tile), "%q (seed %d)", entry, seed)
		v, ok, err := store.Find(t.Context(), s.tile)
		require.NoError(t, err, entry)
		require.True(t, ok, entry)
		require.Equal(t, s.Head(s.tile), v.At, "%q (seed %d)", entry, seed)
	}
}

// TestTheClockIsSteppedBack: what was stored in the future is not fresh until then.
func TestTheClockIsSteppedBack(t *testing.T) {
	s := newScene(t)
	c, store := s.cache(nil)
	require.True(t, s.view(c, s.tile))
	v, _, err := store.Find(t.Context(), s.tile)
	require.NoError(t, err)
	later := v.Stamp + uint64(time.Hour.Microseconds())
	require.NoError(t, s.client.HSet(t.Context(), redisviewcache.Keys(s.tile)[0], s.tile.String(),
		fmt.Sprintf("%s %s %d 1", v.At, v.Base, later)).Err())
	_, err = s.Commit(t.Context(), s.tile)
	require.NoError(t, err)
	slow, err := viewcache.New(store, s.log, viewcachetest.Keys, &viewcache.Config{Fresh: time.Hour})
	require.NoError(t, err)
	require.True(t, s.view(slow, s.tile), "it is not fresh until then")
	v, _, err = store.Find(t.Context(), s.tile)
	require.NoError(t, err)
	require.Equal(t, s.Head(s.tile), v.At)
}

// TestTheServerEvicts: by a policy of its own, whatever it finds.
func TestTheServerEvicts(t *testing.T) {
	s := newScene(t)
	for setting, value := range map[string]string{"maxmemory-policy": "allkeys-random", "maxmemory": "1600kb"} {
		require.NoError(t, s.client.ConfigSet(t.Context(), setting, value).Err())
	}
	c, _ := s.cache(nil)
	tiles := make([]fence.TileID, 200)
	for i := range tiles {
		tiles[i] = s.tile + fence.TileID(i)
		s.play(tiles[i])
	}
	for range 1500 {
		s.view(c, tiles[rand.IntN(len(tiles))])
	}
	info, err := s.client.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	require.NotContains(t, info, "evicted_keys:0\r", "nothing was evicted")
	t.Logf("%+v", c.Stats())
}

// TestTheServerIsFull: nothing more can be stored. What is there is used, and the rest is read.
func TestTheServerIsFull(t *testing.T) {
	s := newScene(t)
	c, _ := s.cache(nil)
	require.True(t, s.view(c, s.tile))
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	s.play(s.tile + 1)
	for range 3 {
		require.True(t, s.view(c, s.tile))
		require.True(t, s.view(c, s.tile+1), "it is read under the lock, and handed out")
	}
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	before := s.log.Snapshots.Load()
	require.True(t, s.view(c, s.tile+1))
	require.True(t, s.view(c, s.tile+1))
	require.Equal(t, before+1, s.log.Snapshots.Load())
}

// TestKeysOfAnotherKind: what fails before a rebuild says so; a rebuild begins the group anew.
func TestKeysOfAnotherKind(t *testing.T) {
	s := newScene(t)
	c, store := s.cache(nil)
	require.NoError(t, s.client.Set(t.Context(), redisviewcache.Keys(s.tile)[0], "x", 0).Err())
	_, _, err := store.Find(t.Context(), s.tile)
	require.ErrorIs(t, err, viewstore.ErrRefused)
	require.ErrorContains(t, err, "WRONGTYPE")
	for range 3 {
		require.True(t, s.view(c, s.tile))
	}
	_, found, err := store.Find(t.Context(), s.tile)
	require.NoError(t, err)
	require.True(t, found)
}

// TestLostSubscriptionsAreMadeAgain: their connections are cut.
func TestLostSubscriptionsAreMadeAgain(t *testing.T) {
	s := newScene(t)
	_, store := s.cache(nil)
	heard := make(chan struct{}, 100)
	defer store.Listen(s.tile, func(viewstore.Version) { heard <- struct{}{} })()
	seq := fence.Seq(0)
	for range 3 {
		waittest.Until(t, func() bool {
			seq++
			_, err := store.Put(t.Context(), viewstore.Put{Tile: s.tile, At: fence.Position{Epoch: 1, Seq: seq},
				Tail: []byte("x")})
			require.NoError(t, err)
			select {
			case <-heard:
				return true
			case <-time.After(20 * time.Millisecond):
				return false
			}
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, s.client.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
		time.Sleep(20 * time.Millisecond)
		for len(heard) > 0 {
			<-heard
		}
	}
}

// TestAGroupOutlivesWhatTheServerEvicts: whichever of its keys the server evicts, views are stored again, and the
// account of the group is that of its values.
func TestAGroupOutlivesWhatTheServerEvicts(t *testing.T) {
	for key, which := range []struct {
		name  string
		tiles int
	}{{"index", 30}, {"values", 30}, {"used", 30}, {"old", 8}} {
		t.Run(which.name, func(t *testing.T) {
			s := newScene(t)
			// A group has room for some twenty views, and fills what is left with those of before.
			c, store := s.cache(&viewstore.Limits{Budget: viewstore.Groups * 80 << 10, Grace: time.Hour})
			var tiles []fence.TileID
			for id := s.tile; len(tiles) < which.tiles; id++ {
				if viewstore.GroupOf(id) == viewstore.GroupOf(s.tile) {
					tiles = append(tiles, id)
					s.play(id)
				}
			}
			for range 10 {
				for _, id := range tiles {
					_, err := s.Commit(t.Context(), id)
					require.NoError(t, err)
					require.True(t, s.view(c, id))
				}
				require.NoError(t, s.client.Del(t.Context(), redisviewcache.Keys(s.tile)[key]).Err())
				require.True(t, s.view(c, s.tile))
				_, stored, err := store.Find(t.Context(), s.tile)
				require.NoError(t, err)
				require.True(t, stored, "%+v", c.Stats())
				u, err := store.Usage(t.Context())
				require.NoError(t, err)
				values, err := s.client.HVals(t.Context(), redisviewcache.Keys(s.tile)[1]).Result()
				require.NoError(t, err)
				counted := len(strings.Join(values, "")) + viewstore.ValueCost*(len(values)-1) // one is none
				require.EqualValues(t, counted, u.Bytes, "%+v", u)
				require.LessOrEqual(t, len(values), 1+2*u.Tiles+u.Old, "each is the value of something: %+v", u)
			}
			require.Zero(t, c.Stats().TooLarge)
		})
	}
}

func TestBadInput(t *testing.T) {
	_, err := redisviewcache.New(nil, fence.World{}, 0)
	var bad *fence.ArgumentError
	require.ErrorAs(t, err, &bad)
	_, err = redisviewcache.New(connect(t, "127.0.0.1:1"), fence.World{}, -1)
	require.ErrorAs(t, err, &bad)
}

// TestAForgedIndexHeals: another hand writes into the keys of the views what no relay would, and what no later
// version, lock or account could get past. The next rebuild stores its view all the same, and the joins after it are
// given that.
func TestAForgedIndexHeals(t *testing.T) {
	s := newScene(t)
	tile := s.tile
	keys, last := redisviewcache.Keys(tile), strconv.Itoa(fence.MaxNumber)
	far := last + "/" + last + "/0000000000000001"
	for name, forge := range map[string]func(ctx context.Context) error{
		"a token that no lock is above": func(ctx context.Context) error {
			return s.client.HSet(ctx, keys[0], tile.String(), far+" 0/0/0000000000000000 1 "+last).Err()
		},
		"a stamp that is never old": func(ctx context.Context) error {
			return s.client.HSet(ctx, keys[0], tile.String(), far+" 0/0/0000000000000000 "+last+" 1").Err()
		},
		"an account that is full": func(ctx context.Context) error {
			return s.client.HSet(ctx, keys[0], "#bytes", last).Err()
		},
		"an account below nothing": func(ctx context.Context) error {
			return s.client.HSet(ctx, keys[0], "#bytes", "-"+last).Err()
		},
		"no number": func(ctx context.Context) error { return s.client.HSet(ctx, keys[0], "#bytes", "many").Err() },
		"another type": func(ctx context.Context) error {
			return errors.Join(s.client.Del(ctx, keys[0]).Err(), s.client.RPush(ctx, keys[0], "x").Err())
		},
	} {
		require.NoError(t, forge(t.Context()), name)
		_, err := s.Commit(t.Context(), tile)
		require.NoError(t, err)
		c, _ := s.cache(nil)
		head := s.Head(tile)
		v, err := c.View(t.Context(), tile, head)
		require.NoError(t, err, name)
		require.Equal(t, head, v.Position, name)
		next, _ := s.cache(nil)
		v, err = next.View(t.Context(), tile, head)
		require.NoError(t, err, name)
		require.Equal(t, head, v.Position, name)
		require.EqualValues(t, 1, next.Stats().Hits, "%s: %+v, then %+v", name, c.Stats(), next.Stats())
	}
}
