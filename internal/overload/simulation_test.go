package overload

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/seed"
)

// The actor that is simulated carries 1,000 requests a second.
const (
	simTurns   = 4
	simService = 4 * time.Millisecond
	simTarget  = 20 * time.Millisecond
	simWithin  = time.Second // after which an answer is of no use to its caller
	simCarries = float64(simTurns) / (float64(simService) / float64(time.Second))
)

// server is what a simulated actor does with requests: a Control, or a queue without one.
type server interface {
	submit(now time.Time, r Request, start func(error))
	leave(now time.Time)
}

type controlled struct{ *Control }

func (c controlled) submit(now time.Time, r Request, start func(error)) { c.Submit(now, r, start) }
func (c controlled) leave(now time.Time)                                { c.Leave(now) }

// fifo serves everything in the order in which it came: what a server without overload control does.
type fifo struct {
	taken int
	queue []func(error)
}

func (f *fifo) submit(_ time.Time, _ Request, start func(error)) {
	f.queue = append(f.queue, start)
	f.admit()
}

func (f *fifo) leave(time.Time) {
	f.taken--
	f.admit()
}

func (f *fifo) admit() {
	for len(f.queue) > 0 && f.taken < simTurns {
		start := f.queue[0]
		f.queue = f.queue[1:]
		f.taken++
		start(nil)
	}
}

// sim is a discrete simulation: its clock goes from event to event.
type sim struct {
	server server
	random *rand.Rand
	now    time.Time
	events events
	number int
	began  time.Time
	tally  []tally // a second each
	served map[string]int
	paid   struct{ served, refused int }
}

// tally counts the requests that came in a second.
type tally struct {
	useful, useless, refused, dead int
	waits                          []time.Duration // until a refusal
	took                           []time.Duration // until an answer
}

type event struct {
	at     time.Time
	number int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func newSim(t *testing.T, s server) *sim {
	return newSeededSim(s, seed.Of(t))
}

func newSeededSim(s server, seed uint64) *sim {
	start := time.Unix(1_000_000, 0)
	return &sim{server: s, random: rand.New(rand.NewPCG(seed, 1)), now: start, began: start, served: map[string]int{}}
}

func newControlled() controlled { return controlled{New(simTurns, 4096, simTarget)} }

func (s *sim) after(d time.Duration, do func()) {
	s.number++
	heap.Push(&s.events, event{s.now.Add(d), s.number, do})
}

func (s *sim) run(d time.Duration) {
	for end := s.began.Add(d); len(s.events) > 0 && s.events[0].at.Before(end); {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
}

func (s *sim) second(at time.Time) *tally {
	n := int(at.Sub(s.began) / time.Second)
	for len(s.tally) <= n {
		s.tally = append(s.tally, tally{})
	}
	return &s.tally[n]
}

func (s *sim) exponential(mean time.Duration) time.Duration {
	return time.Duration(s.random.ExpFloat64() * float64(mean))
}

// ask submits a request, and calls done with when it may be repeated; zero: it was served.
func (s *sim) ask(r Request, done func(after time.Duration)) {
	came := s.now
	r.Deadline = came.Add(simWithin)
	s.server.submit(s.now, r, func(err error) {
		if err != nil {
			after := simWithin
			if refused, ok := errors.AsType[*RefusedError](err); ok {
				after = refused.After
				s.second(came).refused++
				s.second(came).waits = append(s.second(came).waits, s.now.Sub(came))
				if r.Class == Owed {
					s.paid.refused++
				}
			} else {
				s.second(came).dead++
			}
			done(after)
			return
		}
		s.after(s.exponential(simService), func() {
			took := s.now.Sub(came)
			if took <= simWithin {
				s.second(came).useful++
				s.served[r.Holder]++
				if r.Class == Owed {
					s.paid.served++
				}
			} else {
				s.second(came).useless++
			}
			s.second(came).took = append(s.second(came).took, took)
			s.server.leave(s.now)
			done(0)
		})
	})
}

// open lets requests come at a multiple of what the actor carries, whatever becomes of those before. One in paid of
// them is an action.
func (s *sim) open(until time.Duration, times float64, holders, paid int) {
	if s.now.Sub(s.began) >= until {
		return
	}
	s.after(s.exponential(time.Duration(float64(time.Second)/(simCarries*times))), func() {
		r := Request{Holder: fmt.Sprint(s.random.IntN(holders)), Class: Move}
		if s.random.IntN(paid) == 0 {
			r.Class = Owed
		}
		s.ask(r, func(time.Duration) {})
		s.open(until, times, holders, paid)
	})
}

// play is a player who thinks before each request, and comes back as told when one is refused.
func (s *sim) play(until time.Duration, name string, think time.Duration) {
	if s.now.Sub(s.began) >= until {
		return
	}
	s.ask(Request{Holder: name, Class: Move}, func(after time.Duration) {
		pause := s.exponential(think)
		if after > 0 {
			pause = after + time.Duration(s.random.Int64N(int64(after)/2+1))
		}
		s.after(pause, func() { s.play(until, name, think) })
	})
}

// between sums up some seconds.
func (s *sim) between(from, to int) (sum tally) {
	for i := from; i < min(to, len(s.tally)); i++ {
		t := &s.tally[i]
		sum.useful, sum.useless = sum.useful+t.useful, sum.useless+t.useless
		sum.refused, sum.dead = sum.refused+t.refused, sum.dead+t.dead
		sum.waits, sum.took = append(sum.waits, t.waits...), append(sum.took, t.took...)
	}
	return sum
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// loads are the multiples of what an actor carries that are offered to it.
var loads = []float64{1, 1.5, 2, 3}

// However much is offered, the actor serves what it can, and says no at once to the rest. A queue without control, in
// the same simulation, serves what no caller waits for any more.
func TestGoodput(t *testing.T) {
	best, figures := 0.0, map[float64]tally{}
	for _, times := range loads {
		s := newSim(t, newControlled())
		s.open(25*time.Second, times, 200, 20)
		s.run(26 * time.Second)
		sum := s.between(5, 25)
		figures[times] = sum
		best = max(best, float64(sum.useful))
		t.Logf("%.1f times: %d useful, %d useless, %d dead, %d refused within p99 %v; answers p99 %v", times,
			sum.useful, sum.useless, sum.dead, sum.refused, p99(sum.waits), p99(sum.took))
		require.Less(t, p99(sum.waits), 250*time.Millisecond)
		require.Less(t, p99(sum.took), 250*time.Millisecond)
		require.Zero(t, s.paid.refused, "actions are a twentieth of what is offered, and go first")
	}
	require.Less(t, p99(figures[3].took), 70*time.Millisecond, "what is late keeps no more than it can do soon")
	require.Less(t, p99(figures[3].waits), 50*time.Millisecond, "and says no to the rest at once")
	for _, times := range loads {
		require.GreaterOrEqual(t, float64(figures[times].useful), 0.9*best, "at %.1f times", times)
	}
	plain := newSim(t, &fifo{})
	plain.open(25*time.Second, 1.5, 200, 20)
	plain.run(26 * time.Second)
	require.Less(t, float64(plain.between(5, 25).useful), 0.5*best, "the simulation shows no collapse without control")
}

// What an actor can carry is not refused, also if it comes in bursts.
func TestNothingIsRefusedBelowCapacity(t *testing.T) {
	s := newSim(t, newControlled())
	s.open(30*time.Second, 0.5, 200, 20)
	for burst := range 60 { // of 40, which take 40 ms
		s.after(time.Duration(burst)*time.Second/2, func() {
			for i := range 40 {
				s.ask(Request{Holder: fmt.Sprint(i), Class: Move}, func(time.Duration) {})
			}
		})
	}
	s.run(32 * time.Second)
	sum := s.between(0, 30)
	require.Zero(t, sum.refused+sum.dead+sum.useless)
	require.Greater(t, sum.useful, 16_000)
}

// Players who do as they are told come back later the more of them there are, so that refusals stay few; and when most
// of them have gone, the others are served as before.
func TestRecovery(t *testing.T) {
	const carries = 1000 // players who think for a second
	s := newSim(t, newControlled())
	begin := func(players int, at, until time.Duration) {
		for i := range players {
			s.after(at+time.Duration(s.random.Int64N(int64(time.Second))),
				func() { s.play(until, fmt.Sprint(at, "/", i), time.Second) })
		}
	}
	begin(carries*8/10, 0, 80*time.Second)
	begin(carries*22/10, 20*time.Second, 60*time.Second)
	s.run(80 * time.Second)
	calm, storm, after := s.between(5, 20), s.between(30, 60), s.between(65, 80)
	t.Logf("calm: %d a second, p99 %v; storm: %d, refused %d, within p99 %v; after: %d, p99 %v, refused %d",
		calm.useful/15, p99(calm.took), storm.useful/30, storm.refused/30, p99(storm.waits), after.useful/15,
		p99(after.took), after.refused)
	require.Zero(t, calm.refused)
	require.Greater(t, storm.useful/30, 900)
	require.Less(t, storm.refused, 2*storm.useful, "refusals are no cheaper than that")
	require.Less(t, p99(storm.waits), 250*time.Millisecond)
	require.Zero(t, after.refused, "5 s after the storm")
	require.InEpsilon(t, calm.useful, after.useful, 0.05)
	require.LessOrEqual(t, p99(after.took), p99(calm.took)*3/2)
}

// A holder that asks for ten times as much as the others gets as much as they do.
func TestShares(t *testing.T) {
	s := newSim(t, newControlled())
	rates := map[string]float64{"greedy": 500}
	for i := range 40 {
		rates[fmt.Sprint(i)] = 50
	}
	for i := range 10 {
		rates[fmt.Sprint("modest ", i)] = 5
	}
	names := make([]string, 0, len(rates))
	for name := range rates {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var next func()
		next = func() {
			if s.now.Sub(s.began) < 30*time.Second {
				s.ask(Request{Holder: name, Class: Move}, func(time.Duration) {})
				s.after(s.exponential(time.Duration(float64(time.Second)/rates[name])), next)
			}
		}
		s.after(0, next)
	}
	s.run(31 * time.Second)
	usual := 0
	for i := range 40 {
		usual += s.served[fmt.Sprint(i)]
	}
	usual /= 40
	t.Logf("greedy %d, the others %d each", s.served["greedy"], usual)
	require.Less(t, s.served["greedy"], 2*usual)
	require.Greater(t, s.served["greedy"], usual/2)
	modest := 0
	for i := range 10 {
		modest += s.served[fmt.Sprint("modest ", i)]
	}
	require.Greater(t, modest, 1000, "of 1,500")
}

// While what goes before all requests is late, one turn is left to them.
func TestRequestsGiveWay(t *testing.T) {
	c, now := New(4, 100, simTarget), time.Unix(1000, 0)
	for range 30 { // longer than an interval
		now = now.Add(simTarget)
		c.Observe(now, 2*simTarget)
	}
	require.NotZero(t, c.Stats(now).Late)
	started := 0
	for i := range 4 {
		c.Submit(now, Request{Holder: fmt.Sprint(i)}, func(err error) {
			require.NoError(t, err)
			started++
		})
	}
	require.Equal(t, 1, started)
	for range 10 {
		c.Submit(now, Request{Holder: "owed"}, func(err error) { require.NoError(t, err) })
	}
	c.Submit(now, Request{Holder: "moves", Class: Move}, func(err error) { require.IsType(t, &RefusedError{}, err) })
	require.GreaterOrEqual(t, c.Full(now, Join), leastAfter)
	for range 30 {
		now = now.Add(simTarget)
		c.Observe(now, 0)
	}
	c.Leave(now)
	require.Equal(t, 4, started, "all turns are there again")
}

// What is dead takes neither a turn nor the place of what is not.
func TestTheDeadGoFirst(t *testing.T) {
	c, now := New(1, 3, simTarget), time.Unix(1000, 0)
	var got []string
	submit := func(r Request) {
		c.Submit(now, r, func(err error) { got = append(got, fmt.Sprintf("%s: %v", r.Holder, err)) })
	}
	left := false
	submit(Request{Holder: "first"})
	submit(Request{Holder: "late", Deadline: now.Add(time.Millisecond)})
	submit(Request{Holder: "left", Gone: func() bool { return left }})
	submit(Request{Holder: "there", Class: Move})
	require.Equal(t, []string{"first: <nil>"}, got)
	left, now = true, now.Add(sweepPause)
	submit(Request{Holder: "new", Class: Move})
	require.ElementsMatch(t, []string{"first: <nil>", "late: " + ErrDead.Error(), "left: " + ErrDead.Error()}, got)
	c.Leave(now)
	c.Leave(now)
	require.Equal(t, []string{"there: <nil>", "new: <nil>"}, got[3:])
	submit(Request{Holder: "dies in the room", Deadline: now.Add(time.Millisecond)})
	c.Leave(now.Add(2 * time.Millisecond))
	require.Equal(t, "dies in the room: "+ErrDead.Error(), got[5])
	require.Equal(t, uint64(3), c.Stats(now).Dead)
}

// A paid action takes the place of a movement, and a movement that of a join.
func TestClasses(t *testing.T) {
	c, now := New(1, 2, simTarget), time.Unix(1000, 0)
	var got []string
	submit := func(name, holder string, class Class) {
		c.Submit(now, Request{Holder: holder, Class: class}, func(err error) {
			word := " has a turn"
			if err != nil {
				word = " refused"
			}
			got = append(got, name+word)
		})
	}
	submit("first", "ann", Owed)
	submit("join", "ann", Join)
	submit("move", "ann", Move)
	submit("another move", "ann", Move)
	submit("paid", "bob", Owed)
	submit("another join", "cy", Join)
	c.Leave(now)
	c.Leave(now)
	require.Equal(t, []string{"first has a turn", "join refused", "another move refused", "another join refused",
		"paid has a turn", "move has a turn"}, got)
}
