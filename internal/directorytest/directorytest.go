// Package directorytest is the contract of directorystore.Store as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { directorytest.Run(t, newBackend) }
//
// The tests use players and processes of random names, so that back ends may share servers with other tests. Records
// are aged by Backend.Age, so that no test waits and none depends on how fast the machine is.
package directorytest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/seed"
)

// Backend is a store under test.
type Backend struct {
	directorystore.Store
	Age func(actor string, by time.Duration) // steps the clock that judges a record forward, or back if negative
}

// test is one player of a Backend.
type test struct {
	Backend
	*testing.T
	actor string
}

// Run tests the back end that open opens, once a test.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for name, run := range map[string]func(t *test){
		"Unknown": unknown, "Leases": leases, "ClockSteppedBack": clock, "Ended": ended, "Arrivals": arrivals,
		"Sightings": sightings, "ManyPlayers": many, "LikeMemory": likeMemory,
		"Posts": posts, "EndedContext": endedContext,
	} {
		t.Run(name, func(t *testing.T) { run(&test{Backend: open(t), T: t, actor: "{☃} " + rand.Text()}) })
	}
}

// look returns the player's record.
func (t *test) look() directorystore.Record {
	t.Helper()
	all, err := t.Look(t.Context(), t.actor)
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// renew renews a lease, and fails unless the record then has the holders want.
func (t *test) renew(holder string, want ...string) directorystore.Record {
	t.Helper()
	all, err := t.Renew(t.Context(), holder, t.actor)
	require.NoError(t, err)
	require.Equal(t, want, all[0].Holders)
	return all[0]
}

func unknown(t *test) {
	require.Equal(t, directorystore.Record{}, t.look())
	require.NoError(t, t.Leave(t.Context(), "a", t.actor))
	require.Equal(t, directorystore.Record{}, t.look())
}

func leases(t *test) {
	t.renew("a", "a")
	t.renew("b", "a", "b")
	t.Age(t.actor, directorystore.TTL/2)
	t.renew("b", "a", "b")
	t.Age(t.actor, directorystore.TTL/2+time.Second)
	require.Equal(t, []string{"b"}, t.look().Holders)
	t.renew("c", "b", "c")
	require.NoError(t, t.Leave(t.Context(), "c", t.actor))
	require.NoError(t, t.Leave(t.Context(), "a", t.actor))
	require.Equal(t, []string{"b"}, t.look().Holders)
	t.Age(t.actor, 2*directorystore.TTL)
	require.Empty(t, t.look().Holders)
}

// clock: a lease of the future is none, until its holder renews it; and who is ended then is not ended for ever.
func clock(t *test) {
	t.renew("dead", "dead")
	t.renew("alive", "alive", "dead")
	_, err := t.End(t.Context(), t.actor)
	require.NoError(t, err)
	t.Age(t.actor, -time.Hour)
	require.Empty(t, t.look().Holders)
	require.Zero(t, t.renew("alive", "alive").Ended)
	t.Age(t.actor, 5*time.Second)
	require.GreaterOrEqual(t, t.look().Ended, 5*time.Second)
}

func ended(t *test) {
	require.False(t, t.renew("a", "a").EverEnded)
	r, err := t.End(t.Context(), t.actor)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, r.Holders)
	require.True(t, r.EverEnded)
	t.Age(t.actor, 10*time.Second)
	for _, r := range []directorystore.Record{t.renew("a", "a"), t.look()} {
		require.True(t, r.EverEnded)
		require.GreaterOrEqual(t, r.Ended, 10*time.Second)
		require.Less(t, r.Ended, time.Minute)
	}
}

var noon = time.UnixMilli(1_800_000_000_000)

// at is a position whose chain is not kept.
func at(epoch fence.Epoch, seq fence.Seq) fence.Position {
	return fence.Position{Epoch: epoch, Seq: seq}
}

// arrival is a move from one tile to another, so long after noon.
func arrival(from fence.TileID, left fence.Position, to fence.TileID, came fence.Position, ms int) directorystore.Move {
	at := noon.Add(time.Duration(ms) * time.Millisecond)
	return directorystore.Move{From: from, Left: left, To: to, Came: came, At: at}
}

// place writes moves, one at a time if apart, and fails unless the record then has the tile.
func (t *test) place(want fence.TileID, moves ...directorystore.Move) {
	t.Helper()
	for i := range moves {
		moves[i].Actor = t.actor
	}
	require.NoError(t, t.Place(t.Context(), moves...))
	require.Equal(t, want, t.look().Place.Tile)
}

const a, b, c = fence.TileID(0x85283473fffffff), fence.TileID(0x85283083fffffff), fence.TileID(7)

func arrivals(t *test) {
	first := arrival(a, at(1, 10), b, at(5, 3), 0)
	t.place(b, first)
	require.Equal(t, directorystore.Place{Tile: b, Came: at(5, 3), At: noon}, t.look().Place)
	t.place(b, first)
	require.Equal(t, noon, t.look().Place.At, "the same once more")
	t.place(b, arrival(c, at(9, 9), b, at(5, 2), 900)) // numbers of one tile count more than clocks
	t.place(c, arrival(b, at(5, 4), c, at(1, 1), -60_000))
	require.Equal(t, noon.Add(time.Millisecond), t.look().Place.At, "time does not go back")
	t.place(c, first, arrival(b, at(5, 3), c, at(1, 1), 60_000))
	t.place(c, arrival(c, at(1, 0), b, at(6, 1), 90_000)) // it left before it came
	t.place(b, arrival(c, at(1, 1), b, at(6, 1), 0))      // of one batch
	t.place(a, arrival(b, at(6, 2), c, at(2, 1), 0), arrival(c, at(2, 1), a, at(1<<53-1, 1<<53-1), 0))
	require.Equal(t, at(1<<53-1, 1<<53-1), t.look().Place.Came)
	// What comes late, and says nothing of the tile of the record, is judged by its time.
	t.place(a, arrival(b, at(6, 5), c, at(2, 9), -1))
	t.place(c, arrival(b, at(6, 5), c, at(2, 9), 1000))
}

func sightings(t *test) {
	seen := func(tile fence.TileID, ms int) directorystore.Move {
		return directorystore.Move{To: tile, At: noon.Add(time.Duration(ms) * time.Millisecond)}
	}
	slack := int(directorystore.Slack.Milliseconds())
	t.place(a, seen(a, 0))
	t.place(a, seen(b, 0))
	t.place(b, seen(b, 1))
	t.place(c, arrival(a, at(1, 1), c, at(1, 2), 2-slack)) // the gateway's clock is ahead
	t.place(c, arrival(a, at(1, 2), c, at(1, 3), 2))
	t.place(c, seen(c, 10*slack))
	t.place(c, seen(b, 3+slack)) // the record's time is 3 by now
	t.place(b, seen(b, 4+slack))
	last := noon.Add(time.Duration(4+slack) * time.Millisecond)
	require.Equal(t, directorystore.Place{Tile: b, At: last}, t.look().Place)
	t.place(b, arrival(c, at(1, 4), a, at(8, 8), 4))
	t.place(a, arrival(c, at(1, 4), a, at(8, 8), 5))
}

// many: batches keep their order, whatever they are divided into.
func many(t *test) {
	actors := make([]string, 300)
	moves := make([]directorystore.Move, len(actors))
	for i := range actors {
		actors[i] = fmt.Sprint(t.actor, i)
		moves[i] = directorystore.Move{Actor: actors[i], To: fence.TileID(i + 1), At: noon}
	}
	require.NoError(t, t.Place(t.Context(), moves...))
	_, err := t.Renew(t.Context(), "one", actors[:200]...)
	require.NoError(t, err)
	require.NoError(t, t.Leave(t.Context(), "one", actors[:100]...))
	records, err := t.Look(t.Context(), actors...)
	require.NoError(t, err)
	require.Len(t, records, len(actors))
	for i := range records {
		require.Equal(t, fence.TileID(i+1), records[i].Place.Tile)
		require.Equal(t, i >= 100 && i < 200, len(records[i].Holders) == 1, i)
	}
	records, err = t.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, records)
}

// likeMemory: of any moves in any order the same ones count as in Memory.
func likeMemory(t *test) {
	rng := seed.Rand(t.T)
	model := directorystore.NewMemory()
	position := func() fence.Position { return at(fence.Epoch(1+rng.IntN(2)), fence.Seq(rng.IntN(4))) }
	for range 100 {
		moves := make([]directorystore.Move, 1+rng.IntN(5))
		for i := range moves {
			from, to := fence.TileID(1+rng.IntN(3)), fence.TileID(1+rng.IntN(3))
			m := arrival(from, position(), to, position(), rng.IntN(9000))
			if rng.IntN(3) == 0 {
				m.Came = fence.Position{}
			}
			m.Actor = t.actor
			moves[i] = m
		}
		require.NoError(t, t.Place(t.Context(), moves...))
		require.NoError(t, model.Place(t.Context(), moves...))
		want, err := model.Look(t.Context(), t.actor)
		require.NoError(t, err)
		require.Equal(t, want[0].Place, t.look().Place, "after %+v", moves)
	}
}

func posts(t *test) {
	listens, err := t.Post(t.Context(), t.actor, []byte("a"))
	require.NoError(t, err)
	require.False(t, listens)
	ctx, cancel := context.WithCancel(t.Context())
	ready, heard, ended := make(chan struct{}, 1), make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- t.Listen(ctx, t.actor, func() { ready <- struct{}{} }, func(b []byte) { heard <- string(b) })
	}()
	<-ready
	for _, text := range []string{"b", "\x00\xff", ""} {
		listens, err = t.Post(t.Context(), t.actor, []byte(text))
		require.NoError(t, err)
		require.True(t, listens)
		require.Equal(t, text, <-heard)
	}
	cancel()
	require.NoError(t, <-ended)
}

func endedContext(t *test) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, look := t.Look(ctx, t.actor)
	_, renew := t.Renew(ctx, "a", t.actor)
	_, end := t.End(ctx, t.actor)
	_, post := t.Post(ctx, "a", nil)
	for _, err := range []error{look, renew, end, post, t.Leave(ctx, "a", t.actor),
		t.Place(ctx, directorystore.Move{Actor: t.actor, To: a, At: noon})} {
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome)
	}
	require.Equal(t, directorystore.Record{}, t.look())
}
