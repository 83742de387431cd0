package match_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/fence"
)

// slowStore is a store through which a lobby's ticket "slow" is on its way for a while, or for ever.
type slowStore struct {
	match.Store
	takes time.Duration
	dies  bool
}

func (s *slowStore) Enqueue(ctx context.Context, shard string, t match.Ticket, e match.Entry) (match.Status, error) {
	if t.ID != "slow" {
		return s.Store.Enqueue(ctx, shard, t, e)
	}
	time.Sleep(s.takes)
	if s.dies {
		return match.Status{}, &fence.StoreError{Op: "enqueue", Outcome: fence.ErrUnknownOutcome,
			Err: errors.New("the lobby died")}
	}
	return s.Store.Enqueue(ctx, shard, t, e)
}

// twoLobbies are processes of a queue of eight shards, the first of which has a slow way to the store.
func twoLobbies(t *testing.T, takes time.Duration, dies bool) (slow, fast *match.Lobby) {
	t.Helper()
	store, q := memmatch.New(), match.Queue{Name: "q", Max: 4, Shards: 8}
	slow, err := match.NewLobby(&slowStore{Store: store, takes: takes, dies: dies}, q)
	require.NoError(t, err)
	fast, err = match.NewLobby(store, q)
	require.NoError(t, err)
	return slow, fast
}

// TestANoteOfADeadLobbyIsTakenOver: a player whose lobby died between the note and the ticket waits for as long as the
// ticket may be on its way, and no longer; then there is one ticket, in whichever shards both are.
func TestANoteOfADeadLobbyIsTakenOver(t *testing.T) {
	for n := range 16 {
		synctest.Test(t, func(t *testing.T) {
			slow, fast := twoLobbies(t, 0, true)
			began := time.Now()
			_, err := slow.Enqueue(t.Context(), "q", partyOf("slow", 0, "ann", "bob").Ticket)
			require.ErrorIs(t, err, fence.ErrUnknownOutcome)
			next := partyOf(fmt.Sprint("next", n), 0, "cid", "bob").Ticket
			var until time.Time
			for range 2 {
				_, err = fast.Enqueue(t.Context(), "q", next)
				var open *match.OpenError
				require.ErrorAs(t, err, &open)
				require.Equal(t, match.OpenError{Player: "bob", Ticket: "slow", Until: open.Until}, *open)
				require.Equal(t, 10*time.Second, open.Until.Sub(began), "it says when to come back")
				until = open.Until
				time.Sleep(time.Until(until) - time.Millisecond)
			}
			_, err = fast.Enqueue(t.Context(), "q", partyOf("cids", 0, "cid").Ticket)
			require.NoError(t, err, "a refused ticket notes nothing of its other players")
			_, err = fast.Cancel(t.Context(), "q", "cids")
			require.NoError(t, err)
			time.Sleep(time.Until(until))
			_, err = fast.Enqueue(t.Context(), "q", next)
			require.NoError(t, err)

			// The dead lobby's client comes again, through another one.
			_, err = fast.Enqueue(t.Context(), "q", partyOf("slow", 0, "ann", "bob").Ticket)
			require.ErrorIs(t, err, match.ErrOpen)
			d, err := fast.Depth(t.Context(), "q")
			require.NoError(t, err)
			require.EqualValues(t, 1, d.Waiting)
		})
	}
}

// TestASlowLobbyLooksAgain: a ticket that was on its way for so long that another one was taken instead ends, and its
// caller hears of the other. One that was as slow, without another, stays, and so does one that came in time.
func TestASlowLobbyLooksAgain(t *testing.T) {
	for n := range 16 {
		for _, c := range []struct {
			name        string
			takes, next time.Duration // when the other one comes; zero: never
			slowWins    bool
		}{
			{"overtaken", 12 * time.Second, 11 * time.Second, false},
			{"alone", 12 * time.Second, 0, true},
			{"in time", 9 * time.Second, 11 * time.Second, true},
			{"early", 12 * time.Second, 8 * time.Second, true},
		} {
			synctest.Test(t, func(t *testing.T) {
				slow, fast := twoLobbies(t, c.takes, false)
				answer := make(chan error, 1)
				go func() {
					_, err := slow.Enqueue(t.Context(), "q", partyOf("slow", 0, "ann").Ticket)
					answer <- err
				}()
				other := fmt.Sprint("other", n)
				if c.next > 0 {
					time.Sleep(c.next)
					_, err := fast.Enqueue(t.Context(), "q", partyOf(other, 0, "ann").Ticket)
					require.Equal(t, c.slowWins, errors.Is(err, match.ErrOpen), "%s: %v", c.name, err)
				}
				err := <-answer
				if c.slowWins {
					require.NoError(t, err, c.name)
				} else {
					var open *match.OpenError
					require.ErrorAs(t, err, &open)
					require.Equal(t, other, open.Ticket)
					s, err := fast.Status(t.Context(), "q", other)
					require.NoError(t, err)
					require.Equal(t, match.Waiting, s.State)
				}
				d, err := fast.Depth(t.Context(), "q")
				require.NoError(t, err)
				require.EqualValues(t, 1, d.Waiting, c.name)
			})
		}
	}
}
