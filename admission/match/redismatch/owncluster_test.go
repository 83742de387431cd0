package redismatch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestFailover kills, and then pauses, the master of queue and seats while players come and workers match them.
// Whatever a player was told stays true: each ticket whose Enqueue returned is seated in the end, and in
// one match only, which is the one that was published.
func TestFailover(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})
	for _, test := range []struct {
		name string
		hurt func(*testing.T, *devstack.Process)
		heal func(*testing.T, *devstack.Process)
	}{
		{"killed", signal(os.Kill), func(t *testing.T, p *devstack.Process) {
			require.NoError(t, p.Restart(context.Background()))
		}},
		{"paused", signal(devstack.Pause), signal(devstack.GoOn)},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := newClient(t, stack.CoordAddrs)
			awaitWhole(t, client, stack)
			g := newFailoverGame(t, client)
			stop := g.start(t)
			done := make(chan struct{})
			go func() { defer close(done); g.playersCome() }()
			time.Sleep(500 * time.Millisecond)
			master := g.master(t, client, stack)
			test.hurt(t, master)
			time.Sleep(3 * time.Second) // the replica is promoted
			test.heal(t, master)
			<-done
			g.awaitSeated(t)
			require.NotEqual(t, master.Addr(), g.master(t, client, stack).Addr(), "no failover took place")
			stop()
			g.check(t)
		})
	}
}

func signal(s os.Signal) func(*testing.T, *devstack.Process) {
	return func(t *testing.T, p *devstack.Process) { require.NoError(t, p.Signal(s)) }
}

// awaitWhole waits until every node says that all is well, and every master has a replica.
func awaitWhole(t *testing.T, client *redis.ClusterClient, stack *devstack.Stack) {
	t.Helper()
	waittest.Until(t, func() bool {
		client.ReloadState(t.Context())
		for _, addr := range stack.CoordAddrs {
			node := redis.NewClient(&redis.Options{Addr: addr})
			info, err := node.Info(t.Context(), "replication").Result()
			nodes, err2 := node.ClusterNodes(t.Context()).Result()
			_ = node.Close()
			if err != nil || err2 != nil || strings.Contains(nodes, "fail") ||
				!strings.Contains(info, "state=online") && !strings.Contains(info, "master_link_status:up") {
				return false
			}
		}
		return true
	}, 40*time.Second, 100*time.Millisecond)
}

type failoverGame struct {
	store     *redismatch.Store
	queue     match.Queue
	lobby     *match.Lobby
	mu        sync.Mutex
	enqueued  []string            // whose Enqueue returned
	published map[string][]string // matches by ticket, as workers and supervisors were told
}

// newFailoverGame returns a game whose seats are on the node that has its queue.
func newFailoverGame(t *testing.T, client *redis.ClusterClient) *failoverGame {
	g := &failoverGame{store: newStore(t, client, nil), published: make(map[string][]string)}
	for {
		g.queue = match.Queue{Name: stacktest.UniqueName(t), Max: 2,
			Strategy: match.Window{Initial: match.MaxRating, Most: match.MaxRating}}
		a, err := client.MasterForKey(t.Context(), redismatch.Base(g.queue.Name+"/0"))
		require.NoError(t, err)
		b, err := client.MasterForKey(t.Context(), redismatch.PoolBase(g.queue.Name))
		require.NoError(t, err)
		if a == b {
			break
		}
	}
	lobby, err := match.NewLobby(g.store, g.queue)
	require.NoError(t, err)
	g.lobby = lobby
	_, err = g.store.Offer(t.Context(), g.queue.Name, match.Offer{Tile: 1, Epoch: 1, Contact: "a:1",
		Seats: match.MaxSeats}, time.Hour)
	require.NoError(t, err)
	return g
}

func (g *failoverGame) master(t *testing.T, client *redis.ClusterClient, stack *devstack.Stack) *devstack.Process {
	node, err := client.MasterForKey(t.Context(), redismatch.Base(g.queue.Name+"/0"))
	require.NoError(t, err)
	for _, p := range stack.Processes() {
		if p.Addr() == node.Options().Addr {
			return p
		}
	}
	require.Fail(t, "the master is no process of the stack")
	return nil
}

// start runs three workers and two supervisors.
func (g *failoverGame) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	seats, err := match.NewSeatAllocator(g.store, g.queue.Name, 10*time.Minute)
	require.NoError(t, err)
	hooks := match.Hooks{Finished: func(i match.FinishInfo) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if i.Err == nil {
			for _, ticket := range i.Match.Tickets {
				g.published[ticket.ID] = append(g.published[ticket.ID], i.Match.ID)
			}
		}
	}}
	for range 3 {
		w, err := match.NewWorker(g.store, seats, []match.Queue{g.queue},
			&match.WorkerConfig{Lease: time.Second, Batch: 20, Hooks: hooks})
		require.NoError(t, err)
		group.Go(func() error { return w.Run(ctx) })
	}
	for range 2 {
		s, err := match.NewSupervisor(g.store, seats, []match.Queue{g.queue},
			&match.SupervisorConfig{Period: 200 * time.Millisecond, Hooks: hooks})
		require.NoError(t, err)
		group.Go(func() error { return s.Run(ctx) })
	}
	return func() { cancel(); require.NoError(t, group.Wait()) }
}

// playersCome enqueues 400 tickets in four seconds. A player whose request fails asks again with the same ticket.
func (g *failoverGame) playersCome() {
	var players errgroup.Group
	for i := range 400 {
		players.Go(func() error {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			id := fmt.Sprint("t", i)
			ticket := match.Ticket{ID: id, Players: []match.Player{{ID: id}}}
			for {
				_, err := g.lobby.Enqueue(context.Background(), g.queue.Name, ticket)
				if err == nil {
					g.mu.Lock()
					g.enqueued = append(g.enqueued, id)
					g.mu.Unlock()
					return nil
				}
				if !errors.Is(err, fence.ErrUnknownOutcome) {
					return err
				}
			}
		})
	}
	if err := players.Wait(); err != nil {
		panic(err)
	}
}

func (g *failoverGame) awaitSeated(t *testing.T) {
	t.Helper()
	var d match.Depth
	waittest.Until(t, func() bool {
		var err error
		d, err = g.lobby.Depth(context.Background(), g.queue.Name)
		return err == nil && d.Seated == 400
	}, time.Minute, 100*time.Millisecond, "%+v", &d)
}

func (g *failoverGame) check(t *testing.T) {
	t.Helper()
	require.Len(t, g.enqueued, 400)
	partners := make(map[string]int)
	for _, id := range g.enqueued {
		st, err := g.lobby.Status(t.Context(), g.queue.Name, id)
		require.NoError(t, err, "lost")
		require.Equal(t, match.Seated, st.State)
		partners[st.Match]++
		for _, m := range g.published[id] { // by the worker, and perhaps by a supervisor too
			require.Equal(t, st.Match, m, "ticket %s was published in another match", id)
		}
	}
	for id, n := range partners {
		require.Equal(t, 2, n, "match %s", id)
	}
	d, err := g.lobby.Depth(t.Context(), g.queue.Name)
	require.NoError(t, err)
	require.Equal(t, d.Created, d.Seated, "%+v", d)
	require.Zero(t, d.Pending)
	tiles, err := g.store.Tiles(t.Context(), g.queue.Name)
	require.NoError(t, err)
	t.Logf("seats held: %d, of which for matches that were dissolved or forgotten: %d", tiles[0].Used,
		tiles[0].Used-400)
	require.GreaterOrEqual(t, tiles[0].Used, 400)
}
