package match_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLobby(t *testing.T, store match.Store, queues ...match.Queue) *match.Lobby {
	t.Helper()
	lobby, err := match.NewLobby(store, queues...)
	require.NoError(t, err)
	return lobby
}

// TestBadQueues: rules that cannot be kept are refused, with the field and what it takes.
func TestBadQueues(t *testing.T) {
	for field, queues := range map[string][]match.Queue{
		"Name":   {{Max: 2}, {Name: "a b", Max: 2}, {Name: "a{b}", Max: 2}, {Name: strings.Repeat("a", 65), Max: 2}},
		"Max":    {{Name: "q"}, {Name: "q", Max: -1}, {Name: "q", Max: match.MaxPlayers + 1}},
		"Target": {{Name: "q", Max: 4, Target: 5}, {Name: "q", Max: 4, Target: -1}},
		"Min":    {{Name: "q", Max: 4, Min: 5}, {Name: "q", Max: 4, Min: -1}},
		"Teams": {{Name: "q", Max: 5, Teams: 2}, {Name: "q", Max: 4, Teams: -1},
			{Name: "q", Max: 4, Teams: 2, Min: 3}},
		"Patience": {{Name: "q", Max: 4, Patience: -1}},
		"MaxWait":  {{Name: "q", Max: 4, MaxWait: -1}, {Name: "q", Max: 4, MaxWait: time.Microsecond}},
		"Shards":   {{Name: "q", Max: 4, Shards: 3}, {Name: "q", Max: 4, Shards: 2048}},
		"Roles": {{Name: "q", Max: 4, Roles: map[string]int{"a": 1}},
			{Name: "q", Max: 2, Roles: map[string]int{"a": 3, "b": -1}},
			{Name: "q", Max: 2, Min: 1, Roles: map[string]int{"a": 2}}},
	} {
		for _, q := range queues {
			_, err := match.NewLobby(memmatch.New(), q)
			var bad *fence.ArgumentError
			require.ErrorAs(t, err, &bad, "%+v", q)
			require.Equal(t, "Queue."+field, bad.Field, "%+v", q)
			require.NotEmpty(t, bad.Want)
		}
	}
	_, err := match.NewLobby(memmatch.New())
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewLobby(memmatch.New(), match.Queue{Name: "q", Max: 2}, match.Queue{Name: "q", Max: 3})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewLobby(nil, match.Queue{Name: "q", Max: 2})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestBadTickets: a ticket that could never be matched is refused at once.
func TestBadTickets(t *testing.T) {
	lobby := newLobby(t, memmatch.New(), match.Queue{Name: "duel", Max: 2, Teams: 2},
		match.Queue{Name: "trio", Max: 3, Roles: map[string]int{"tank": 1, "hit": 2}})
	one := []match.Player{{ID: "p"}}
	many := make(map[string]string)
	for i := range match.MaxAttributes + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, ticket := range map[string]match.Ticket{
		"no ID":              {Players: one},
		"ID with a space":    {ID: "a b", Players: one},
		"no players":         {ID: "a"},
		"too large a party":  {ID: "a", Players: []match.Player{{ID: "p"}, {ID: "q"}}},
		"rating":             {ID: "a", Players: one, Rating: match.MaxRating + 1},
		"unknown role":       {ID: "a", Players: []match.Player{{ID: "p", Role: "tank"}}},
		"many attributes":    {ID: "a", Players: one, Attributes: many},
		"large attribute":    {ID: "a", Players: one, Attributes: map[string]string{"a": strings.Repeat("a", 65)}},
		"backfill, no tile":  {ID: "a", Backfill: &match.Backfill{Open: 1}},
		"backfill, no seats": {ID: "a", Backfill: &match.Backfill{Tile: 1}},
		"backfill, players":  {ID: "a", Players: one, Backfill: &match.Backfill{Tile: 1, Open: 1}},
	} {
		_, err := lobby.Enqueue(t.Context(), "duel", ticket)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	for name, players := range map[string][]match.Player{
		"twice":         {{ID: "p"}, {ID: "p"}},
		"two tanks":     {{ID: "p", Role: "tank"}, {ID: "q", Role: "tank"}},
		"not that role": {{ID: "p", Role: "heal"}},
	} {
		_, err := lobby.Enqueue(t.Context(), "trio", match.Ticket{ID: "a", Players: players})
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err := lobby.Enqueue(t.Context(), "other", match.Ticket{ID: "a", Players: one})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = lobby.Status(t.Context(), "duel", "a b")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = lobby.Status(t.Context(), "duel", "a")
	require.ErrorIs(t, err, match.ErrUnknown)
	_, err = lobby.Cancel(t.Context(), "duel", "a")
	require.ErrorIs(t, err, match.ErrUnknown)
	require.ErrorIs(t, lobby.Watch(t.Context(), "duel", "a", nil), match.ErrUnknown)
}

// TestBadWorkers: settings are checked by the constructors.
func TestBadWorkers(t *testing.T) {
	store, queues := memmatch.New(), []match.Queue{{Name: "q", Max: 2}}
	seats, err := match.NewSeatAllocator(store, "p", 0)
	require.NoError(t, err)
	for _, cfg := range []match.WorkerConfig{{Name: "a b"}, {Lease: time.Millisecond}, {Lease: -1}, {Batch: 1},
		{Batch: 1001}, {Lease: -1}, {Drain: -1}} {
		_, err := match.NewWorker(store, seats, queues, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, "%+v", cfg)
	}
	_, err = match.NewWorker(store, nil, queues, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewWorker(nil, seats, queues, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewSupervisor(store, seats, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewSupervisor(store, seats, queues, &match.SupervisorConfig{Period: -1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewSeatAllocator(nil, "p", 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewSeatAllocator(store, "a b", 0)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = match.NewSeatAllocator(store, "p", time.Hour)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w, err := match.NewWorker(store, seats, queues, nil)
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.ErrorIs(t, w.Run(ctx), fence.ErrAlreadyRun)
	s, err := match.NewSupervisor(store, seats, queues, nil)
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx))
	require.ErrorIs(t, s.Run(ctx), fence.ErrAlreadyRun)
}

// TestQueueIsSplit: tickets from before the split are found, cannot be created twice, and are matched.
func TestQueueIsSplit(t *testing.T) {
	store := memmatch.New()
	before := newLobby(t, store, match.Queue{Name: "q", Max: 2})
	after := newLobby(t, store, match.Queue{Name: "q", Max: 2, Shards: 4})
	ticket := func(i int) match.Ticket {
		return match.Ticket{ID: fmt.Sprint("t", i), Players: []match.Player{{ID: fmt.Sprint("p", i)}}}
	}
	for i := range 20 {
		_, err := before.Enqueue(t.Context(), "q", ticket(i))
		require.NoError(t, err)
	}
	shards := make(map[string]int)
	for i := range 40 {
		st, err := after.Enqueue(t.Context(), "q", ticket(i))
		require.NoError(t, err)
		shards[st.Shard]++
		if i < 20 {
			require.Equal(t, "q/0", st.Shard)
		}
	}
	require.Len(t, shards, 4)
	d, err := after.Depth(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, 40, d.Created)
	st, err := after.Cancel(t.Context(), "q", "t3")
	require.NoError(t, err)
	require.Equal(t, match.Cancelled, st.State)
	list, err := after.List(t.Context(), "q", 100)
	require.NoError(t, err)
	require.Len(t, list, 39)
}

// TestWaitsEnd: a ticket that nobody fits times out after the wait that the game sets, and says so to who watches.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memmatch.New()
		q := match.Queue{Name: "q", Max: 2, MaxWait: time.Minute}
		lobby := newLobby(t, store, q)
		ctx, cancel := context.WithCancel(t.Context())
		seats, err := match.NewSeatAllocator(store, "p", 0)
		require.NoError(t, err)
		var looks, reclaims atomic.Int32
		w, err := match.NewWorker(store, seats, []match.Queue{q},
			&match.WorkerConfig{Hooks: match.Hooks{Looked: func(match.LookInfo) { looks.Add(1) }}})
		require.NoError(t, err)
		s, err := match.NewSupervisor(store, seats, []match.Queue{q},
			&match.SupervisorConfig{Hooks: match.Hooks{Reclaimed: func(match.ReclaimInfo) { reclaims.Add(1) }}})
		require.NoError(t, err)
		ended := make(chan error, 2)
		go func() { ended <- w.Run(ctx) }()
		go func() { ended <- s.Run(ctx) }()
		began := time.Now()
		for i, rating := range []int{1000, 3000} {
			_, err := lobby.Enqueue(ctx, "q", match.Ticket{ID: fmt.Sprint("t", i), Rating: rating,
				Players: []match.Player{{ID: fmt.Sprint("p", i)}}})
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Second)
		st, err := lobby.Status(ctx, "q", "t0")
		require.NoError(t, err)
		require.Equal(t, match.OutOfWindow, st.Why.Reason)
		require.Equal(t, 2000, st.Why.Nearest)
		require.InDelta(t, 150, st.Why.Window, 11)
		require.Contains(t, st.Why.String(), "2000 points away")
		var states []match.State
		require.NoError(t, lobby.Watch(ctx, "q", "t0", func(st match.Status) bool {
			states = append(states, st.State)
			return true
		}))
		require.Equal(t, match.TimedOut, states[len(states)-1])
		require.InDelta(t, time.Minute, time.Since(began), float64(5*time.Second+time.Second))
		require.Less(t, looks.Load(), int32(200), "a worker with nothing to match is idle")
		require.Greater(t, reclaims.Load(), int32(10))
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
}

// TestBackfillOfARunningBattle takes the same path as any other match, on the battle's own tile.
func TestBackfillOfARunningBattle(t *testing.T) {
	store := memmatch.New()
	q := match.Queue{Name: "q", Max: 4}
	lobby := newLobby(t, store, q)
	seats, err := match.NewSeatAllocator(store, "p", 0)
	require.NoError(t, err)
	for tile := range fence.TileID(3) {
		_, err := store.Offer(t.Context(), "p", match.Offer{Tile: tile + 1, Epoch: 1, Contact: "c", Seats: 4},
			time.Minute)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := match.NewWorker(store, seats, []match.Queue{q}, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	_, err = lobby.Enqueue(ctx, "q", match.Ticket{ID: "battle", Backfill: &match.Backfill{Tile: 2, Open: 2}})
	require.NoError(t, err)
	_, err = lobby.Enqueue(ctx, "q", match.Ticket{ID: "ann", Players: []match.Player{{ID: "ann"}}})
	require.NoError(t, err)
	for _, id := range []string{"ann", "battle"} {
		require.NoError(t, lobby.Watch(ctx, "q", id, func(st match.Status) bool {
			if st.State == match.Seated {
				require.EqualValues(t, 2, st.Assignment.Tile)
				require.Len(t, st.Assignment.Seats["ann"], 1)
			}
			return st.State != match.Seated
		}))
	}
	cancel()
	require.NoError(t, <-ended)
}

// far is a store at the other end of a network: a match that is dissolved takes as long as a call.
type far struct{ match.Backend }

func (f far) Dissolve(ctx context.Context, shard, id string, why match.Why) error {
	time.Sleep(2 * time.Millisecond)
	return f.Backend.Dissolve(ctx, shard, id, why)
}

// TestWorkersPauseWithoutSeats: while no tile has a seat, workers make matches a few times a second, not as fast as the
// store dissolves them.
func TestWorkersPauseWithoutSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tickets, workers, long = 40, 2, 2 * time.Second
		store := far{memmatch.New()}
		queue := match.Queue{Name: "q", Max: 2, Strategy: match.Batch{}}
		lobby, err := match.NewLobby(store, queue)
		require.NoError(t, err)
		seats, err := match.NewSeatAllocator(store, "q", 0)
		require.NoError(t, err)
		for i := range tickets {
			id := fmt.Sprint("t", i)
			_, err := lobby.Enqueue(t.Context(), "q", match.Ticket{ID: id, Players: []match.Player{{ID: id}}})
			require.NoError(t, err)
		}
		var dissolved atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		hooks := match.Hooks{Finished: func(match.FinishInfo) { dissolved.Add(1) }}
		done := make(chan error, workers)
		for range workers {
			w, err := match.NewWorker(store, seats, []match.Queue{queue}, &match.WorkerConfig{Hooks: hooks})
			require.NoError(t, err)
			go func() { done <- w.Run(ctx) }()
		}
		for range workers {
			require.NoError(t, <-done)
		}
		t.Log("dissolved", dissolved.Load())
		require.Positive(t, dissolved.Load())
		// At most every 250 ms each worker looks twice, the second time while the first look's matches are dissolved.
		require.LessOrEqual(t, dissolved.Load(), int64(workers*2*(tickets/2)*int(long/(250*time.Millisecond)+1)))
		d, err := lobby.Depth(t.Context(), "q")
		require.NoError(t, err)
		require.EqualValues(t, tickets, d.Waiting)
	})
}
