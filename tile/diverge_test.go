package tile_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// bent is a ledger that does something wrong.
type bent struct {
	ledgerRules
	ignores string // a word that Apply does not fold
	adds    bool   // Resolve folds what it decides
	bullets bool   // Snapshot is in another encoding; Restore knows both
	counts  bool   // Snapshot is another one each time
	calls   int
}

func (b *bent) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	if b.adds {
		b.Words = append(b.Words, fmt.Sprint(tick))
	}
	return b.ledgerRules.Resolve(tick, intents)
}

func (b *bent) Apply(tick fence.Tick, events [][]byte) error {
	for _, e := range events {
		if string(e) != b.ignores {
			b.Words = append(b.Words, string(e))
		}
	}
	return nil
}

func (b *bent) Snapshot() ([]byte, error) {
	s, err := b.ledgerRules.Snapshot()
	if b.bullets {
		s = append([]byte("* "), s...)
	}
	if b.calls++; b.counts {
		s = fmt.Append(s, " ", b.calls)
	}
	return s, err
}

func (b *bent) Restore(snapshot []byte) error {
	return b.ledgerRules.Restore(bytes.TrimPrefix(snapshot, []byte("* ")))
}

// watched is a processor of bent rules, and what it reported.
type watched struct {
	*runner
	rules *bent

	diverged []tile.DivergenceInfo
	log      bytes.Buffer
}

func (w *world) watched(contact string, rules *bent, cfg tile.Config) *watched {
	w.t.Helper()
	p := &watched{rules: rules}
	cfg.Hooks.Diverged = func(i tile.DivergenceInfo) { p.diverged = append(p.diverged, i) }
	cfg.Logger = slog.New(slog.NewTextHandler(&p.log, nil))
	seams := w.seams()
	proc, err := tile.New(testTile, contact, seams, rules, &cfg)
	require.NoError(w.t, err)
	p.runner = launch(w.t, proc, &rules.ledgerRules)
	return p
}

// reports waits until all is quiet and returns what was reported, and how many lines of a level were logged.
func (p *watched) reports(level string) (diverged []tile.DivergenceInfo, lines int) {
	time.Sleep(5 * time.Second)
	synctest.Wait()
	return p.diverged, strings.Count(p.log.String(), "level="+level)
}

// hold keeps the stream from being trimmed for an hour, so that no follower has to read a snapshot.
func (w *world) hold() {
	w.t.Helper()
	mark := stream.MarkWrite{Tile: testTile, Consumer: stream.BridgeAcked, Seq: 1}
	require.NoError(w.t, stream.MarkOne(w.t.Context(), w.log, mark))
}

// play commits words, a tick for each.
func (p *watched) play(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		p.say(t, "", w)
	}
}

var everyFour = tile.Config{SnapshotEvery: 4}

// followingEveryFour reads more often than the owner ticks: what it has not read is not trimmed.
func followingEveryFour() tile.Config {
	return tile.Config{SnapshotEvery: 4, Follow: true, TickInterval: 200 * time.Millisecond,
		SuspectAfter: 2 * time.Second}
}

func TestFollowerWhoseRulesDifferIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, f := w.watched("a:1", &bent{}, everyFour), w.watched("f:1", &bent{ignores: "x"}, followingEveryFour())
		a.play(t, "a", "b", "c", "d", "e", "f", "g")
		found, errs := f.reports("ERROR")
		require.Empty(t, found)
		require.Zero(t, errs)

		a.play(t, "h", "x", "i", "j", "k", "l", "m")
		found, errs = f.reports("ERROR")
		require.Len(t, found, 1, "it has gone on from the owner's snapshot")
		i := found[0]
		assert.Equal(t, testTile, i.Tile)
		assert.Contains(t, string(i.Stored), "h x i")
		assert.Contains(t, string(i.Own), "h i")
		assert.Equal(t, strings.Index(string(i.Stored), "x"), i.Offset)
		batches := 1 + len(strings.Fields(string(i.Stored))) // a genesis, and one for each word
		assert.Equal(t, fence.Seq(batches), i.At.Seq)
		assert.False(t, i.Recoded)
		assert.Equal(t, 1, errs)
		assert.Contains(t, f.log.String(), "follower's state differs from the owner's")
		assert.Contains(t, f.log.String(), "look_for=\"Resolve that changes the state")
		assert.NotContains(t, f.log.String(), "again")
		assert.Equal(t, a.rules.Words, f.rules.Words)

		a.play(t, "n", "o", "p", "q", "r", "s", "t", "u", "v")
		found, _ = f.reports("ERROR")
		assert.Len(t, found, 1)
		assert.Contains(t, f.log.String(), "follower's state is the owner's again")
		assert.Empty(t, a.diverged)
	})
}

// TestOwnerWhoseResolveWritesIsReported: the follower folds what it should, and the owner does not.
func TestOwnerWhoseResolveWritesIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, f := w.watched("a:1", &bent{adds: true}, everyFour), w.watched("f:1", &bent{}, followingEveryFour())
		for i := range 40 {
			a.play(t, fmt.Sprint("w", i))
		}
		found, errs := f.reports("ERROR")
		assert.Greater(t, len(found), 6, "after each snapshot")
		assert.Equal(t, 1, errs, "it has not ended since it was logged")
		for _, i := range found {
			assert.False(t, i.Recoded)
		}
	})
}

func TestFollowerThatTakesOverServesWhatTheOwnerHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.watched("a:1", &bent{}, tile.Config{SnapshotEvery: 4, Limits: tile.Limits{MarkLease: time.Hour}})
		a.play(t, "first")
		w.hold()
		cfg := followingEveryFour()
		cfg.TickInterval, cfg.SuspectAfter = 30*time.Second, 10*time.Minute // it has not read what was said last
		f := w.watched("f:1", &bent{ignores: "x"}, cfg)
		time.Sleep(time.Minute)
		a.play(t, "a", "x", "c", "d", "e", "f", "g", "h", "i")
		f.TakeOver(tile.Ordered)
		for f.Status().State != tile.Serving {
			time.Sleep(time.Second)
		}
		f.play(t, "last")
		assert.Equal(t, "first a x c d e f g h i last", strings.Join(f.rules.Words, " "))
		require.Len(t, f.diverged, 1)
		<-a.done
	})
}

func TestAnotherEncodingIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, f := w.watched("a:1", &bent{}, everyFour), w.watched("f:1", &bent{bullets: true}, followingEveryFour())
		for i := range 30 {
			a.play(t, fmt.Sprint("w", i))
		}
		found, errs := f.reports("ERROR")
		require.Len(t, found, 1)
		assert.True(t, found[0].Recoded)
		assert.Zero(t, found[0].Offset)
		assert.Zero(t, errs)
		assert.Contains(t, f.log.String(), "level=WARN msg=\"the owner encodes the tile's state otherwise")
		assert.Equal(t, a.rules.Words, f.rules.Words)
	})
}

// TestFollowersThatAgreeAreCompared: many ticks, some quiet, under owners that come and go, and no alarm. It costs no
// reading of snapshots beyond those of a follower that was not compared.
func TestFollowersThatAgreeAreCompared(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t)
		cfg := tile.Config{SnapshotEvery: 10, Limits: tile.Limits{MarkLease: time.Hour}}
		owner := w.process("p0:1", cfg) // a false alarm fails the test
		owner.say(t, "first", "first")
		w.hold()
		cfg.Follow = true
		compared := 0
		for i := range 6 {
			f := w.process(fmt.Sprintf("p%d:1", i+1), cfg)
			for n := range 100 {
				owner.say(t, fmt.Sprint("act", i, n), fmt.Sprint(r.IntN(1000)))
				time.Sleep(time.Duration(r.IntN(3)*r.IntN(900)) * time.Millisecond)
			}
			f.line.set(func(l *line) { assert.LessOrEqual(t, l.snapshots, 1) })
			if i%2 == 0 {
				owner.kill()
			} else {
				f.TakeOver(tile.Ordered)
			}
			f.eventually(t, tile.Serving, time.Minute)
			compared += f.Agreed()
			owner = f
		}
		assert.Greater(t, compared, 30)
	})
}

// BenchmarkCompare is what a snapshot of the owner costs beside the snapshot: the owner a sum, and each follower an
// encoding of its state and a sum.
func BenchmarkCompare(b *testing.B) {
	const size = 256 << 10
	rules := &ledgerRules{Words: strings.Fields(strings.Repeat("seven77 ", size/8))}
	state, err := rules.Snapshot()
	require.NoError(b, err)
	b.Run("sum of 256 KiB", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			stream.SumState(state)
		}
	})
	b.Run("encoding and sum", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			state, _ = rules.Snapshot()
			stream.SumState(state)
		}
	})
}

// TestFullBatchIsCommittedWithoutTheSum: what the owner says of its state takes no room from what the game has to say.
func TestFullBatchIsCommittedWithoutTheSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		largest, sums := 0, 0
		commit := func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
			largest = max(largest, len(c.Payload)+len(c.Private))
			if len(c.Private) > 0 && c.Private[0] == 128 {
				sums++
			}
			return w.store.Commit(ctx, c)
		}
		a := w.start("a:1", tile.Config{SnapshotEvery: 1, Commit: commit})
		a.say(t, "", "first")
		a.say(t, "", "second")
		require.Equal(t, 1, sums)

		const event = tile.MaxIntentBody + 2   // with its length
		const head = 1 + 3                     // area and length of the part
		n := (fence.MaxPayload - head) / event // as many as fit
		rest := fence.MaxPayload - head - n*event - 2
		var sending sync.WaitGroup
		for i := range n + 1 {
			body := strings.Repeat("x", tile.MaxIntentBody)
			if i == n {
				body = body[:rest]
			}
			sending.Go(func() { a.say(t, "", body) })
		}
		sending.Wait()
		assert.Equal(t, fence.MaxPayload, largest)
		assert.Equal(t, 1, sums)
		assert.Len(t, a.rules.Words, n+3)
		require.NoError(t, a.drain())
	})
}
