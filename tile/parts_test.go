package tile

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

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

func newTestDesk(t *testing.T, cfg Config) *inbox {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.QueueLimit = max(cfg.QueueLimit, 2)
	return newInbox(7, "a:1", &cfg)
}

func TestDeskAnswersEverySubmission(t *testing.T) {
	d := newTestDesk(t, Config{})
	note := func() (func(stream.Outcome, error), <-chan error) {
		errs := make(chan error, 1) // a second answer would wait for ever
		return func(_ stream.Outcome, err error) { errs <- err }, errs
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
