package tile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/stream"
)

// letters is a game whose state is the events it has folded.
type letters struct{ state string }

func (l *letters) Restore(b []byte) error                                    { l.state = string(b); return nil }
func (l *letters) Resolve(fence.Tick, []Intent) ([][]byte, []stream.Outcome) { return nil, nil }
func (l *letters) Snapshot() ([]byte, error)                                 { return []byte(l.state), nil }
func (l *letters) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if string(e) == "!" {
			return errors.New("not a letter")
		}
		l.state += string(e)
	}
	return nil
}

func newTestDesk(t *testing.T, cfg Config) *inbox {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.QueueLimit = max(cfg.QueueLimit, 2)
	return newInbox(7, "a:1", &cfg)
}

func TestDeskAnswersEverySubmission(t *testing.T) {
	d := newTestDesk(t, Config{})
	note := func() (func(Result, error), <-chan error) {
		errs := make(chan error, 1) // a second answer would wait for ever
		return func(_ Result, err error) { errs <- err }, errs
	}
	submit := func() <-chan error {
		answer, errs := note()
		require.NoError(t, d.submit(t.Context(), Intent{Tile: 7}, answer))
		return errs
	}
	first, second := submit(), submit()
	assert.ErrorIs(t, d.submit(t.Context(), Intent{Tile: 7}, nil), ErrOverloaded)
	assert.Equal(t, 2, d.read().Queued)
	queue := d.take(2)
	queue[0].presented = true
	d.requeue(queue)
	d.enter(Claiming, 3)
	d.yield(fence.Owner{Epoch: 2, Contact: "old:1"})
	d.yield(fence.Owner{Epoch: 4, Contact: "a:1"})
	require.NoError(t, d.away(), "neither an older epoch nor its own contact is a successor")
	d.yield(fence.Owner{Epoch: 4, Contact: "b:1"})
	var away *RedirectError
	require.ErrorAs(t, <-second, &away)
	assert.Equal(t, "b:1", away.Contact)
	require.ErrorAs(t, d.away(), &away)
	assert.Empty(t, first, "it was presented")
	d.resume()
	require.NoError(t, d.away())

	third := submit()
	answer, pending := note()
	d.close(3, fence.Owner{Epoch: 5, Contact: "c:1"}, true, []submission{{answer: answer}})
	var unresolved *UnresolvedError
	require.ErrorAs(t, <-first, &unresolved)
	assert.Equal(t, "c:1", unresolved.Contact)
	require.ErrorAs(t, <-pending, &unresolved)
	require.ErrorAs(t, <-third, &away)
	assert.Equal(t, fence.Epoch(5), away.Epoch)
	assert.ErrorIs(t, d.submit(t.Context(), Intent{Tile: 7}, nil), ErrRedirect)
	assert.Equal(t, StoodDown, d.read().State)
	<-d.superseded
	<-d.done
}

func TestDeskRefusesTransitionsOutsideTheDiagram(t *testing.T) {
	d := newTestDesk(t, Config{})
	assert.True(t, d.begin())
	assert.False(t, d.begin(), "a processor runs once")
	d.enter(Idle, 0)
	defer func() {
		said, _ := recover().(string)
		assert.True(t, strings.Contains(said, "idle to serving"), said)
	}()
	d.enter(Serving, 1)
}

// waiting makes a submission that counts its answers.
func waiting(actor string, answers *[]error) submission {
	return submission{intent: Intent{Tile: 7, Actor: actor}, caller: context.Background(),
		answer: func(_ Result, err error) { *answers = append(*answers, err) }}
}

func actors(subs []submission) (names []string) {
	for i := range subs {
		names = append(names, subs[i].intent.Actor)
	}
	return names
}

// TestAFullQueueIsShared: the actor with the most intents makes room, until none has many more than another.
func TestAFullQueueIsShared(t *testing.T) {
	q := intentQueue{limit: 12}
	var hog, others []error
	for range 12 {
		require.True(t, q.add(waiting("hog", &hog)))
	}
	require.False(t, q.add(waiting("hog", &hog)), "not for more of its own")
	for i := range 5 {
		require.True(t, q.add(waiting(fmt.Sprint("a", i), &others)), i)
	}
	assert.NotEmpty(t, hog)
	for _, err := range hog {
		assert.ErrorIs(t, err, ErrOverloaded)
	}
	assert.Empty(t, others)
	assert.Equal(t, 12, q.waiting+q.taken)
	server := submission{intent: Intent{Tile: 7, Actor: "hog", Origin: OriginServer}, caller: context.Background(),
		answer: func(Result, error) { t.Error("the servers' was answered") }}
	for range 6 {
		require.True(t, q.add(server), "the servers' may have half")
	}
	assert.False(t, q.add(server))
	assert.Equal(t, 12, q.waiting+q.taken)
	assert.Len(t, q.take(6), 6)
	assert.Equal(t, 3, q.counts[serverFlow], "they may have half of a tick")
}

// TestActorsTakeTurns: each has its first intent in the tick before any has a second one.
func TestActorsTakeTurns(t *testing.T) {
	q := intentQueue{limit: 100}
	var answers []error
	for range 50 {
		q.add(waiting("hog", &answers))
	}
	for _, actor := range []string{"ann", "bob", "ann"} {
		q.add(waiting(actor, &answers))
	}
	assert.Equal(t, []string{"hog", "hog", "ann", "bob"}, actors(q.take(4)), "in the order in which they came")
	q.taken = 0
	assert.Equal(t, []string{"hog", "ann"}, actors(q.take(2)))
	q.taken = 0
	assert.Len(t, q.take(100), 47)
	assert.Empty(t, answers)
}

// TestIntentQueueKeepsItsPromises plays at random: the limit holds, each submission is answered once or taken, those of
// an actor keep their order, and what the store was shown is never shed.
func TestIntentQueueKeepsItsPromises(t *testing.T) {
	for _, n := range seed.Many(t, 100) {
		rng := rand.New(rand.NewPCG(n, 0))
		q := intentQueue{limit: 1 + rng.IntN(40)}
		type fate struct {
			answers, number int
			shown           bool
		}
		fates, number := []*fate{}, 0
		now := time.Now()
		var held []submission // by the tick
		for range 500 {
			switch rng.IntN(8) {
			default:
				f := &fate{number: number}
				number++
				in := Intent{Tile: 7, Actor: string(rune('a' + rng.IntN(5))), Body: fmt.Append(nil, f.number)}
				switch rng.IntN(10) {
				case 0:
					in.Origin = OriginServer
				case 1:
					in.Deadline = now.Add(-time.Second)
				}
				s := submission{intent: in, caller: t.Context(), answer: func(_ Result, err error) {
					f.answers++
					require.False(t, f.shown && errors.Is(err, ErrOverloaded))
				}}
				if q.add(s) {
					fates = append(fates, f)
				}
			case 5:
				if len(held) == 0 {
					q.sweep(now)
					held = q.take(1 + rng.IntN(q.limit))
					last := map[string]int{}
					for i := range held {
						n, err := strconv.Atoi(string(held[i].intent.Body))
						require.NoError(t, err)
						flow := held[i].intent.flow()
						require.Greater(t, n, last[flow]-1)
						last[flow] = n
					}
				}
			case 6: // the batch was given up, or only some of it was played
				for i := range held {
					held[i].presented = true
				}
				keep := rng.IntN(len(held) + 1)
				for i := range held[:keep] {
					held[i].answer(Result{Outcome: stream.Applied}, nil)
				}
				q.requeue(held[keep:])
				held, q.taken = nil, 0
			case 7:
				for i := range held {
					held[i].answer(Result{Outcome: stream.Applied}, nil)
				}
				held, q.taken = nil, 0
			}
			require.LessOrEqual(t, q.waiting+q.taken, q.limit, "seed %d", n)
			require.LessOrEqual(t, len(q.subs), q.waiting+q.limit/2+1)
			sum := 0
			for _, n := range q.counts {
				require.Positive(t, n)
				sum += n
			}
			require.Equal(t, q.waiting, sum)
		}
		q.drop(func(*submission) error { return ErrRedirect })
		for i := range held {
			held[i].answer(Result{Outcome: stream.Applied}, nil)
		}
		for _, f := range fates {
			require.Equal(t, 1, f.answers, "seed %d", n)
		}
	}
}

// TestPortionFollowsWhatFits: under a backlog without end, ticks commit nearly as much as fits, and compute little
// more.
func TestPortionFollowsWhatFits(t *testing.T) {
	const fits, size, limit = 1000, 1000, 1000 * 1000
	var p portion
	asked, committed := 0, 0
	for range 200 {
		n := p.next()
		for asked += n; n > fits; asked += n {
			n = p.reduced(n, n*size, limit)
		}
		p.fitted(n, 0, time.Second)
		committed += n
	}
	assert.Greater(t, committed, 200*fits*8/10)
	assert.Less(t, asked, committed*5/4)
}

// TestPortionFollowsTime: what a tick costs by itself is measured apart from what an intent adds to it.
func TestPortionFollowsTime(t *testing.T) {
	const budget = 400 * time.Millisecond
	for name, c := range map[string]struct {
		base, each  time.Duration
		least, most int // intents a tick, at the end
	}{
		"cheap":                    {0, 10 * time.Microsecond, 4096, 4096},
		"1 ms each":                {0, time.Millisecond, 350, 420},
		"slow by itself":           {300 * time.Millisecond, 100 * time.Microsecond, 800, 1100},
		"slower than the budget":   {time.Second, 100 * time.Microsecond, 800, 1100},
		"an intent takes a second": {0, time.Second, 16, 16},
	} {
		t.Run(name, func(t *testing.T) {
			var p portion
			for range 100 {
				n := min(p.next(), 4096)
				p.fitted(n, c.base+time.Duration(n)*c.each, budget)
			}
			n := min(p.next(), 4096)
			assert.GreaterOrEqual(t, n, c.least)
			assert.LessOrEqual(t, n, c.most)
			for range 50 { // a demand that does not change teaches nothing
				p.fitted(100, c.base+100*c.each, budget)
			}
			assert.GreaterOrEqual(t, min(p.next(), 4096), c.least*3/4)
		})
	}
}

// TestServersOrigin: no name of a player is the servers' flow.
func TestServersOrigin(t *testing.T) {
	assert.Equal(t, "server", OriginServer.String())
	in := Intent{Tile: 7, Origin: 2}
	require.Error(t, in.Validate())
	assert.NotEqual(t, (&Intent{Actor: "server", Origin: OriginServer}).flow(), (&Intent{Actor: "server"}).flow())
	assert.False(t, slices.Contains([]string{"", "server"}, serverFlow))
}

// TestLogsInJSONHaveWords: the handler that production uses writes states and positions as people read them.
func TestLogsInJSONHaveWords(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "state", Healing, "class", WriteThrough,
		"outcome", stream.Fizzled, "at", fence.Position{Epoch: 3, Seq: 7, Chain: 1})
	assert.Contains(t, b.String(),
		`"state":"healing","class":"write-through","outcome":"fizzled","at":"3/7/0000000000000001"`)
}
