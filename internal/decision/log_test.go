package decision

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

const tile fence.TileID = 0x85283083fffffff

// events reads a log.
func events(t testing.TB, path string, id fence.TileID) (f *File, all []Event) {
	t.Helper()
	f, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, f.Each(id, func(e *Event) { all = append(all, *e) }))
	return f, all
}

// TestWhatIsDecidedIsRead: each call with what it was answered, in order, and nothing that is not about a tile.
func TestWhatIsDecidedIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Create(path)
	require.NoError(t, err)
	s := l.Server("a:1")
	authority, store := s.Authority(memfence.NewAuthority()), s.Store(memfence.New())
	ctx := t.Context()

	claim := fence.Claim{Tile: tile, Contact: "a:1", ID: fence.NewClaimID(), Floor: 6}
	g, err := authority.Claim(ctx, claim)
	require.NoError(t, err)
	late := fence.Claim{Tile: tile, Contact: "b:1", ID: fence.NewClaimID(), Expected: 1}
	_, err = authority.Promote(ctx, late)
	require.ErrorIs(t, err, fence.ErrLost)
	rebase := fence.Rebase{Tile: tile, Epoch: g.Epoch, Contact: "a:1", Seq: 1, Blob: []byte("state"),
		Replicas: fence.AllReplicas, Replaces: &fence.Position{}}
	born, err := store.Rebase(ctx, rebase)
	require.NoError(t, err)
	commit := fence.Commit{Tile: tile, Epoch: g.Epoch, Contact: "a:1", Prev: born.Position, Tick: 3,
		Payload: []byte("x")}
	done, err := store.Commit(ctx, commit)
	require.NoError(t, err)
	stale := commit
	stale.Epoch, stale.Prev.Epoch = 2, 1
	_, err = store.Commit(ctx, stale)
	require.ErrorIs(t, err, fence.ErrStale)
	lost := s.Store(failing{})
	_, err = lost.Commit(ctx, commit)
	require.Error(t, err)
	require.NoError(t, store.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: tile, Position: done.Position, Tick: 3}))
	require.NoError(t, authority.Release(ctx, g))
	_, err = authority.Lookup(ctx, tile)
	require.NoError(t, err)
	s.Ended(tile, g.Epoch, fence.Owner{Tile: tile, Epoch: 9, Contact: "b:1"})
	s.Admitted("act", true)
	s.Settled("act", true)
	require.NoError(t, l.Close())
	s.Settled("too late", true)
	require.NoError(t, l.Close(), "closing twice is closing once")

	f, got := events(t, path, tile)
	require.True(t, f.Closed)
	require.Equal(t, []string{"a:1"}, f.Servers)
	for i := range got {
		require.Positive(t, got[i].Called)
		got[i].Called, got[i].Took = 0, 0
	}
	owner := fence.Owner{Tile: tile, Epoch: 7, Contact: "a:1", Position: done.Position, Tick: 3}
	record := func(contact string, id fence.ClaimID) fence.Grant {
		return fence.Grant{Tile: tile, Epoch: 7, Contact: contact, ID: id}
	}
	written := Event{Kind: Commit, Tile: tile, Epoch: 7, Prev: born.Position, Next: done.Position, Tick: 3, Bytes: 1,
		State: sum([]byte("x"), nil), Answer: Answer{Outcome: OK, At: done.Position}}
	refused, unknown := written, written
	refused.Epoch, refused.Prev, refused.Next = 2, stale.Prev, stale.Next()
	refused.Answer = Answer{Outcome: Refused, Reason: 1, Current: owner}
	unknown.Answer = Answer{Outcome: Unknown}
	want := []Event{
		{Kind: Claim, Tile: tile, ID: claim.ID, Floor: 6, Answer: Answer{Outcome: OK, Grant: record("a:1", claim.ID)}},
		{Kind: Promote, Tile: tile, Contact: "b:1", ID: late.ID, Expected: 1,
			Answer: Answer{Outcome: Lost, Grant: record("a:1", claim.ID)}},
		{Kind: Rebase, Tile: tile, Epoch: 7, Next: rebase.Next(), State: sum([]byte("state"), nil),
			Replicas: fence.AllReplicas, Replaces: true, Answer: Answer{Outcome: OK, At: born.Position}},
		written, refused, unknown,
		{Kind: Snapshot, Tile: tile, Next: done.Position, Tick: 3, Answer: Answer{Outcome: OK}},
		{Kind: Release, Tile: tile, Epoch: 7, ID: claim.ID, Answer: Answer{Outcome: OK}},
		{Kind: Lookup, Tile: tile, Answer: Answer{Outcome: OK, Grant: record("", claim.ID)}},
		{Kind: Ended, Tile: tile, Epoch: 7, Answer: Answer{Current: fence.Owner{Tile: tile, Epoch: 9, Contact: "b:1"}}},
	}
	require.Equal(t, want, got)
	_, money := events(t, path, 0)
	require.Equal(t, Admitted, money[1].Kind)
	require.True(t, money[1].Duplicate)
	require.Equal(t, "act", money[2].Action)
	require.True(t, money[2].Refunded)
}

// failing is a store that loses answers.
type failing struct{ fence.Store }

func (failing) Commit(context.Context, fence.Commit) (fence.Receipt, error) {
	return fence.Receipt{}, &fence.StoreError{Op: "commit", Outcome: fence.ErrUnknownOutcome}
}

// stuck is a file that takes nothing until it is released.
type stuck struct {
	bytes.Buffer
	release chan struct{}
	err     error
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.release
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(b)
}

func (s *stuck) Close() error { return nil }

// TestADiskThatDoesNotFollow: the buffer has a bound, no call waits, and the file says how many events it lacks.
func TestADiskThatDoesNotFollow(t *testing.T) {
	file := &stuck{release: make(chan struct{})}
	l := newLog(file)
	s := l.Server("a:1")
	const n = 500_000
	for range n {
		s.Ended(tile, 1, fence.Owner{})
	}
	dropped := l.Dropped()
	require.Positive(t, dropped)
	require.Less(t, len(l.buffer), mostBytes+1000)
	close(file.release)
	waittest.Until(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.buffer) == 0
	}, time.Minute, time.Millisecond, "the buffer is written")
	s.Ended(tile, 2, fence.Owner{})
	require.ErrorContains(t, l.Close(), "decisions were dropped")

	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	f, got := events(t, path, tile)
	require.Equal(t, dropped, f.Dropped)
	require.EqualValues(t, n-dropped+1, len(got))
	require.EqualValues(t, 2, got[len(got)-1].Epoch)
}

func TestAFileThatFails(t *testing.T) {
	file := &stuck{release: make(chan struct{}), err: errors.New("disk full")}
	close(file.release)
	l := newLog(file)
	l.Server("a:1").Ended(tile, 1, fence.Owner{})
	require.ErrorContains(t, l.Close(), "disk full")
	_, err := Create(filepath.Join(t.TempDir(), "no", "directory"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestAKilledProcess leaves a file whose last frame is torn: what comes before it is read.
func TestAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Create(path)
	require.NoError(t, err)
	s := l.Server("a:1")
	s.Ended(tile, 1, fence.Owner{Epoch: 2, Contact: string(make([]byte, 200))}) // a frame of more than 127 bytes
	s.Ended(tile, 2, fence.Owner{})
	require.NoError(t, l.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := len(whole) - 1; cut > len(Magic)+7; cut-- {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		f, got := events(t, path, tile)
		require.False(t, f.Closed)
		require.LessOrEqual(t, len(got), 2)
	}
	_, err = Open(os.Args[0])
	require.ErrorContains(t, err, "no log of decisions")
}

// A log that is not kept costs nothing.
func TestNothingIsLoggedWithoutALog(t *testing.T) {
	var l *Log
	s := l.Server("a:1")
	a, st := memfence.NewAuthority(), memfence.New()
	require.Same(t, a, s.Authority(a))
	require.Same(t, st, s.Store(st))
	s.Ended(tile, 1, fence.Owner{})
	s.Admitted("x", false)
	s.Settled("x", false)
	require.Zero(t, l.Dropped())
	require.NoError(t, l.Close())
}

func FuzzDecode(f *testing.F) {
	seed := Event{Kind: Commit, Tile: tile, Contact: "b:1", ID: fence.ClaimID{1}, Epoch: 3,
		Next: fence.Position{Epoch: 3, Seq: 9}, Answer: Answer{Outcome: Refused, Reason: 2,
			Current: fence.Owner{Epoch: 4}, Grant: fence.Grant{Epoch: 5}}, Action: "act", Called: 1}
	f.Add(seed.appendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again Event
		if e.Decode(b) != nil {
			return
		}
		require.NoError(t, again.Decode(e.appendTo(nil)))
		require.Equal(t, e, again)
	})
}

// BenchmarkCommit is what a commit that is logged costs beyond the store's.
func BenchmarkCommit(b *testing.B) {
	c := fence.Commit{Tile: tile, Epoch: 7, Contact: "a:1", Prev: fence.Position{Epoch: 7, Seq: 1}, Tick: 3,
		Payload: make([]byte, 600)}
	for name, logged := range map[string]bool{"logged": true, "not logged": false} {
		b.Run(name, func(b *testing.B) {
			var l *Log
			if logged {
				var err error
				l, err = Create(filepath.Join(b.TempDir(), "log"))
				require.NoError(b, err)
			}
			store := l.Server("a:1").Store(willing{})
			b.ReportAllocs()
			for b.Loop() {
				_, _ = store.Commit(b.Context(), c)
			}
			b.ReportMetric(float64(l.Dropped()), "dropped")
			_ = l.Close() // a loop that does nothing else overtakes the disk
		})
	}
	b.Run("paced", func(b *testing.B) { // 100,000 a second, as the disk can take them; what the writer uses is in it
		const commits = 200_000
		used := map[bool]time.Duration{}
		for _, logged := range []bool{true, false} {
			var l *Log
			if logged {
				var err error
				l, err = Create(filepath.Join(b.TempDir(), "log"))
				require.NoError(b, err)
			}
			store, began := l.Server("a:1").Store(willing{}), cputime.Used()
			for n := range commits {
				if _, _ = store.Commit(b.Context(), c); n%1000 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
			}
			require.Zero(b, l.Dropped())
			require.NoError(b, l.Close())
			used[logged] = cputime.Used() - began
		}
		b.ReportMetric(float64((used[true]-used[false]).Nanoseconds())/commits, "cpu-ns/commit")
		b.ReportMetric(0, "ns/op")
	})
}

// willing is a store that takes everything at once.
type willing struct{ fence.Store }

func (willing) Commit(_ context.Context, c fence.Commit) (fence.Receipt, error) {
	return fence.Receipt{Position: fence.Position{Epoch: c.Epoch, Seq: c.Prev.Seq + 1, Chain: 5}}, nil
}
