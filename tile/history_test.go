package tile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
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

func newHistory() (*history, *letters) {
	rules := &letters{}
	return &history{tile: 7, rules: rules, actions: actionMemory{keep: 100}, bound: streamBound{limit: 8 << 20}}, rules
}

// entries are batches of one event and one action each, in a chain.
func entries(t *testing.T, from fence.Position, words ...string) (all []fence.Entry) {
	t.Helper()
	for i, w := range words {
		payload, private, err := (&stream.Batch{Events: [][]byte{[]byte(w)},
			Resolutions: []stream.Resolution{{ActionID: w, Outcome: stream.Applied}}}).Encode()
		require.NoError(t, err)
		c := fence.Commit{Tile: 7, Epoch: 1, Contact: "a:1", Prev: from, Tick: fence.Tick(10 * (i + 1)),
			Payload: payload, Private: private}
		all = append(all, c.Entry())
		from = c.Next()
	}
	return all
}

func TestHistoryReplaysSnapshotAndTail(t *testing.T) {
	h, rules := newHistory()
	tail := entries(t, fence.Position{}, "a", "b", "c")
	require.NoError(t, h.replay(nil, tail[:2]))
	blob, err := h.blob()
	require.NoError(t, err)
	assert.Equal(t, 2, h.gameBytes)

	other, state := newHistory()
	other.seen = 25
	s := h.snapshot(h.position, "a:1", blob)
	require.NoError(t, s.Verify(7))
	require.NoError(t, other.replay(&s, tail[2:]))
	assert.Equal(t, "abc", state.state)
	assert.Equal(t, "ab", rules.state)
	assert.Equal(t, tail[2].Position, other.position)
	assert.Equal(t, fence.Tick(30), other.tick)
	assert.Positive(t, other.bound.added)
	for _, id := range []string{"a", "b", "c"} {
		o, ok := other.actions.outcome(id)
		assert.True(t, ok && o == stream.Applied, id)
	}
	other.seen = 200
	require.NoError(t, other.replay(&s, nil))
	assert.Equal(t, fence.Tick(200), other.tick, "ticks that were seen are not played again")
	assert.Empty(t, other.actions.order, "outcomes expire by the tick that the tile has come to")
}

func TestHistoryRefusesWhatItCannotRead(t *testing.T) {
	h, _ := newHistory()
	assert.ErrorIs(t, h.replay(&fence.Snapshot{Blob: []byte{9}}, nil), fence.ErrCorrupt)
	assert.ErrorIs(t, h.replay(nil, []fence.Entry{{Payload: []byte{9}}}), fence.ErrCorrupt)
	assert.ErrorContains(t, h.replay(nil, entries(t, fence.Position{}, "!")), "not a letter")
}

func TestHistoryIsExtendedByWhatContinuesIt(t *testing.T) {
	tail := entries(t, fence.Position{}, "a", "b", "c")
	owner := func(at fence.Position) fence.Owner { return fence.Owner{Epoch: 1, Contact: "a:1", Position: at} }
	for name, c := range map[string]struct {
		chunk stream.Chunk
		want  bool
	}{
		"to the end":            {stream.Chunk{Entries: tail[1:], Owner: owner(tail[2].Position)}, true},
		"without an owner hash": {stream.Chunk{Entries: tail[1:]}, true},
		"the hash is ahead":     {stream.Chunk{Entries: tail[1:2], Owner: owner(tail[2].Position)}, true},
		"the hash is behind":    {stream.Chunk{Entries: tail[1:], Owner: owner(tail[0].Position)}, false},
		"a gap":                 {stream.Chunk{Entries: tail[2:], Owner: owner(tail[2].Position)}, false},
		"a rebase": {stream.Chunk{Entries: []fence.Entry{{Prev: tail[0].Position,
			Kind: fence.KindRebase}}}, false},
		"an entry out of chain": {stream.Chunk{Entries: []fence.Entry{{Prev: tail[0].Position,
			Payload: tail[1].Payload}}}, false},
		"an entry that is bad":   {stream.Chunk{Entries: entries(t, tail[0].Position, "!")}, false},
		"an unreadable entry":    {stream.Chunk{Entries: tail[1:2], Poison: &stream.Poison{}}, false},
		"nothing, and no change": {stream.Chunk{Owner: owner(tail[0].Position)}, true},
	} {
		h, _ := newHistory()
		require.NoError(t, h.replay(nil, tail[:1]))
		assert.Equal(t, c.want, h.extend(&c.chunk), name)
	}
	h, _ := newHistory()
	require.NoError(t, h.replay(nil, tail[:1]))
	ahead := stream.Chunk{Owner: owner(tail[2].Position)}
	for range stuckBeforeReload - 1 {
		assert.True(t, h.extend(&ahead), "entries may follow")
	}
	assert.False(t, h.extend(&ahead), "the stream is gone")
}

func TestKeptBatchesStayWithinTheirBound(t *testing.T) {
	k := keptBatches{limit: 3 * (entryOverhead + 10)}
	at := fence.Position{}
	var all []fence.Position
	var forgotten []fence.Position
	for range 5 {
		c := fence.Commit{Tile: 7, Epoch: 1, Prev: at, Payload: make([]byte, 10)}
		forgotten = append(forgotten, k.add(c)...)
		all = append(all, at)
		at = c.Next()
	}
	assert.Equal(t, all[1:3], forgotten)
	lost, ok := k.after(all[3])
	require.True(t, ok)
	assert.Len(t, lost, 2)
	_, ok = k.after(all[0])
	assert.False(t, ok, "it was forgotten")
	k.add(fence.Commit{Prev: at, Payload: make([]byte, 10_000)})
	assert.Len(t, k.batches, 1, "the last one is kept whatever its size")
	k.clear()
	assert.Zero(t, k.bytes)
	assert.Empty(t, k.batches)
}

func TestDurableStateAgainstTheStream(t *testing.T) {
	at := func(e fence.Epoch, s fence.Seq) fence.Position { return fence.Position{Epoch: e, Seq: s, Chain: 1} }
	assert.Equal(t, streamReaches, compare(at(2, 10), at(2, 10)))
	assert.Equal(t, streamReaches, compare(at(3, 10), at(2, 9)))
	assert.Equal(t, durableAhead, compare(at(2, 10), at(2, 11)))
	assert.Equal(t, durableAhead, compare(at(2, 10), at(3, 5)))
	assert.Equal(t, streamWentOn, compare(at(3, 10), at(2, 11)))

	tail := entries(t, fence.Position{}, "a", "b", "c")
	h := &stream.Recovery{Entries: tail}
	how, ok := compareThrough(h, tail[2].Position, tail[1].Position)
	assert.True(t, ok && how == streamReaches)
	_, ok = compareThrough(h, at(9, 9), tail[1].Position)
	assert.False(t, ok, "another history was replayed")
	how, ok = compareThrough(h, tail[1].Position, tail[2].Position)
	assert.True(t, ok && how == durableAhead, "what came after the replayed position does not count")
	events := []fence.Entry{tail[0], tail[1]}
	events[1].Position = at(5, 2)
	how, ok = compareThrough(&stream.Recovery{Entries: events}, at(5, 2), tail[2].Position)
	assert.True(t, ok && how == streamWentOn, "a later owner has committed events without it")
}

func TestJournalsTailContinuesTheCheckpoint(t *testing.T) {
	tail := entries(t, fence.Position{}, "a", "b", "c")
	got, err := continuing(7, fence.Position{}, tail)
	require.NoError(t, err)
	assert.Len(t, got, 3)
	_, err = continuing(7, tail[0].Position, tail[2:])
	assert.ErrorIs(t, err, stream.ErrGap)
	got, err = continuing(7, fence.Position{Epoch: 2, Seq: 9, Chain: 9}, tail)
	require.NoError(t, err)
	assert.Empty(t, got, "left from a history that a later owner has replaced")
	tail[1].Tick++
	_, err = continuing(7, fence.Position{}, tail)
	assert.ErrorIs(t, err, fence.ErrCorrupt)
}

func TestRetryEndsByItsLimitAndItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &fence.StoreError{Op: "test", Outcome: fence.ErrNotApplied, Err: errors.New("busy")}
		reports := 0
		count := func(error) { reports++ }
		began := time.Now()
		assert.ErrorIs(t, retry(t.Context(), time.Second, count, func() error { return busy }), fence.ErrNotApplied)
		assert.InDelta(t, 1, time.Since(began).Seconds(), 0.4)
		assert.Greater(t, reports, 3)

		tries := 0
		require.NoError(t, retry(t.Context(), 0, count, func() error {
			if tries++; tries < 50 {
				return busy
			}
			return nil
		}))
		tries = 0
		assert.Equal(t, fence.ErrStale, retry(t.Context(), 0, count, func() error { tries++; return fence.ErrStale }))
		assert.Equal(t, 1, tries, "a refusal is not repeated")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, errDrained, retry(ctx, 0, count, func() error { return busy }))
	})
}

func newTestDesk(t *testing.T, cfg Config) *desk {
	t.Helper()
	cfg.Logger, cfg.Hooks = slog.New(slog.DiscardHandler), cfg.Hooks.filled()
	cfg.QueueLimit = max(cfg.QueueLimit, 2)
	return newDesk(7, "a:1", &cfg)
}

func TestDeskAnswersEverySubmission(t *testing.T) {
	d := newTestDesk(t, Config{})
	first, err := d.submit(Intent{Tile: 7})
	require.NoError(t, err)
	second, err := d.submit(Intent{Tile: 7})
	require.NoError(t, err)
	_, err = d.submit(Intent{Tile: 7})
	assert.ErrorIs(t, err, ErrOverloaded)
	assert.Equal(t, 2, d.read().Queued)
	queue := d.take()
	queue[0].presented = true
	d.requeue(queue)
	d.enter(Claiming, 3)
	d.yield(fence.Owner{Epoch: 2, Contact: "old:1"})
	d.yield(fence.Owner{Epoch: 4, Contact: "a:1"})
	require.NoError(t, d.away(), "neither an older epoch nor its own contact is a successor")
	d.yield(fence.Owner{Epoch: 4, Contact: "b:1"})
	var away *RedirectError
	require.ErrorAs(t, (<-second).err, &away)
	assert.Equal(t, "b:1", away.Contact)
	require.ErrorAs(t, d.away(), &away)
	assert.Empty(t, first, "it was presented")
	d.resume()
	require.NoError(t, d.away())

	third, err := d.submit(Intent{Tile: 7})
	require.NoError(t, err)
	pending := make(chan answer, 1)
	d.close(3, fence.Owner{Epoch: 5, Contact: "c:1"}, true, []submission{{answer: pending}})
	var unresolved *UnresolvedError
	require.ErrorAs(t, (<-first).err, &unresolved)
	assert.Equal(t, "c:1", unresolved.Contact)
	require.ErrorAs(t, (<-pending).err, &unresolved)
	require.ErrorAs(t, (<-third).err, &away)
	assert.Equal(t, fence.Epoch(5), away.Epoch)
	_, err = d.submit(Intent{Tile: 7})
	assert.ErrorIs(t, err, ErrRedirect)
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

func TestWatchBoundsWhatTheOwnerCanHavePlayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := func(from, to time.Time) fence.Tick { return fence.Tick(to.Sub(from) / time.Second) }
		var w watch
		_, ok := w.played(0, ticks)
		assert.False(t, ok, "nothing was seen")
		w.saw(fence.Owner{Epoch: 3, Contact: "a:1", Tick: 100}, time.Minute)
		time.Sleep(10 * time.Second)
		n, ok := w.played(90, ticks)
		assert.True(t, ok)
		assert.Equal(t, fence.Tick(20), n)
		w.saw(fence.Owner{}, time.Minute)
		time.Sleep(time.Hour)
		n, _ = w.played(90, ticks)
		assert.Equal(t, fence.Tick(20), n, "an owner whose hash is gone acknowledges nothing")
		_, ok = w.played(101, ticks)
		assert.False(t, ok, "the durable state is later than what was seen")
		assert.Equal(t, fence.Epoch(3), w.epoch())
		w.rival = fence.Grant{Epoch: 5, Contact: "b:1"}
		assert.Equal(t, "b:1", w.latest().Contact)
	})
}
