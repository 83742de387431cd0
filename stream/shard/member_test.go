package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
	"github.com/tilefence/tilefence/stream/shard/memshard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = shard.DefaultTTL

func ranges(t testing.TB, n int) shard.Ranges {
	t.Helper()
	cuts := make([]fence.TileID, n-1)
	for i := range cuts {
		cuts[i] = fence.TileID(i+1) * 1000
	}
	r, err := shard.NewRanges(cuts...)
	require.NoError(t, err)
	return r
}

// site is where the shards are: who works on which.
type site struct {
	t    *testing.T
	need int // shards

	mu      sync.Mutex
	workers map[int]map[string]bool
	double  int // times that two worked on a shard
	strict  bool
	events  []string
}

func newSite(t *testing.T, shards int) *site {
	return &site{t: t, need: shards, workers: map[int]map[string]bool{}, strict: true}
}

// worker is a member's Handler.
type worker struct {
	site *site
	name string
	dead bool // its process was killed: what it does is not done

	slowGain, slowLoss time.Duration
	deaf               bool // Lost does not obey its context
}

func (w *worker) Gained(s int, token shard.Token) {
	time.Sleep(w.slowGain)
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	if w.dead {
		return
	}
	if w.site.workers[s] == nil {
		w.site.workers[s] = map[string]bool{}
	}
	require.False(w.site.t, w.site.workers[s][w.name], "%s gained shard %d twice", w.name, s)
	require.NotZero(w.site.t, token)
	w.site.workers[s][w.name] = true
	if len(w.site.workers[s]) > 1 {
		w.site.double++
		require.False(w.site.t, w.site.strict, "shard %d has two workers: %v", s, w.site.workers[s])
	}
	w.site.events = append(w.site.events, fmt.Sprintf("%s+%d", w.name, s))
}

func (w *worker) Lost(ctx context.Context, s int) {
	if w.deaf {
		time.Sleep(w.slowLoss)
	} else {
		select {
		case <-ctx.Done():
		case <-time.After(w.slowLoss):
		}
	}
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	if w.dead {
		return
	}
	require.True(w.site.t, w.site.workers[s][w.name], "%s lost shard %d, which it did not have", w.name, s)
	delete(w.site.workers[s], w.name)
	w.site.events = append(w.site.events, fmt.Sprintf("%s-%d", w.name, s))
}

// kill ends the work of a process that was killed.
func (w *worker) kill() {
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	w.dead = true
	for _, at := range w.site.workers {
		delete(at, w.name)
	}
}

func (s *site) covered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.need {
		if len(s.workers[i]) != 1 {
			return false
		}
	}
	return true
}

func (s *site) loads(of ...string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	loads := map[string]int{}
	for _, name := range of {
		loads[name] = 0
	}
	for _, at := range s.workers {
		for name := range at {
			loads[name]++
		}
	}
	return loads
}

func (s *site) history() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.events...)
}

// link is a member's way to the store, which can be cut.
type link struct {
	shard.Leases
	mu   sync.Mutex
	hang bool
	fail error
}

func (l *link) Sync(ctx context.Context, r shard.Request) (shard.Reply, error) {
	l.mu.Lock()
	hang, fail := l.hang, l.fail
	l.mu.Unlock()
	if hang {
		<-ctx.Done()
		return shard.Reply{}, context.Cause(ctx)
	}
	if fail != nil {
		return shard.Reply{}, fail
	}
	return l.Leases.Sync(ctx, r)
}

func (l *link) set(hang bool, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang, l.fail = hang, fail
}

var errAway = errors.New("the store is away")

// process is a member that runs.
type process struct {
	*shard.Member
	worker *worker
	link   *link
	stop   context.CancelFunc
	done   chan error
}

func start(t *testing.T, s *site, leases shard.Leases, name string, cfg *shard.MemberConfig, change ...func(*worker)) *process {
	t.Helper()
	p := &process{worker: &worker{site: s, name: name}, link: &link{Leases: leases}, done: make(chan error, 1)}
	for _, f := range change {
		f(p.worker)
	}
	if cfg == nil {
		cfg = &shard.MemberConfig{}
	}
	cfg.Name = name
	var err error
	p.Member, err = shard.NewMember(p.link, "test", ranges(t, s.need), p.worker, cfg)
	require.NoError(t, err)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() { p.done <- p.Run(ctx) }()
	return p
}

func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	require.NoError(t, <-p.done)
}

// kill is SIGKILL: nothing of it is seen any more.
func (p *process) kill() {
	p.worker.kill()
	p.link.set(true, nil)
	p.stop()
}

// TestMembersShare: three members share, each shard has one worker all the time, and nothing moves that
// need not.
func TestMembersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 12), memshard.New()
		one := start(t, s, store, "one", nil)
		synctest.Wait()
		require.True(t, s.covered(), "the first takes all at once")
		two := start(t, s, store, "two", nil)
		time.Sleep(ttl)
		require.Equal(t, map[string]int{"one": 6, "two": 6}, s.loads())
		three := start(t, s, store, "three", nil)
		time.Sleep(ttl)
		require.Equal(t, map[string]int{"one": 4, "two": 4, "three": 4}, s.loads())
		require.True(t, s.covered())
		before := len(s.history())
		time.Sleep(time.Hour)
		require.Len(t, s.history(), before)
		stats := one.Stats()
		require.Equal(t, 4, stats.Held)
		require.Equal(t, 3, stats.Holders)
		require.EqualValues(t, 12, stats.Gained)
		require.EqualValues(t, 8, stats.Lost)
		require.Zero(t, stats.Failed)
		require.Len(t, one.Held(), 4)
		for _, p := range []*process{one, two, three} {
			p.end(t)
			time.Sleep(ttl)
			require.Zero(t, s.loads()[p.worker.name])
		}
		require.Zero(t, s.double)
	})
}

// TestTakeover: the shards of a member that was killed are with the others after its TTL and a heartbeat.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for offset := range 10 {
			s, store := newSite(t, 8), memshard.New()
			one, two, three := start(t, s, store, "one", nil), start(t, s, store, "two", nil), start(t, s, store, "three", nil)
			time.Sleep(2*ttl + time.Duration(offset)*ttl/30)
			require.True(t, s.covered())
			three.kill()
			began := time.Now()
			for !s.covered() {
				time.Sleep(time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(began), ttl+ttl/3+time.Millisecond)
			require.Equal(t, map[string]int{"one": 4, "two": 4}, s.loads())
			one.end(t)
			two.end(t)
			<-three.done
		}
	})
}

// TestLeave: a planned leave hands over with the next heartbeat of the others.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 8), memshard.New()
		one, two := start(t, s, store, "one", nil), start(t, s, store, "two", nil)
		time.Sleep(2 * ttl)
		began := time.Now()
		two.end(t)
		require.Zero(t, time.Since(began), "with nothing to wait for, it is immediate")
		for !s.covered() {
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), ttl/3+time.Millisecond)
		one.end(t)
	})
}

// TestLostIsFinishedFirst: the lease is released when Lost has returned, not before; unless that takes
// longer than LostTimeout.
func TestLostIsFinishedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 2), memshard.New()
		cfg := &shard.MemberConfig{LostTimeout: 10 * time.Second}
		one := start(t, s, store, "one", cfg, func(w *worker) { w.slowLoss = 8 * time.Second })
		synctest.Wait()
		two := start(t, s, store, "two", nil)
		time.Sleep(8 * time.Second)
		require.Equal(t, 2, s.loads()["one"], "still at it, and the site is strict")
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, s.loads())
		two.end(t)
		time.Sleep(ttl)
		require.Zero(t, one.Stats().Overdue)

		s.mu.Lock()
		one.worker.slowLoss, one.worker.deaf, s.strict = time.Minute, true, false
		s.mu.Unlock()
		two = start(t, s, store, "two", nil)
		time.Sleep(8 * time.Second)
		require.Equal(t, map[string]int{"one": 2}, s.loads())
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, s.loads()["two"], "one that does not cease is not waited for")
		require.EqualValues(t, 1, one.Stats().Overdue)
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, s.loads())
		s.mu.Lock()
		one.worker.slowLoss = 0
		s.mu.Unlock()
		one.end(t)
		two.end(t)
	})
}

// TestSlowHandlerCostsNoLease: heartbeats go on while the Handler works.
func TestSlowHandlerCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 4), memshard.New()
		one := start(t, s, store, "one", nil, func(w *worker) { w.slowGain = 10 * ttl })
		synctest.Wait()
		two := start(t, s, store, "two", nil)
		time.Sleep(30 * ttl)
		require.Equal(t, map[string]int{"one": 2, "two": 2}, s.loads())
		require.EqualValues(t, 2, two.Stats().Gained)
		one.end(t)
		two.end(t)
	})
}

// TestOutage: while the store is away everybody keeps what he has, and afterwards nothing has moved,
// however long it was and whoever is heard first.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 9), memshard.New()
		members := []*process{start(t, s, store, "one", nil), start(t, s, store, "two", nil), start(t, s, store, "three", nil)}
		time.Sleep(2 * ttl)
		before := s.history()
		for round, length := range []time.Duration{ttl / 2, 2 * ttl, time.Hour} {
			for _, p := range members {
				p.link.set(round%2 == 0, errAway)
			}
			time.Sleep(length)
			require.True(t, s.covered())
			if round == 2 {
				store.Forget() // it has lost its memory, too
			}
			for _, i := range rand.Perm(len(members)) {
				members[i].link.set(false, nil)
				time.Sleep(ttl / 10)
			}
			time.Sleep(2 * ttl)
			require.Equal(t, before, s.history())
		}
		require.Positive(t, members[0].Stats().Failed)
		for _, p := range members {
			p.end(t)
		}
	})
}

// TestStandDown: on demand, a member gives up when the store has been silent for long enough, takes
// nothing while it is, and comes back with it.
func TestStandDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 4), memshard.New()
		var failures atomic.Int32
		p := start(t, s, store, "one", &shard.MemberConfig{StandDownAfter: 5 * ttl, Failed: func(error) { failures.Add(1) }})
		synctest.Wait()
		p.link.set(false, errAway)
		time.Sleep(5*ttl - ttl/2)
		require.True(t, s.covered())
		time.Sleep(ttl)
		require.Empty(t, s.loads())
		require.Positive(t, failures.Load())
		p.link.set(false, nil)
		time.Sleep(2 * ttl)
		require.True(t, s.covered())
		p.end(t)
	})
}

// TestCutOff: a member that cannot reach the store, while others can, keeps working until it learns that
// it was replaced, which is at its next answered heartbeat.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 4), memshard.New()
		one, two := start(t, s, store, "one", nil), start(t, s, store, "two", nil)
		time.Sleep(2 * ttl)
		s.mu.Lock()
		s.strict = false
		s.mu.Unlock()
		one.link.set(true, nil)
		time.Sleep(2 * ttl)
		require.Equal(t, map[string]int{"one": 2, "two": 4}, s.loads(), "availability: better twice than not at all")
		one.link.set(false, nil)
		time.Sleep(2 * ttl)
		require.Equal(t, map[string]int{"one": 2, "two": 2}, s.loads())
		require.True(t, s.covered())
		one.end(t)
		two.end(t)
	})
}

// TestOtherRanges: a member whose ranges are not the group's is refused, and works on nothing.
func TestOtherRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 4), memshard.New()
		one := start(t, s, store, "one", nil)
		synctest.Wait()
		other, err := shard.NewMember(store, "test", ranges(t, 5), &worker{site: s, name: "other"}, nil)
		require.NoError(t, err)
		var refused *shard.RangesError
		require.ErrorAs(t, other.Run(t.Context()), &refused)
		require.Equal(t, 4, refused.CurrentShards)
		require.Equal(t, map[string]int{"one": 4}, s.loads())

		// The group is divided anew while one cannot see it: one gives up.
		one.link.set(true, nil)
		store.Forget()
		s2 := newSite(t, 5)
		two := start(t, s2, store, "two", nil)
		time.Sleep(2 * ttl)
		require.True(t, s2.covered())
		one.link.set(false, nil)
		require.ErrorAs(t, <-one.done, &refused)
		require.Empty(t, s.loads())
		two.end(t)
	})
}

// TestJoin: who comes has its share after one heartbeat of who has it now, and a short one of its own.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for offset := range 12 {
			s, store := newSite(t, 8), memshard.New()
			one := start(t, s, store, "one", nil)
			time.Sleep(ttl + time.Duration(offset)*ttl/36)
			began := time.Now()
			two := start(t, s, store, "two", nil)
			for s.loads()["two"] < 4 {
				time.Sleep(time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(began), ttl/3+ttl/12+2*time.Millisecond)
			one.end(t)
			two.end(t)
		}
	})
}

// scripted is a store that says what it is told to, once each, and then the last for ever.
type scripted struct {
	mu      sync.Mutex
	replies []shard.Reply
	last    shard.Request
}

func (s *scripted) Sync(_ context.Context, r shard.Request) (shard.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = r
	reply := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	if r.Leaving {
		reply = shard.Reply{}
	}
	return reply, nil
}

// TestAnotherLease: a shard that was lost and granted again is lost and gained, also when the member did
// not hear of it in between, or was still losing it.
func TestAnotherLease(t *testing.T) {
	holds := func(token shard.Token) shard.Reply {
		return shard.Reply{Held: []shard.Grant{{Lease: shard.Lease{Token: token}}}, Share: 1, Holders: 1}
	}
	for _, slow := range []time.Duration{0, ttl} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 1)
			store := &scripted{replies: []shard.Reply{holds(1), holds(5), holds(5), {}, holds(7)}}
			p := start(t, s, store, "one", nil, func(w *worker) { w.slowLoss = slow })
			time.Sleep(10 * ttl)
			require.Equal(t, []shard.Lease{{Shard: 0, Token: 7}}, p.Held())
			gained := 3
			if slow > 0 {
				gained = 2 // the second was over before work on the first had ceased
			}
			require.Len(t, s.history(), 2*gained-1)
			require.EqualValues(t, gained, p.Stats().Gained)
			store.mu.Lock()
			require.Equal(t, []shard.Lease{{Shard: 0, Token: 7}}, store.last.Held)
			store.mu.Unlock()
			p.end(t)
		})
	}
}

// TestMemberAgain: a Member runs once at a time, and again as a new holder.
func TestMemberAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 3), memshard.New()
		p := start(t, s, store, "one", nil)
		synctest.Wait()
		require.ErrorIs(t, p.Run(t.Context()), shard.ErrRunning)
		p.end(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, p.Run(ctx))
		require.Len(t, s.history(), 12)
	})
}

// TestDrainWithoutStore: a member whose store hangs ends all the same.
func TestDrainWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newSite(t, 3), memshard.New()
		p := start(t, s, store, "one", nil)
		synctest.Wait()
		p.link.set(true, nil)
		began := time.Now()
		p.end(t)
		require.Equal(t, shard.DefaultDrainTimeout, time.Since(began))
		require.Empty(t, s.loads())
	})
}

func TestMemberArguments(t *testing.T) {
	store, w := memshard.New(), &worker{}
	try := func(leases shard.Leases, group string, h shard.Handler, cfg *shard.MemberConfig) {
		t.Helper()
		_, err := shard.NewMember(leases, group, shard.Ranges{}, h, cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	try(nil, "g", w, nil)
	try(store, "g", nil, nil)
	try(store, "", w, nil)
	for _, cfg := range []shard.MemberConfig{{TTL: 1}, {TTL: -1}, {TTL: 2 * time.Hour}, {LostTimeout: -1}, {DrainTimeout: -1},
		{StandDownAfter: -1}, {Name: string(make([]byte, 201))}} {
		try(store, "g", w, &cfg)
	}
}

// TestMembersRandom lets members come, leave and be killed, be cut off, and the store be away or lose its
// memory. While all that live can reach the store, no shard has two workers; in the end every shard has
// one, and the loads are even.
func TestMembersRandom(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("TILEFENCE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("repeat with: TILEFENCE_SEED=%d go test -run '%s'", seed, t.Name())
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		synctest.Test(t, func(t *testing.T) { randomMembers(t, rng) })
	}
}

func randomMembers(t *testing.T, rng *rand.Rand) {
	s, store := newSite(t, 1+rng.IntN(20)), memshard.New()
	faults := rng.IntN(2) == 0 // of the store; else only members come and go
	s.strict = !faults
	var members, dead []*process
	for n := range 60 {
		pick := rng.IntN(max(len(members), 1))
		switch op := rng.IntN(20); {
		case len(members) < 2 || op < 5 && len(members) < 7:
			members = append(members, start(t, s, store, fmt.Sprint("m", n), nil, func(w *worker) {
				w.slowGain, w.slowLoss = within(rng, time.Second), within(rng, ttl/2)
			}))
		case op < 8:
			members[pick].end(t)
			members = append(members[:pick], members[pick+1:]...)
		case op < 11:
			members[pick].kill()
			dead = append(dead, members[pick])
			members = append(members[:pick], members[pick+1:]...)
		case op < 14 && faults:
			members[pick].link.set(rng.IntN(2) == 0, errAway)
		case op < 15 && faults:
			for _, p := range members {
				p.link.set(rng.IntN(2) == 0, errAway)
			}
			time.Sleep(within(rng, 4*ttl))
		case op < 16 && faults:
			store.Forget()
		default:
			for _, p := range members {
				p.link.set(false, nil)
			}
		}
		time.Sleep(within(rng, 2*ttl))
	}
	for _, p := range members {
		p.link.set(false, nil)
	}
	time.Sleep(time.Minute) // two TTLs, and what slow handlers take
	require.True(t, s.covered(), "%v", s.loads())
	var names []string
	for _, p := range members {
		names = append(names, p.worker.name)
	}
	least, most := s.need, 0
	for _, n := range s.loads(names...) {
		least, most = min(least, n), max(most, n)
	}
	require.LessOrEqual(t, most-least, 1)
	for _, p := range members {
		p.end(t)
	}
	for _, p := range dead {
		<-p.done
	}
}

func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}
