package sqlitefence_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/sqlitefence"
)

const tile fence.TileID = 0x85283473fffffff

func TestMain(m *testing.M) {
	// The model plays in three tests here, and waits for the disk. An authority in memory plays it more often.
	_ = flag.Set("rapid.checks", "25")
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string, cfg *sqlitefence.Config) *sqlitefence.Authority {
	t.Helper()
	a, err := sqlitefence.Open(t.Context(), path, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func claimOf(contact string) fence.Claim {
	return fence.Claim{Tile: tile, Contact: contact, ID: fence.NewClaimID()}
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		fencetest.RunAuthority(t, func(t *testing.T) fence.Authority { return open(t, sqlitefence.Memory, nil) })
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		fencetest.RunAuthority(t, func(t *testing.T) fence.Authority {
			return open(t, filepath.Join(t.TempDir(), "epochs.db"), nil)
		})
	})
	t.Run("several connections", func(t *testing.T) {
		t.Parallel()
		fencetest.RunAuthority(t, func(t *testing.T) fence.Authority {
			path := filepath.Join(t.TempDir(), "epochs.db")
			var several spread
			for range 3 {
				several = append(several, open(t, path, nil))
			}
			return several
		})
	})
}

// spread gives each claimant an authority of several on one file, as several processes would have.
type spread []*sqlitefence.Authority

func (s spread) of(id fence.ClaimID) *sqlitefence.Authority { return s[int(id[0])%len(s)] }

func (s spread) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return s.of(c.ID).Claim(ctx, c)
}

func (s spread) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	return s.of(fence.NewClaimID()).ClaimMany(ctx, claims)
}

func (s spread) World(ctx context.Context) (fence.World, error) {
	return s[0].World(ctx)
}

func (s spread) Added(
	ctx context.Context, since fence.Bookmark, limit int,
) ([]fence.Grant, fence.Bookmark, error) {
	return s.of(fence.NewClaimID()).Added(ctx, since, limit)
}

func (s spread) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
	return s.of(fence.NewClaimID()).List(ctx, after, limit)
}

func (s spread) Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error) {
	return s.of(fence.NewClaimID()).Retire(ctx, releasedFor, limit)
}

func (s spread) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	return s.of(c.ID).Promote(ctx, c)
}

func (s spread) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	return s.of(fence.NewClaimID()).Lookup(ctx, tile)
}

func (s spread) Release(ctx context.Context, g fence.Grant) error {
	return s.of(fence.NewClaimID()).Release(ctx, g)
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ? name # that % 41 means nothing.db")
	a := open(t, path, nil)
	g, err := a.Claim(t.Context(), claimOf("a:1"))
	require.NoError(t, err)
	require.NoError(t, a.Release(t.Context(), g))
	require.NoError(t, a.Close())
	require.FileExists(t, path)
	require.NoFileExists(t, path+"-wal", "the connection was not closed")

	a = open(t, path, nil)
	again := claimOf("a:1")
	again.Expected = g.Epoch
	g, err = a.Claim(t.Context(), again)
	require.NoError(t, err)
	require.EqualValues(t, 2, g.Epoch)
}

func TestOpenByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			a, err := sqlitefence.Open(t.Context(), path, nil)
			if err != nil {
				return err
			}
			_, err = a.Claim(t.Context(), claimOf("a:1"))
			if errors.Is(err, fence.ErrLost) {
				err = nil
			}
			return errors.Join(err, a.Close())
		})
	}
	require.NoError(t, group.Wait())
	g, err := open(t, path, nil).Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.EqualValues(t, 1, g.Epoch)
}

func TestOpenArguments(t *testing.T) {
	for _, path := range []string{"", "file:x.db", "file::memory:?cache=shared"} {
		_, err := sqlitefence.Open(t.Context(), path, nil)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, path)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sqlitefence.Open(done, sqlitefence.Memory, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpenBadFile(t *testing.T) {
	_, err := sqlitefence.Open(t.Context(), t.TempDir(), nil) // a directory
	require.ErrorContains(t, err, "sqlitefence: open")
	path := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(path,
		[]byte("this is no database, and long enough for one to be looked for in it.\n"), 0o600))
	_, err = sqlitefence.Open(t.Context(), path, nil)
	require.ErrorContains(t, err, "not a database")
}

// A later release may have migrated the file further.
func TestOpenNewerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	require.NoError(t, open(t, path, nil).Close())
	other := rawOpen(t, path)
	_, err := other.ExecContext(t.Context(), "PRAGMA user_version = 1000")
	require.NoError(t, err)
	_, err = open(t, path, nil).Claim(t.Context(), claimOf("a:1"))
	require.NoError(t, err)
}

func TestClose(t *testing.T) {
	a := open(t, sqlitefence.Memory, nil)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	_, err := a.Claim(t.Context(), claimOf("a:1"))
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "closed")
	_, err = a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNotApplied)
}

// Another process holds the file.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	a := open(t, path, nil)
	held, err := a.Claim(t.Context(), claimOf("a:1"))
	require.NoError(t, err)
	other := rawOpen(t, path)
	_, err = other.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	next := claimOf("b:1")
	next.Expected = held.Epoch
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = a.Promote(ctx, next)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// A reader does not wait for the writer.
	g, err := a.Lookup(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, held, g)

	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	g, err = a.Promote(t.Context(), next)
	require.NoError(t, err)
	require.EqualValues(t, 2, g.Epoch)
}

// A write that fails leaves nothing, and the authority usable.
func TestRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	a := open(t, path, nil)
	other := rawOpen(t, path)
	_, err := other.ExecContext(t.Context(),
		"CREATE TRIGGER refuse AFTER INSERT ON tilefence_tiles BEGIN SELECT RAISE(ABORT, 'refused'); END")
	require.NoError(t, err)
	c := claimOf("a:1")
	_, err = a.Claim(t.Context(), c)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "refused")
	_, err = a.Lookup(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrNeverOwned)

	_, err = other.ExecContext(t.Context(), "DROP TRIGGER refuse")
	require.NoError(t, err)
	g, err := a.Claim(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 1, g.Epoch)
}

func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	a := open(t, path, nil)
	_, err := a.Claim(t.Context(), claimOf("a:1"))
	require.NoError(t, err)
	require.FileExists(t, path+"-wal")
	require.Equal(t, 2, a.SynchronousLevel(t), "FULL")
	var mintedAt int64
	require.NoError(t, rawOpen(t, path).QueryRowContext(t.Context(),
		"SELECT minted_at FROM tilefence_tiles").Scan(&mintedAt))
	require.WithinDuration(t, time.Now(), time.UnixMilli(mintedAt), time.Minute)
}

func BenchmarkClaim(b *testing.B) {
	a := open(b, filepath.Join(b.TempDir(), "epochs.db"), nil)
	c := claimOf("a:1")
	for b.Loop() {
		c.Tile++
		if _, err := a.Claim(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// rawOpen opens the file beside the authority, as another process would.
func rawOpen(t *testing.T, path string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A file of an earlier release keeps its rows and its epochs.
func TestOpenOlderFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	first, err := os.ReadFile("migrations/0001_tiles.sql")
	require.NoError(t, err)
	for _, sql := range []string{string(first), "PRAGMA user_version = 1",
		"INSERT INTO tilefence_tiles VALUES (1, 5, 'a:1', randomblob(16), 1000), (2, 3, NULL, randomblob(16), 1000)"} {
		_, err := rawOpen(t, path).ExecContext(t.Context(), sql)
		require.NoError(t, err)
	}
	a := open(t, path, nil)
	grants, err := a.List(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, grants, 2)
	require.Equal(t, "a:1", grants[0].Contact)
	require.EqualValues(t, 5, grants[0].Mints)
	require.Equal(t, time.UnixMilli(1000).UTC(), grants[0].Minted)
	n, err := a.Retire(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	require.Zero(t, n, "released at the migration, as far as anybody knows")
	n, err = a.Retire(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	c := claimOf("b:1")
	c.Tile = 2
	g, err := a.Claim(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 4, g.Epoch)
}

// Without the floor nobody can say from where a new tile may start.
func TestFloorMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	a := open(t, path, nil)
	_, err := rawOpen(t, path).ExecContext(t.Context(), "DELETE FROM tilefence_floor")
	require.NoError(t, err)
	_, err = a.Claim(t.Context(), claimOf("a:1"))
	require.ErrorIs(t, err, fence.ErrNotApplied)
}

// TestWorldOfAFile: a file has the name that it was first opened with, and one identity for ever.
func TestWorldOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs.db")
	first := open(t, path, &sqlitefence.Config{World: "staging"})
	w, err := first.World(t.Context())
	require.NoError(t, err)
	require.Equal(t, "staging", w.Name)
	again, err := open(t, path, &sqlitefence.Config{World: "staging"}).World(t.Context())
	require.NoError(t, err)
	require.Equal(t, w, again)
	for _, other := range []string{"", "production"} {
		_, err = sqlitefence.Open(t.Context(), path, &sqlitefence.Config{World: other})
		require.ErrorIs(t, err, fence.ErrWorld)
	}
	_, err = sqlitefence.Open(t.Context(), path, &sqlitefence.Config{World: "A"})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
