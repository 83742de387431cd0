package tilefence_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

var duel = match.Queue{Name: "duel", Max: 2}

// play has two players look for a match, and returns their seats.
func play(t *testing.T, l *match.Lobby, names ...string) (seated []match.Status) {
	t.Helper()
	for _, name := range names {
		_, err := l.Enqueue(t.Context(), duel.Name, match.Ticket{ID: name, Players: []match.Player{{ID: name}}})
		require.NoError(t, err)
	}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := l.Watch(ctx, duel.Name, name, func(s match.Status) bool {
			if s.State != match.Seated {
				return true
			}
			seated = append(seated, s)
			return false
		})
		cancel()
		require.NoError(t, err)
	}
	return seated
}

// matchServer makes a match server whose parts are quick.
func matchServer(t *testing.T, b tilefence.Backends, cfg tilefence.MatchServerConfig) *tilefence.MatchServer {
	t.Helper()
	cfg.Worker.Lease, cfg.Supervisor.Period = 200*time.Millisecond, 50*time.Millisecond
	s, err := tilefence.NewMatchServer(b, []match.Queue{duel}, &cfg)
	require.NoError(t, err)
	return s
}

// TestAMatchOnATile: two players ask, and both have a seat on a tile that its server offers; the log says where.
func TestAMatchOnATile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions")
	log, err := tilefence.CreateDecisionLog(path)
	require.NoError(t, err)
	b := embedded(t)
	b.Matches, b.Seats = memmatch.New(), "eu"
	var closed atomic.Bool
	tiles := tileServer(t, b, tilefence.TileServerConfig{Seats: func(id fence.TileID) match.Offer {
		if closed.Load() || id != plaza {
			return match.Offer{}
		}
		return match.Offer{Seats: 2, Info: map[string]string{"relay": "wss://relay"}}
	}})
	require.NoError(t, tiles.Own(plaza, harbour))
	start(t, tiles)
	server := matchServer(t, b, tilefence.MatchServerConfig{DecisionLog: log})
	running := start(t, server)
	await(t, tiles, plaza)

	seated := play(t, server.Lobby(), "ann", "bob")
	for _, s := range seated {
		require.Equal(t, plaza, s.Assignment.Tile)
		require.Equal(t, tiles.Contact(), s.Assignment.Contact)
		require.Equal(t, "wss://relay", s.Assignment.Info["relay"])
	}
	require.Empty(t, server.Health())
	require.NoError(t, b.Matches.Take(t.Context(), "eu", seated[0].Match, "ann"))

	closed.Store(true) // the battle is over
	waittest.Until(t, func() bool {
		all, err := b.Matches.Tiles(t.Context(), "eu")
		return err == nil && len(all) == 1 && !all[0].Serving && all[0].Used == 0
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, running.stop())
	require.NoError(t, log.Close())
	f, err := decision.Open(path)
	require.NoError(t, err)
	assigned := 0
	require.NoError(t, f.Each(0, func(e *decision.Event) {
		if e.Kind == decision.Assigned {
			assigned++
			require.Equal(t, seated[0].Match, e.Action)
			require.Equal(t, plaza, fence.TileID(e.Count))
		}
	}))
	require.Equal(t, 1, assigned)
}

// TestAMatchServerIsSupervisedByAnother: what one has claimed when it dies is matched by the other.
func TestAMatchServerIsSupervisedByAnother(t *testing.T) {
	b := embedded(t)
	b.Matches = memmatch.New()
	lobby, err := match.NewLobby(b.Matches, duel)
	require.NoError(t, err)
	_, err = b.Matches.Offer(t.Context(), "seats", match.Offer{Tile: plaza, Epoch: 1, Contact: "a:1", Seats: 2},
		time.Hour)
	require.NoError(t, err)
	_, err = lobby.Enqueue(t.Context(), duel.Name, match.Ticket{ID: "ann", Players: []match.Player{{ID: "ann"}}})
	require.NoError(t, err)
	held, err := b.Matches.Claim(t.Context(), "duel/0", match.Claim{Worker: "dead", Lease: time.Second, Limit: 10})
	require.NoError(t, err)
	require.Len(t, held.Tickets, 1)
	start(t, matchServer(t, b, tilefence.MatchServerConfig{}))
	play(t, lobby, "bob", "ann")
}

// awayMatches is a back end that does not answer.
type awayMatches struct {
	match.Backend
	away atomic.Bool
}

var errAway = errors.New("the store is away")

func (a *awayMatches) Claim(ctx context.Context, shard string, c match.Claim) (match.Holding, error) {
	if a.away.Load() {
		return match.Holding{}, errAway
	}
	return a.Backend.Claim(ctx, shard, c)
}

func (a *awayMatches) Offer(ctx context.Context, p string, o match.Offer, d time.Duration) (match.Load, error) {
	if a.away.Load() {
		return match.Load{}, errAway
	}
	return a.Backend.Offer(ctx, p, o, d)
}

// TestHealthOfMatches: a store that is away is a problem of match server and tile server, and so is a queue without
// seats; each ends.
func TestHealthOfMatches(t *testing.T) {
	b, store := embedded(t), &awayMatches{Backend: memmatch.New()}
	store.away.Store(true)
	b.Matches = store
	tiles := tileServer(t, b, tilefence.TileServerConfig{
		Seats: func(fence.TileID) match.Offer { return match.Offer{Seats: 2} }})
	require.NoError(t, tiles.Own(plaza))
	start(t, tiles)
	server := matchServer(t, b, tilefence.MatchServerConfig{})
	start(t, server)
	has := func(s tilefence.Healthy, what string) bool {
		for _, p := range s.Health() {
			if p.Plane == "matches" && p.What == what {
				return true
			}
		}
		return false
	}
	const unreached = "the store of matches, or the allocator, is not reached"
	waittest.Until(t, func() bool {
		return has(server, unreached) && has(tiles, "the seats of tiles are not offered: matches find none there")
	}, 20*time.Second, 50*time.Millisecond)
	store.away.Store(false)
	waittest.Until(t, func() bool { return len(server.Health())+len(tiles.Health()) == 0 }, 20*time.Second,
		50*time.Millisecond)
}

// TestNoSeatsAreAProblem: matches that find no tile are what an operator hears of.
func TestNoSeatsAreAProblem(t *testing.T) {
	b := embedded(t)
	b.Matches = memmatch.New()
	server := matchServer(t, b, tilefence.MatchServerConfig{})
	start(t, server)
	for _, name := range []string{"ann", "bob"} {
		_, err := server.Lobby().Enqueue(t.Context(), duel.Name,
			match.Ticket{ID: name, Players: []match.Player{{ID: name}}})
		require.NoError(t, err)
	}
	waittest.Until(t, func() bool {
		all := server.Health()
		return len(all) == 1 && all[0].Plane == "matches" &&
			all[0].What == "matches find no tile with enough free seats: their tickets wait"
	}, 20*time.Second, 50*time.Millisecond)
}

// TestMatchServersRefuse: what is missing is named.
func TestMatchServersRefuse(t *testing.T) {
	b := embedded(t)
	_, err := tilefence.NewMatchServer(b, []match.Queue{duel}, nil)
	refusedField(t, err, "Backends")
	_, err = tilefence.NewTileServer("127.0.0.1:7000", b, newBell, &tilefence.TileServerConfig{
		Seats: func(fence.TileID) match.Offer { return match.Offer{} }})
	refusedField(t, err, "Backends")
	b.Matches, b.Seats = memmatch.New(), "no name"
	_, err = tilefence.NewMatchServer(b, []match.Queue{duel}, nil)
	refusedField(t, err, "pool")
	b.Seats = ""
	_, err = tilefence.NewMatchServer(b, nil, nil)
	refusedField(t, err, "queues")
	_, err = tilefence.NewPlanServer(b, nil, nil)
	refusedField(t, err, "Backends")
}

func refusedField(t *testing.T, err error, field string) {
	t.Helper()
	var refused *fence.ArgumentError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, field, refused.Field)
}
