package matchtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// faulty is the store as one worker reaches it.
type faulty struct {
	match.Backend
	mode  atomic.Int32
	calls atomic.Int32
}

// The ways in which a worker fails.
const (
	well       int32 = iota
	dead             // no call is sent any more, and none returns
	paused           // calls are sent when the pause ends
	cutOff           // calls are not sent, and fail
	answerLost       // calls are sent, and fail
)

var errCut = &fence.StoreError{Op: "test", Outcome: fence.ErrUnknownOutcome, Err: errors.New("connection lost")}

// through runs a call as the fault says.
func (f *faulty) through(ctx context.Context, call func() error) error {
	f.calls.Add(1)
	switch f.mode.Load() {
	case dead:
		<-ctx.Done()
		return ctx.Err()
	case paused:
		for f.mode.Load() == paused && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	case cutOff:
		return errCut
	case answerLost:
		_ = call()
		return errCut
	}
	return call()
}

func (f *faulty) Claim(ctx context.Context, shard string, c match.Claim) (h match.Holding, err error) {
	err = f.through(ctx, func() error { h, err = f.Backend.Claim(ctx, shard, c); return err })
	return h, err
}

func (f *faulty) Heartbeat(ctx context.Context, shard string, e match.Epoch, lease time.Duration) error {
	return f.through(ctx, func() error { return f.Backend.Heartbeat(ctx, shard, e, lease) })
}

func (f *faulty) Record(ctx context.Context, shard string, e match.Epoch, m []match.Match) (r []error, err error) {
	err = f.through(ctx, func() error { r, err = f.Backend.Record(ctx, shard, e, m); return err })
	return r, err
}

func (f *faulty) Release(ctx context.Context, shard string, e match.Epoch, u []match.Unmatched) (n uint64, err error) {
	err = f.through(ctx, func() error { n, err = f.Backend.Release(ctx, shard, e, u); return err })
	return n, err
}

func (f *faulty) Publish(ctx context.Context, shard string, a []match.Assignment) (r []error, err error) {
	err = f.through(ctx, func() error { r, err = f.Backend.Publish(ctx, shard, a); return err })
	return r, err
}

func (f *faulty) Allocate(
	ctx context.Context, pool string, o []match.Order, hold time.Duration,
) (a []match.Allocation, err error) {
	err = f.through(ctx, func() error { a, err = f.Backend.Allocate(ctx, pool, o, hold); return err })
	return a, err
}

// queue is one against one, without regard to rating.
func (s scene) queue() match.Queue {
	return match.Queue{Name: s.pool, Max: 2, Strategy: match.Window{Initial: match.MaxRating, Most: match.MaxRating}}
}

// play runs something until the scene ends.
func (s scene) play(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			s.Errorf("%v", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	s.Cleanup(stop)
	return stop
}

// allocator is a SeatAllocator on the scene's pool, through a store that may fail.
func (s scene) allocator(seats match.Seats, hold time.Duration) *match.SeatAllocator {
	s.Helper()
	a, err := match.NewSeatAllocator(seats, s.pool, hold)
	require.NoError(s, err)
	return a
}

const testLease = 200 * time.Millisecond

func (s scene) worker(seats match.Allocator, store match.Store) *match.Worker {
	s.Helper()
	return s.workerOf(seats, store, testLease, time.Second)
}

func (s scene) workerOf(seats match.Allocator, store match.Store, lease, drain time.Duration) *match.Worker {
	s.Helper()
	w, err := match.NewWorker(store, seats, []match.Queue{s.queue()}, &match.WorkerConfig{Lease: lease, Batch: 8,
		Drain: drain})
	require.NoError(s, err)
	return w
}

func (s scene) supervisor(hold time.Duration) {
	s.Helper()
	sup, err := match.NewSupervisor(s.Backend, s.allocator(s.Backend, hold), []match.Queue{s.queue()},
		&match.SupervisorConfig{Period: 30 * time.Millisecond})
	require.NoError(s, err)
	s.play(sup.Run)
}

// workersDie: four workers and two supervisors match players who keep coming, while workers die, pause past their
// lease, and lose requests and answers. Every ticket gets one match and one seat.
func workersDie(s scene) {
	const players = 240
	for tile := range 3 {
		s.offer(fence.TileID(tile+1), players, long)
	}
	s.supervisor(minutes)
	s.supervisor(minutes)
	good := &faulty{Backend: s.Backend}
	s.play(s.worker(s.allocator(good, minutes), good).Run)
	var bad []*faulty
	for range 3 {
		f := &faulty{Backend: s.Backend}
		bad = append(bad, f)
		s.play(s.worker(s.allocator(f, minutes), f).Run)
	}
	modes := []int32{paused, cutOff, answerLost, dead}
	for i := range players {
		_, err := s.Enqueue(s.Context(), s.shard, solo(fmt.Sprint("t", i), i), waits(long))
		require.NoError(s, err)
		if i%6 == 0 { // one of them fails, for a while in which its lease ends or does not
			time.Sleep(20 * time.Millisecond)
			f := bad[i/6%len(bad)]
			if f.mode.Load() != dead {
				f.mode.Store(well)
				if i > players/6 {
					f.mode.Store(modes[(i/6/len(bad))%3])
				}
				if i > players*3/4 && f == bad[0] {
					f.mode.Store(dead)
				}
			}
		}
	}
	for _, f := range bad[1:] {
		f.mode.Store(well)
	}
	s.awaitSeated(players)
	for _, f := range bad {
		require.NotZero(s, f.calls.Load(), "a worker that did nothing proves nothing")
	}
}

// awaitSeated waits until every ticket t0, t1, … is seated, and counts: each has one match, each match its
// tickets, and the tiles as many seats as there are players.
func (s scene) awaitSeated(players int) {
	s.Helper()
	waittest.Until(s, func() bool {
		d, err := s.Depth(context.Background(), s.shard)
		return err == nil && d.Seated == uint64(players) && d.Pending == 0
	}, 3*time.Minute, 20*time.Millisecond)
	matches, seats := make(map[string]int), make(map[string]bool)
	for i := range players {
		id := fmt.Sprint("t", i)
		st := s.status(id)
		require.Equal(s, match.Seated, st.State, id)
		require.NotNil(s, st.Assignment, id)
		require.Equal(s, st.Match, st.Assignment.Match)
		require.Len(s, st.Assignment.Seats[id], 1)
		seat := fmt.Sprint(st.Assignment.Tile, "/", st.Assignment.Seats[id][0])
		require.False(s, seats[seat], "seat %s twice", seat)
		seats[seat] = true
		matches[st.Match]++
	}
	for id, n := range matches {
		require.Equal(s, 2, n, "match %s", id)
	}
	list, err := s.Tiles(s.Context(), s.pool)
	require.NoError(s, err)
	used := 0
	for _, l := range list {
		used += l.Used
	}
	require.Equal(s, players, used)
	d := s.depth()
	require.EqualValues(s, players, d.Created)
	require.Zero(s, d.Claimed+d.Matched)
}

// workersNoSeat: tickets wait and say so while there is no seat, and are matched when there is one.
func workersNoSeat(s scene) {
	s.enqueue(4)
	s.supervisor(minutes)
	s.play(s.worker(s.allocator(s.Backend, minutes), s.Backend).Run)
	waittest.Until(s, func() bool {
		for i := range 4 {
			if s.status(fmt.Sprint("t", i)).Why.Reason != match.NoSeat {
				return false
			}
		}
		return true
	}, 10*time.Second, 10*time.Millisecond)
	s.offer(1, 2, long)
	waittest.Until(s, func() bool { return s.depth().Seated == 2 }, 10*time.Second, 10*time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	require.EqualValues(s, 2, s.depth().Seated, "two seats, two players")
	s.offer(2, 2, long)
	s.awaitSeated(4)
}

// workersLapse: players who do not come lose their seats and are matched again; players who came are not.
func workersLapse(s scene) {
	const hold = 150 * time.Millisecond
	s.enqueue(4)
	s.offer(1, 4, long)
	s.supervisor(hold)
	s.supervisor(hold)
	lobby, err := match.NewLobby(s.Backend, s.queue())
	require.NoError(s, err)
	s.play(s.worker(s.allocator(s.Backend, hold), s.Backend).Run)
	came := make(map[string]string)
	var lost int
	err = lobby.Watch(s.Context(), s.pool, "t0", func(st match.Status) bool {
		if st.State == match.Seated && came["t0"] == "" {
			if s.Take(s.Context(), s.pool, st.Match, "t0") == nil {
				came["t0"] = st.Match
			}
		}
		return came["t0"] == ""
	})
	require.NoError(s, err)
	err = lobby.Watch(s.Context(), s.pool, "t1", func(st match.Status) bool {
		if st.Why.Reason == match.SeatLapsed && st.State != match.Seated {
			lost++
		}
		return lost == 0
	})
	require.NoError(s, err)
	st, err := lobby.Cancel(s.Context(), s.pool, "t1")
	require.NoError(s, err)
	// On a busy machine it may have lapsed as often as it may by now.
	require.Contains(s, []match.State{match.Cancelled, match.TimedOut}, st.State)
	time.Sleep(3 * hold)
	require.Equal(s, came["t0"], s.status("t0").Match)
	require.Equal(s, match.Seated, s.state("t0"))
	require.LessOrEqual(s, s.used(1), 4)
}

// hundredDie: a hundred workers die with a claim in hand, at four points: before they recorded a match, after it, after
// it was allocated, and in the middle of recording, so that the outcome is unknown. No ticket is lost or doubled.
func hundredDie(s scene) {
	const kills = 100
	s.offer(1, 4*kills, long)
	s.supervisor(minutes)
	s.supervisor(minutes)
	died := 0
	for k := 0; died < kills && s.Context().Err() == nil; k++ {
		if k < kills {
			for i := range 4 {
				_, err := s.Enqueue(s.Context(), s.shard, solo(fmt.Sprint("t", 4*k+i), 4*k+i), waits(long))
				require.NoError(s, err)
			}
		}
		h := s.claim(0, short, 8)
		if len(h.Tickets) < 2 { // the others are dead, and have not been noticed yet
			require.NoError(s, s.Leave(s.Context(), s.shard, h.Epoch))
			time.Sleep(short / 2)
			continue
		}
		if died++; died%4 == 0 {
			continue
		}
		m := match.Match{ID: fmt.Sprint("victim-", k), Shard: s.shard, Tickets: []match.Ticket{h.Tickets[0].Ticket,
			h.Tickets[1].Ticket}}
		ctx, cancel := context.WithTimeout(s.Context(), time.Duration(died%4)*time.Second)
		if died%4 == 1 {
			time.AfterFunc(100*time.Microsecond, cancel)
		}
		_, _ = s.Record(ctx, s.shard, h.Epoch, []match.Match{m})
		cancel()
		if died%4 == 2 {
			s.allocator(s.Backend, minutes).Allocate(s.Context(), []match.Match{m})
		}
	}
	s.play(s.worker(s.allocator(s.Backend, minutes), s.Backend).Run) // a survivor
	s.awaitSeated(int(s.depth().Created))
}

// workersDrain: a worker whose context ends finishes what it has, and leaves nothing behind.
func workersDrain(s scene) {
	s.offer(1, 1000, long)
	slow := &slowSeats{Allocator: s.allocator(s.Backend, minutes), asked: make(chan struct{}, 1000)}
	stop := s.play(s.workerOf(slow, s.Backend, long, long).Run)
	s.enqueue(200)
	<-slow.asked
	stop()
	d := s.depth()
	require.Zero(s, d.Claimed+d.Matched+d.Pending+d.Workers, "%+v", d)
	require.NotZero(s, d.Seated)
	require.EqualValues(s, 200, d.Seated+d.Waiting)
}

// slowSeats takes its time to allocate.
type slowSeats struct {
	match.Allocator
	asked chan struct{}
}

func (a *slowSeats) Allocate(ctx context.Context, matches []match.Match) []match.Allocation {
	a.asked <- struct{}{}
	time.Sleep(20 * time.Millisecond)
	return a.Allocator.Allocate(ctx, matches)
}
