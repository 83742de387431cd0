package share_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/sharetest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/share"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 3 * time.Second

func TestMemory(t *testing.T) {
	sharetest.Run(t, func(*testing.T) sharetest.Backend {
		var mu sync.Mutex
		var ahead time.Duration
		m := share.NewMemoryWithClock(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		})
		age := func(_ string, by time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ahead += by
		}
		return sharetest.Backend{Members: m, Age: age, Lose: m.Forget}
	})
}

// TestMemberOf pins the scores, which are part of the wire contract.
func TestMemberOf(t *testing.T) {
	names := []string{"bridge-a", "bridge-b", "bridge-c"}
	var got []string
	for tile := range fence.TileID(8) {
		got = append(got, share.MemberOf(names, 0x85283473fffffff+tile<<30))
	}
	require.Equal(t, []string{"bridge-a", "bridge-b", "bridge-a", "bridge-c", "bridge-a", "bridge-c", "bridge-a",
		"bridge-b"}, got)
	require.Empty(t, share.MemberOf(nil, 1))
}

// TestScoresAreFairAndMoveLittle: each of n members has about one n-th of the tiles, and one that comes or goes moves
// only what it takes or had.
func TestScoresAreFairAndMoveLittle(t *testing.T) {
	const tiles = 20_000
	var names []string
	before := map[fence.TileID]string{}
	for n := 1; n <= 20; n++ {
		added := fmt.Sprintf("member-%016x", rand.Uint64())
		names = append(names, added)
		slices.Sort(names)
		count := map[string]int{}
		for i := range fence.TileID(tiles) {
			tile := 0x85283473fffffff + i<<20
			m := share.MemberOf(names, tile)
			count[m]++
			require.True(t, n == 1 || m == before[tile] || m == added)
			before[tile] = m
		}
		p := 1 / float64(n)
		for _, c := range count { // seven standard deviations
			require.InDelta(t, tiles*p, c, 7*math.Sqrt(tiles*p*(1-p)))
		}
	}
}

// target is a Target that notes what it has.
type target struct {
	mu     sync.Mutex
	has    map[fence.TileID]bool
	refuse error
	events int // tiles added and removed
}

func (g *target) Add(tiles ...fence.TileID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return g.refuse
	}
	for _, t := range tiles {
		g.has[t] = true
	}
	g.events += len(tiles)
	return nil
}

func (g *target) Remove(tiles ...fence.TileID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range tiles {
		delete(g.has, t)
	}
	g.events += len(tiles)
}

func (g *target) set(refuse error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = refuse
}

func (g *target) tiles() (tiles []fence.TileID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.has {
		tiles = append(tiles, t)
	}
	slices.Sort(tiles)
	return tiles
}

func (g *target) moved() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.events
}

// link is a member's way to the list, which can be cut.
type link struct {
	share.Members
	mu   sync.Mutex
	hang bool
	fail error
}

func (l *link) broken(ctx context.Context) error {
	l.mu.Lock()
	hang, fail := l.hang, l.fail
	l.mu.Unlock()
	if hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return fail
}

func (l *link) Beat(ctx context.Context, group, member string, ttl time.Duration) ([]string, bool, error) {
	if err := l.broken(ctx); err != nil {
		return nil, false, err
	}
	return l.Members.Beat(ctx, group, member, ttl)
}

func (l *link) Leave(ctx context.Context, group, member string) error {
	if err := l.broken(ctx); err != nil {
		return err
	}
	return l.Members.Leave(ctx, group, member)
}

func (l *link) set(hang bool, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang, l.fail = hang, fail
}

var errAway = errors.New("the list is away")

// process is a member that runs.
type process struct {
	*share.Share
	target *target
	link   *link
	stop   context.CancelFunc
	done   chan error
}

func start(t *testing.T, members share.Members, list share.Lister, cfg *share.Config) *process {
	t.Helper()
	way, cut := members.(*link) // that may be cut before anything runs
	if !cut {
		way = &link{Members: members}
	}
	p := &process{target: &target{has: map[fence.TileID]bool{}}, link: way, done: make(chan error, 1)}
	var err error
	p.Share, err = share.New(p.link, "test", list, p.target, cfg)
	require.NoError(t, err)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() { p.done <- p.Run(ctx) }()
	return p
}

// end stops a member in good order.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	require.NoError(t, <-p.done)
	require.Empty(t, p.target.tiles())
}

// kill ends a member as SIGKILL does: it is not heard any more, and what it had is not worked on.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.link.set(false, errAway)
	p.stop()
	require.NoError(t, <-p.done)
}

// world is n tiles.
func world(n int) (tiles []fence.TileID) {
	for i := range n {
		tiles = append(tiles, fence.TileID(i*37+1))
	}
	return tiles
}

// covers reports how many tiles have at least one worker, and how many have more.
func covers(processes ...*process) (some, more int) {
	workers := map[fence.TileID]int{}
	for _, p := range processes {
		for _, t := range p.target.tiles() {
			if workers[t]++; workers[t] == 2 {
				more++
			}
		}
	}
	return len(workers), more
}

func requireDivided(t *testing.T, tiles int, processes ...*process) {
	t.Helper()
	some, more := covers(processes...)
	require.Equal(t, tiles, some, "every tile has a worker")
	require.Zero(t, more, "no tile has two")
}

// TestDivide: every tile has one member, about evenly; one that leaves in good order hands over with the next
// heartbeat of the others; one that is killed loses its tiles after one TTL and one heartbeat.
func TestDivide(t *testing.T) {
	for offset := range 10 {
		synctest.Test(t, func(t *testing.T) {
			list, tiles := share.NewMemory(), world(1000)
			one, two := start(t, list, share.Fixed(tiles), nil), start(t, list, share.Fixed(tiles), nil)
			time.Sleep(time.Duration(offset) * ttl / 30)
			three := start(t, list, share.Fixed(tiles), nil)
			time.Sleep(2 * ttl)
			requireDivided(t, 1000, one, two, three)
			for _, p := range []*process{one, two, three} {
				require.InDelta(t, 333, p.Stats().Tiles, 90)
				require.Equal(t, 3, p.Stats().Members)
			}

			began := time.Now()
			two.end(t)
			require.Zero(t, time.Since(began), "with nothing to wait for, it is immediate")
			time.Sleep(ttl/3 + time.Millisecond)
			requireDivided(t, 1000, one, three)

			three.kill(t)
			time.Sleep(ttl + ttl/3 + time.Millisecond)
			requireDivided(t, 1000, one)
			one.end(t)
			require.Zero(t, one.Stats().Tiles)
		})
	}
}

// TestOutage: while the list is away everybody keeps what they have, and afterwards nothing has moved, however long it
// was, whichever member is heard first, and whether or not the list was lost.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, tiles := share.NewMemory(), world(300)
		var members []*process
		for range 3 {
			members = append(members, start(t, list, share.Fixed(tiles), nil))
			time.Sleep(ttl / 9)
		}
		time.Sleep(2 * ttl)
		moved := func() (n int) {
			for _, p := range members {
				n += p.target.moved()
			}
			return n
		}
		before := moved()
		for round, length := range []time.Duration{ttl / 3, ttl / 2, ttl * 9 / 10, ttl, 2 * ttl, time.Hour} {
			for _, p := range members {
				p.link.set(round%2 == 0, errAway)
			}
			time.Sleep(length)
			requireDivided(t, 300, members...)
			if round == 3 {
				list.Forget("test")
			}
			for _, i := range rand.Perm(len(members)) {
				members[i].link.set(false, nil)
				time.Sleep(ttl / 10)
			}
			time.Sleep(3 * ttl)
			require.Equal(t, before, moved(), "after %v", length)
		}
		require.Positive(t, members[0].Stats().BeatErrors)
		list.Forget("test") // between two heartbeats
		time.Sleep(3 * ttl)
		require.Equal(t, before, moved())

		// One dies while the list is away.
		for _, p := range members {
			p.link.set(false, errAway)
		}
		members[0].kill(t)
		time.Sleep(time.Hour)
		some, _ := covers(members[1:]...)
		require.Less(t, some, 300)
		for _, p := range members[1:] {
			p.link.set(false, nil)
		}
		time.Sleep(2 * ttl)
		requireDivided(t, 300, members[1:]...)
		for _, p := range members[1:] {
			p.end(t)
		}
	})
}

// TestFailingHeartbeats: a member that dies is replaced although every other heartbeat of the rest fails.
func TestFailingHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, tiles := share.NewMemory(), world(300)
		one, two := start(t, list, share.Fixed(tiles), nil), start(t, list, share.Fixed(tiles), nil)
		time.Sleep(2*ttl + time.Millisecond)
		two.kill(t)
		for n := range 15 {
			one.link.set(false, map[bool]error{true: errAway}[n%2 == 0])
			time.Sleep(ttl / 3)
		}
		requireDivided(t, 300, one)
		one.link.set(false, nil)
		one.end(t)
	})
}

// TestCutOff: a member that cannot reach the list, while others can, keeps working until it can again.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, tiles := share.NewMemory(), world(300)
		one, two := start(t, list, share.Fixed(tiles), nil), start(t, list, share.Fixed(tiles), nil)
		time.Sleep(2 * ttl)
		had := one.Stats().Tiles
		one.link.set(true, nil)
		time.Sleep(2 * ttl)
		require.Equal(t, had, one.Stats().Tiles, "availability: better twice than not at all")
		require.Equal(t, 300, two.Stats().Tiles)
		one.link.set(false, nil)
		time.Sleep(2 * ttl)
		requireDivided(t, 300, one, two)
		one.end(t)
		two.end(t)
	})
}

// TestStartWithoutList: a process that never reached the list works on everything, and a member that leaves without it
// ends all the same.
func TestStartWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, tiles := &link{Members: share.NewMemory(), hang: true}, world(300)
		one := start(t, list, share.Fixed(tiles), nil)
		time.Sleep(ttl/3 + time.Millisecond)
		require.Equal(t, 300, one.Stats().Tiles)
		require.Zero(t, one.Stats().LastBeat)
		began := time.Now()
		one.end(t)
		require.Equal(t, ttl/3, time.Since(began))
	})
}

// changing is a Lister whose tiles change.
type changing struct {
	mu    sync.Mutex
	tiles []fence.TileID
	fail  error
}

func (w *changing) list(context.Context, share.Part) (share.Part, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return share.Part{Tiles: w.tiles, All: true}, w.fail
}

func (w *changing) set(fail error, tiles ...fence.TileID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.tiles = fail, tiles
}

// TestShareFollowsTheList: tiles come and go; one that a single list lacks stays.
func TestShareFollowsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &changing{}
		w.set(nil, 1, 15, 25, 0)
		p := start(t, share.NewMemory(), w.list, nil)
		next := func(want ...fence.TileID) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, want, p.target.tiles())
			require.Equal(t, len(want), p.Stats().Tiles)
		}
		synctest.Wait()
		require.Equal(t, []fence.TileID{1, 15, 25}, p.target.tiles())
		w.set(nil, 1, 2, 25)
		next(1, 2, 15, 25)
		w.set(nil, 1, 2, 15, 25)
		next(1, 2, 15, 25)
		w.set(nil, 1, 2, 25)
		next(1, 2, 15, 25)
		next(1, 2, 25)
		p.end(t)
	})
}

// TestShareWhenTheListerFails: what is known stays, and it is tried again sooner.
func TestShareWhenTheListerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &changing{}
		w.set(errAway, 5)
		p := start(t, share.NewMemory(), w.list, nil)
		time.Sleep(time.Second / 2)
		require.Empty(t, p.target.tiles())
		w.set(nil, 5)
		time.Sleep(time.Second)
		require.Equal(t, []fence.TileID{5}, p.target.tiles())
		w.set(errAway)
		time.Sleep(50 * time.Second)
		require.Equal(t, []fence.TileID{5}, p.target.tiles())
		require.Greater(t, p.Stats().ListErrors, uint64(30))

		p.target.set(errAway)
		w.set(nil, 5, 6)
		time.Sleep(5 * time.Second)
		require.Positive(t, p.Stats().AddErrors)
		p.target.set(nil)
		time.Sleep(ttl / 3)
		require.Equal(t, []fence.TileID{5, 6}, p.target.tiles())
		p.end(t)
	})
}

// TestSlowLister: heartbeats go on while the tiles are listed.
func TestSlowLister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := share.NewMemory()
		slow := func(ctx context.Context, _ share.Part) (share.Part, error) {
			<-ctx.Done()
			return share.Part{}, ctx.Err()
		}
		one, two := start(t, list, slow, nil), start(t, list, share.Fixed(world(300)), nil)
		time.Sleep(10 * ttl)
		require.Equal(t, 2, two.Stats().Members)
		require.Equal(t, 2, one.Stats().Members)
		one.end(t)
		two.end(t)
	})
}

// TestShareDiscovers: a hint for a tile that no list has named yet adds it, if it is this member's; unless there are
// too many such. Without further hints and lists it is given up.
func TestShareDiscovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, list, broker := &changing{}, share.NewMemory(), memfanout.New()
		one := start(t, list, w.list, &share.Config{Hints: broker})
		two := start(t, list, w.list, &share.Config{Hints: broker})
		time.Sleep(2 * ttl)
		require.Equal(t, 2*fanout.HintGroups, broker.HintStats().Subscriptions)
		hint := func(tiles ...fence.TileID) {
			require.NoError(t, broker.PublishHints(t.Context(), tiles))
			synctest.Wait()
		}
		tiles := world(100)
		hint(tiles...)
		requireDivided(t, 100, one, two)

		w.set(nil, tiles[:50]...)
		for range 10 {
			time.Sleep(5 * time.Second)
			hint(tiles[99])
		}
		requireDivided(t, 51, one, two)
		two.end(t)
		time.Sleep(ttl)
		hint(tiles[99])
		requireDivided(t, 51, one)

		hint(world(12_000)...)
		require.Equal(t, 10_050, one.Stats().Tiles)
		require.EqualValues(t, 12_000-10_050, one.Stats().Ignored)
		one.end(t)
		require.Zero(t, broker.HintStats().Subscriptions)
	})
}

// counted counts what an authority is asked for.
type counted struct {
	fence.Authority
	records, calls int
}

func (c *counted) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
	page, err := c.Authority.List(ctx, after, limit)
	c.records, c.calls = c.records+len(page), c.calls+1
	return page, err
}

func (c *counted) Added(
	ctx context.Context, since fence.Bookmark, limit int,
) ([]fence.Grant, fence.Bookmark, error) {
	page, next, err := c.Authority.Added(ctx, since, limit)
	c.records, c.calls = c.records+len(page), c.calls+1
	return page, next, err
}

// TestRecorded: all records are read once. From then on a part of the list is what was added, and a page of the rest,
// so that its cost does not grow with the world; and it finds what was retired.
func TestRecorded(t *testing.T) {
	t.Parallel()
	const n = 25_000
	memory := memfence.NewAuthority()
	a := &counted{Authority: memory}
	claim := func(first, n int) {
		t.Helper()
		for i := range n {
			_, err := memory.Claim(t.Context(), fence.Claim{Tile: fence.TileID(first + i), Contact: "a:1",
				ID: fence.NewClaimID()})
			require.NoError(t, err)
		}
	}
	claim(1, n)
	list := share.Recorded(a)
	var last share.Part
	known := map[fence.TileID]bool{}
	next := func() {
		t.Helper()
		var err error
		last, err = list(t.Context(), last)
		require.NoError(t, err)
		for _, tile := range last.Tiles {
			known[tile] = true
		}
	}
	for next(); last.More; next() {
		require.False(t, last.All)
	}
	require.True(t, last.All)
	require.Len(t, known, n)
	require.Equal(t, n, a.records)

	for range 10 {
		claim(len(known)+1, 7)
		before, all := a.records, len(known)
		next()
		require.False(t, last.More)
		require.Len(t, known, all+7)
		require.LessOrEqual(t, a.records-before, fence.MaxList+7)
	}
	claim(len(known)+1, 10_500)
	for next(); last.More; next() {
	}
	require.Len(t, known, n+70+10_500, "also if more came than a page has")

	g, err := memory.Lookup(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, memory.Release(t.Context(), g))
	retired, err := memory.Retire(t.Context(), 0, 1)
	require.NoError(t, err)
	require.Equal(t, 1, retired)
	for !last.All { // the list under way had it
		next()
	}
	clear(known)
	for next(); !last.All; next() {
	}
	require.Len(t, known, n+70+10_500-1)
	require.False(t, known[5])

	// An authority that has forgotten what it had is listed anew.
	a.Authority = memfence.NewAuthority()
	memory = a.Authority
	claim(1, 3)
	clear(known)
	for next(); last.More; next() {
	}
	require.True(t, last.All)
	require.Len(t, known, 3)
}

func TestArguments(t *testing.T) {
	memory, list, to := share.NewMemory(), share.Fixed(nil), &target{}
	try := func(members share.Members, group string, list share.Lister, to share.Target, cfg *share.Config) {
		t.Helper()
		_, err := share.New(members, group, list, to, cfg)
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	try(nil, "g", list, to, nil)
	try(memory, "", list, to, nil)
	try(memory, "a}b", list, to, nil)
	try(memory, "g", nil, to, nil)
	try(memory, "g", list, nil, nil)
}

func TestRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, share.NewMemory(), share.Fixed(nil), nil)
		synctest.Wait()
		require.ErrorIs(t, p.Run(t.Context()), fence.ErrAlreadyRun)
		p.end(t)
		require.ErrorIs(t, p.Run(t.Context()), fence.ErrAlreadyRun)
	})
}

// TestRandom lets members come, leave, be killed and be cut off, and the list be away or lost. While nothing is broken
// every tile has a worker but for the tiles of those that were killed; in the end every tile has one.
func TestRandom(t *testing.T) {
	rng := seed.Rand(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) { random(t, rng, rng.IntN(2) == 0) })
	}
}

func random(t *testing.T, rng *rand.Rand, faults bool) {
	const tiles = 50
	list := share.NewMemory()
	var members []*process
	alone := func(pick int) (p *process) {
		p = members[pick]
		members = slices.Delete(members, pick, pick+1)
		return p
	}
	for range 60 {
		pick := rng.IntN(max(len(members), 1))
		switch op := rng.IntN(20); {
		case len(members) < 2 || op < 5 && len(members) < 7:
			members = append(members, start(t, list, share.Fixed(world(tiles)), nil))
		case op < 8:
			alone(pick).end(t)
			time.Sleep(ttl/3 + time.Millisecond)
		case op < 11 && faults:
			alone(pick).kill(t)
		case op < 14 && faults:
			members[pick].link.set(rng.IntN(2) == 0, errAway)
		case op < 15 && faults:
			for _, p := range members {
				p.link.set(rng.IntN(2) == 0, errAway)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(4 * ttl))))
		case op < 16 && faults:
			list.Forget("test")
		default:
			for _, p := range members {
				p.link.set(false, nil)
			}
		}
		synctest.Wait()
		if !faults {
			some, _ := covers(members...)
			require.Equal(t, tiles, some)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(2 * ttl))))
	}
	for _, p := range members {
		p.link.set(false, nil)
	}
	time.Sleep(4 * ttl)
	requireDivided(t, tiles, members...)
	for _, p := range members {
		p.end(t)
	}
}

// crowd is a list on which another program writes.
type crowd struct {
	*share.Memory
	strangers int
}

func (c *crowd) Beat(ctx context.Context, group, member string, ttl time.Duration) ([]string, bool, error) {
	living, known, err := c.Memory.Beat(ctx, group, member, ttl)
	for i := range c.strangers {
		living = append(living, fmt.Sprint("stranger-", i))
	}
	return living, known, err
}

// TestAListThatIsTooLong moves nothing: the member keeps its tiles, and says so.
func TestAListThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members, to := &crowd{Memory: share.NewMemory()}, &target{has: map[fence.TileID]bool{}}
		s, err := share.New(members, "bridge", share.Fixed([]fence.TileID{1, 2, 3, 4, 5, 6, 7, 8}), to, nil)
		require.NoError(t, err)
		s.Sync(t.Context())
		members.strangers = 2000
		s.Sync(t.Context())
		require.Equal(t, 8, s.Stats().Tiles)
		require.EqualValues(t, 1, s.Stats().BeatErrors)
	})
}
