package tile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// quay is a tile with two areas, in each of which texts are left: an intent is the area's digit and a text. It looks at
// what is left in area 1 of others, and notes it.
type quay struct {
	lines map[fence.Area]string

	sights []tile.Sight
	notes  *notes
}

// notes are what a quay has seen, of tile west, each time that it was asked.
type notes struct {
	mu    sync.Mutex
	ticks map[fence.Tick][]tile.Rim
	last  string // what the view held
}

const west, east fence.TileID = 1, 2

func (q *quay) Restore(snapshot []byte) error {
	q.lines = map[fence.Area]string{}
	for p := range fence.Parts(snapshot) {
		q.lines[p.Area] = string(p.Content)
	}
	return nil
}

func (q *quay) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if strings.Contains(string(e), "unfoldable") {
			return errors.New("this cannot be folded")
		}
		q.lines[q.Area(e)] += string(e[1:])
	}
	return nil
}

func (q *quay) Snapshot() (list []byte, err error) {
	for a := range fence.Area(3) {
		list = fence.AppendPart(list, a, []byte(q.lines[a]))
	}
	return list, nil
}

func (q *quay) Area(event []byte) fence.Area { return fence.Area(event[0] - '0') }

func (q *quay) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (q *quay) Play(tick fence.Tick, in tile.Inputs) (out tile.Outputs) {
	rim := in.Rim(west)
	if n := q.notes; n != nil {
		n.mu.Lock()
		if n.ticks[tick] = append(n.ticks[tick], rim); rim.View != nil {
			n.last = fmt.Sprint(rim.View.(*quay).lines)
		}
		n.mu.Unlock()
	}
	for _, i := range in.Intents {
		if string(i.Body) == "panic" {
			panic("as asked")
		}
		out.Events = append(out.Events, i.Body)
		out.Decide(stream.Applied, "")
	}
	return out
}

func (q *quay) Sights() []tile.Sight { return q.sights }

// looksWest is a quay that looks at area 1 of the tile in the west.
func looksWest(n *notes) *quay {
	return &quay{notes: n, sights: []tile.Sight{
		{Tile: west, Areas: fence.Areas(1), View: func() tile.View { return &quay{} }}}}
}

func (n *notes) rim() (last tile.Rim, seen string) {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	var latest fence.Tick
	for tick, all := range n.ticks {
		if tick >= latest {
			latest, last = tick, all[len(all)-1]
		}
	}
	return last, n.last
}

// shore runs quays over one store.
type shore struct {
	t     *testing.T
	seams tile.Seams
}

func newShore(t *testing.T) *shore {
	store := memfence.New()
	return &shore{t, tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}}
}

func (s *shore) run(id fence.TileID, rules tile.Rules, cfg tile.Config) (p *tile.TileProcessor, stop func() error) {
	s.t.Helper()
	cfg.SnapshotEvery, cfg.TakeOver = 4, true
	p, err := tile.New(id, "host:1", s.seams, rules, &cfg)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	time.Sleep(2 * time.Second)
	require.Equal(s.t, tile.Serving, p.Status().State)
	return p, func() error {
		cancel()
		return <-ended
	}
}

func (s *shore) leave(p *tile.TileProcessor, body string) {
	s.t.Helper()
	r, err := p.Submit(s.t.Context(), tile.Intent{Tile: p.Status().Tile, Actor: "ann", Body: []byte(body)})
	if !strings.Contains(body, "unfoldable") {
		require.NoError(s.t, err)
		require.NotZero(s.t, r)
	}
	time.Sleep(1500 * time.Millisecond)
}

func TestRulesSeeTheirNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newShore(t), &notes{ticks: map[fence.Tick][]tile.Rim{}}
		p, stop := s.run(east, looksWest(n), tile.Config{CheckResolve: true})
		rim, _ := n.rim()
		assert.Equal(t, tile.Rim{}, rim, "the tile is unknown")
		assert.Equal(t, 1, p.Status().StaleSights)

		w, stopWest := s.run(west, &quay{}, tile.Config{})
		s.leave(w, "1boat ")
		s.leave(w, "2crate ")
		rim, seen := n.rim()
		require.True(t, rim.Fresh)
		assert.Equal(t, "map[1:boat ]", seen)
		assert.Equal(t, w.Status().Position, rim.Position)
		assert.LessOrEqual(t, rim.Age, time.Second)
		assert.InDelta(t, float64(w.Status().Tick), float64(rim.Tick), 3)
		assert.Equal(t, 1, p.Status().Sights)
		assert.Zero(t, p.Status().StaleSights)

		// A tick that is decided several times sees the same.
		s.leave(p, "panic")
		asked := 0
		n.mu.Lock()
		for _, all := range n.ticks {
			asked = max(asked, len(all))
			for _, r := range all {
				require.Equal(t, all[0], r)
			}
		}
		n.mu.Unlock()
		require.Greater(t, asked, 1)

		before := rim
		require.NoError(t, stopWest()) // it sleeps
		time.Sleep(5 * time.Second)
		rim, seen = n.rim()
		assert.False(t, rim.Fresh)
		assert.Equal(t, "map[1:boat ]", seen, "what was seen last")
		assert.Equal(t, 1, p.Status().StaleSights)

		w, stopWest = s.run(west, &quay{}, tile.Config{})
		s.leave(w, "1another ")
		rim, seen = n.rim()
		assert.True(t, rim.Fresh)
		assert.Greater(t, rim.Position.Epoch, before.Position.Epoch)
		assert.Equal(t, "map[1:boat another ]", seen)

		s.leave(w, "1unfoldable") // its rules fail with what is committed: it is quarantined
		require.Error(t, stopWest())
		time.Sleep(10 * time.Second)
		rim, _ = n.rim()
		assert.False(t, rim.Fresh)

		require.NoError(t, stop())
		p, stop = s.run(east, looksWest(n), tile.Config{}) // another owner looks anew
		time.Sleep(2 * time.Second)
		assert.Equal(t, tile.Serving, p.Status().State)
		require.NoError(t, stop())
	})
}

// TestAViewThatFails: the tile goes on without it, and looks again later.
func TestAViewThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newShore(t), &notes{ticks: map[fence.Tick][]tile.Rim{}}
		var failed []*tile.RulesError
		east1, stop := s.run(east, looksWest(n), tile.Config{Hooks: tile.Hooks{RulesFailed: func(e *tile.RulesError) {
			failed = append(failed, e)
		}}})
		w, stopWest := s.run(west, &tolerant{}, tile.Config{})
		s.leave(w, "1boat ")
		s.leave(w, "1unfoldable ")
		rim, _ := n.rim()
		assert.Equal(t, tile.Rim{}, rim)
		s.leave(east1, "1it goes on ")
		time.Sleep(40 * time.Second) // behind a snapshot, in which it can be folded
		rim, seen := n.rim()
		assert.True(t, rim.Fresh)
		assert.Equal(t, "map[1:boat unfoldable ]", seen)
		require.NoError(t, stop())
		require.NoError(t, stopWest())
		require.NotEmpty(t, failed)
		assert.Equal(t, "View", failed[0].Call)
	})
}

// tolerant is a quay that folds anything.
type tolerant struct{ quay }

func (q *tolerant) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		q.lines[q.Area(e)] += string(e[1:])
	}
	return nil
}

// TestBadSights: rules that look where they may not see nothing, and the tile goes on.
func TestBadSights(t *testing.T) {
	view := func() tile.View { return &quay{} }
	for name, sights := range map[string][]tile.Sight{
		"itself":     {{Tile: east, View: view}},
		"nothing":    {{View: view}},
		"twice":      {{Tile: west, View: view}, {Tile: west, View: view}},
		"no view":    {{Tile: west}},
		"far around": make([]tile.Sight, tile.MaxSights+1),
	} {
		synctest.Test(t, func(t *testing.T) {
			s, n := newShore(t), &notes{ticks: map[fence.Tick][]tile.Rim{}}
			p, stop := s.run(east, &quay{sights: sights, notes: n}, tile.Config{})
			s.leave(p, "1it goes on ")
			rim, _ := n.rim()
			assert.Equal(t, tile.Rim{}, rim, name)
			assert.Equal(t, "Sights", p.Status().Failure.Call, name)
			assert.ErrorIs(t, p.Status().Failure, fence.ErrInvalidArgument, name)
			require.NoError(t, stop())
		})
	}
}
