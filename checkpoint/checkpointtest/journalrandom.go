package checkpointtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait"
)

// journalModel is what a journal of one tile should hold: the contract in its shortest form.
type journalModel struct {
	tile    fence.TileID
	sealed  fence.Epoch
	end     fence.Position
	base    fence.Snapshot // the latest checkpoint
	entries map[fence.Seq]fence.Entry
}

// The methods return why a call is refused.

func (m *journalModel) seal(epoch fence.Epoch) error {
	if epoch < m.sealed {
		return fence.ErrStale
	}
	m.sealed = epoch
	return nil
}

func (m *journalModel) lay(s fence.Snapshot) error {
	at := s.Position
	if at != m.base.Position { // the checkpoint that is there stays, whatever the bytes
		if !checkpoint.Supersedes(at, m.base.Position) {
			return checkpoint.ErrOlder
		}
		m.base = s
	}
	switch {
	case at.Epoch < m.sealed:
		return fence.ErrStale
	case at.Epoch == m.end.Epoch && at.Seq < m.end.Seq:
		return fence.ErrRegress
	}
	m.sealed, m.end = at.Epoch, at
	return nil
}

func (m *journalModel) append(e fence.Entry) error {
	switch {
	case e.Epoch < m.sealed:
		return fence.ErrStale
	case e.Epoch > m.sealed:
		return fence.ErrNoOwner
	case m.end == e.Position:
		return nil
	case m.end != e.Prev && m.end.Seq < e.Prev.Seq:
		return fence.ErrBehind
	case m.end != e.Prev:
		return fence.ErrForked
	}
	m.entries[e.Seq], m.end = e, e.Position
	return nil
}

// head is the journal's description, and the positions of its entries.
func (m *journalModel) head() (h checkpoint.JournalHead, all []fence.Position) {
	h = checkpoint.JournalHead{Tile: m.tile, JournalEnd: checkpoint.JournalEnd{Sealed: m.sealed, End: m.end}}
	for _, seq := range slices.Sorted(maps.Keys(m.entries)) {
		all = append(all, m.entries[seq].Position)
		h.Bytes += len(m.entries[seq].Frame)
	}
	if h.Entries = len(all); h.Entries > 0 {
		h.First, h.Last = all[0], all[len(all)-1]
	}
	return h, all
}

// check compares what a journal answered and what it holds with the model.
func (m *journalModel) check(rt *rapid.T, j checkpoint.Backend, err, want error, was journalModel) {
	switch {
	case want == nil:
		require.NoError(rt, err)
	case errors.Is(want, checkpoint.ErrOlder):
		require.ErrorIs(rt, err, want)
	default:
		requireRefused(rt, err, want, m.tile, was.sealed, was.end)
	}
	head, all := m.head()
	got, err := j.JournalHead(context.Background(), m.tile)
	require.NoError(rt, err)
	require.Equal(rt, head, got)
	after := fence.Seq(rapid.IntRange(0, 12).Draw(rt, "after"))
	tail, err := j.Tail(context.Background(), m.tile, after)
	require.NoError(rt, err)
	all = slices.DeleteFunc(all, func(at fence.Position) bool { return at.Seq <= after })
	require.Equal(rt, append([]fence.Position{}, all...), append([]fence.Position{}, positions(tail)...))
	base, found, err := j.Get(context.Background(), m.tile)
	require.NoError(rt, err)
	require.Equal(rt, !m.base.Position.IsZero(), found)
	require.Equal(rt, m.base, base)
}

// testJournalModel compares random calls, on both handles, with the model. The numbers are small, so that calls meet,
// and on both sides of 9, where text has another order.
func testJournalModel(t *testing.T, h JournalHarness) {
	next := tile
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		next++
		model := journalModel{tile: next, entries: map[fence.Seq]fence.Entry{}}
		known := []fence.Position{{}}
		for range rapid.IntRange(1, 20).Draw(rt, "calls") {
			j := h.Journal
			if rapid.Bool().Draw(rt, "other") {
				j = h.Other
			}
			epoch := fence.Epoch(rapid.IntRange(8, 11).Draw(rt, "epoch"))
			at := known[rapid.IntRange(0, len(known)-1).Draw(rt, "at")]
			seq := fence.Seq(rapid.IntRange(7, 12).Draw(rt, "seq"))
			content := []byte{byte(rapid.IntRange(0, 1).Draw(rt, "content"))}
			was := model
			var err, want error
			switch op := rapid.IntRange(0, 9).Draw(rt, "op"); op {
			case 0:
				err, want = j.Seal(ctx, next, epoch), model.seal(epoch)
			case 1:
				err = j.Truncate(ctx, next, seq)
				maps.DeleteFunc(model.entries, func(s fence.Seq, _ fence.Entry) bool { return s <= seq })
			case 2:
				s := snapshot(epoch, seq, content)
				err, want = j.Base(ctx, next, s), model.lay(s)
				known = append(known, s.Position)
			default:
				if op > 3 {
					epoch = max(1, model.sealed)
				}
				if op > 5 {
					at = model.end
				}
				e := entry(next, max(epoch, at.Epoch), at, content)
				err, want = j.Append(ctx, next, e), model.append(e)
				known = append(known, e.Position)
			}
			model.check(rt, j, err, want, was)
		}
	})
}

func positions(entries []fence.Entry) []fence.Position {
	var at []fence.Position
	for i := range entries {
		at = append(at, entries[i].Position)
	}
	return at
}

// answered makes a call until it is answered: many writers at once may find a back end busy.
func answered(call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if try == 20 || (!errors.Is(err, fence.ErrNotApplied) && !errors.Is(err, fence.ErrUnknownOutcome)) {
			return err
		}
	}
}

// testZombie lets an owner append as fast as it can while another seals the journal. What was acknowledged
// to the first is in the tail the second reads, nothing that it begins after the Seal has returned is
// acknowledged, and nothing appears in the journal once the tail has been read.
func testZombie(t *testing.T, h JournalHarness) {
	const rounds = 40
	seal(t, h.Journal, tile, 1)
	at := fence.Position{}
	for epoch := fence.Epoch(1); epoch < rounds; epoch++ {
		owner, heir := h.Journal, h.Other
		if epoch%2 == 0 {
			owner, heir = heir, owner
		}
		var sealed atomic.Bool
		var yes []fence.Position
		var group errgroup.Group
		started := make(chan struct{}, 1)
		running := func() {
			wait.Wake(started)
		}
		group.Go(func() error {
			defer running()
			prev := at
			for n := 0; ; n++ {
				e := entry(tile, epoch, prev, noise(10+n%5))
				var late bool
				err := answered(func() error {
					late = sealed.Load()
					return owner.Append(t.Context(), tile, e)
				})
				switch {
				case errors.Is(err, fence.ErrStale):
					return nil
				case err != nil:
					return err
				case late:
					return fmt.Errorf("the append at %s was begun after the journal was sealed for %d, and kept",
						e.Position, epoch+1)
				}
				yes, prev = append(yes, e.Position), e.Position
				running()
			}
		})
		<-started
		require.NoError(t, answered(func() error { return heir.Seal(t.Context(), tile, epoch+1) }))
		sealed.Store(true)
		tail, err := heir.Tail(t.Context(), tile, at.Seq)
		require.NoError(t, err)
		require.NoError(t, group.Wait())
		held := positions(tail)
		require.GreaterOrEqual(t, len(held), len(yes), "a batch that was acknowledged is not in the tail")
		require.Equal(t, yes, held[:len(yes)])
		tailIs(t, heir, tile, at.Seq, tail...)
		at = held[len(held)-1]
		require.NoError(t, answered(func() error { return heir.Truncate(t.Context(), tile, at.Seq-1) }))
	}
}

// testSuccessors lets several processes take the tile from one another at random, each going on from the tail
// it read. In the end the journal is one chain, and everything that was acknowledged is in it.
func testSuccessors(t *testing.T, h JournalHarness) {
	source := seed.Of(t)
	const owners, terms = 4, 12
	race := successors{tile: tile, acked: map[fence.Position]bool{}}
	var group errgroup.Group
	for i := range owners {
		rng := rand.New(rand.NewPCG(source, uint64(i)))
		j := []checkpoint.Backend{h.Journal, h.Other}[i%2]
		group.Go(func() error {
			for range terms {
				if err := race.term(t.Context(), j, rng); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	last := rand.New(rand.NewPCG(source, owners))
	for len(race.acked) == 0 { // each was replaced before its first entry
		require.NoError(t, race.term(t.Context(), h.Journal, last))
	}
	tail, err := h.Other.Tail(t.Context(), tile, 0)
	require.NoError(t, err)
	prev := fence.Position{}
	for _, e := range tail {
		require.Equal(t, prev, e.Prev, "the journal forks at %s", e.Position)
		prev = e.Position
		delete(race.acked, e.Position)
	}
	require.Empty(t, race.acked, "acknowledged, and not in the journal")
	require.NotEmpty(t, tail)
}

// successors is a race for one tile.
type successors struct {
	tile  fence.TileID
	epoch atomic.Uint64

	mu    sync.Mutex
	acked map[fence.Position]bool
}

// term is one owner's, from its Seal until it is replaced or has had enough.
func (s *successors) term(ctx context.Context, j checkpoint.JournalStore, rng *rand.Rand) error {
	epoch := fence.Epoch(s.epoch.Add(1))
	err := answered(func() error { return j.Seal(ctx, s.tile, epoch) })
	if errors.Is(err, fence.ErrStale) {
		return nil // another owner was faster
	}
	if err != nil {
		return err
	}
	tail, err := j.Tail(ctx, s.tile, 0)
	if err != nil {
		return err
	}
	at := fence.Position{}
	if len(tail) > 0 {
		at = tail[len(tail)-1].Position
	}
	if at.Epoch > epoch {
		return nil // replaced before it began
	}
	for range rng.IntN(12) {
		e := entry(s.tile, epoch, at, noise(10+rng.IntN(100)))
		err := answered(func() error { return j.Append(ctx, s.tile, e) })
		if errors.Is(err, fence.ErrStale) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.acked[e.Position] = true
		s.mu.Unlock()
		at = e.Position
	}
	return nil
}
