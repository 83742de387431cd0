package tilehttp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// FuzzIntents: a tile server makes of any message intents with IDs, refusals with IDs, or an error that says what to
// send. What it reads it reads again from what a gateway would have sent.
func FuzzIntents(f *testing.F) {
	f.Add([]byte(`{"v":1,"intents":[{"id":1,"within":5,"tile":"85283473fffffff","action":"0b54","body":"ZmlyZQ=="}]}`))
	f.Add([]byte(`{"v":1,"intents":[{"id":2,"tile":1},{"id":3,"tile":"1"}]}`))
	f.Add([]byte(`{"v":1,"intents":[{"tile":"1"}]}`))
	f.Add([]byte("\xff{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if intents, plain := plainIntents(b); plain {
			var m wireIntents[wireSent]
			require.NoError(t, json.Unmarshal(b, &m))
			require.Equal(t, m.Intents, intents)
		}
		refused := 0
		intents, err := decodeIntents(b, func(id uint64, err error) {
			refused++
			require.NotZero(t, id)
			require.ErrorIs(t, err, fence.ErrInvalidArgument)
		})
		if err != nil {
			require.ErrorIs(t, err, fence.ErrInvalidArgument)
			return
		}
		message := []byte(intentsHead)
		for i := range intents {
			w := &intents[i]
			require.NotZero(t, w.ID)
			require.True(t, utf8.ValidString(w.Action+w.Move+w.Actor))
			w.Tile = max(w.Tile, 1) // without a tile it is refused where it is queued
			if len(w.Body) == 0 {
				w.Body = nil // an empty one is not sent
			}
			in := w.intent()
			encoded, err := encodeIntent(&in)
			require.NoError(t, err)
			within := time.Duration(min(max(w.Within, 0), maxWithin)) * time.Millisecond
			message = appendSent(message, w.ID, within, encoded)
		}
		_, plain := plainIntents(append(slices.Clip(message), messageTail...))
		require.Equal(t, len(intents) > 0 && isPlain(intents), plain, "what a gateway sends is read fast")
		again, err := decodeIntents(append(message, messageTail...), nil)
		require.NoError(t, err)
		require.Len(t, again, len(intents))
		for i := range again {
			require.Equal(t, intents[i].ID, again[i].ID)
			require.Equal(t, intents[i].intent(), again[i].intent())
		}
	})
}

// TestReasonsAreReadFast: an answer with a reason is in the plain form, and one that is too long is cut.
func TestReasonsAreReadFast(t *testing.T) {
	far := tile.Result{Outcome: stream.Fizzled, Why: "too far"}
	message := slices.Concat([]byte(answersHead), encodeAnswer(7, far, nil),
		[]byte(`,{"id":8,"outcome":"applied"}`), []byte(messageTail))
	answers, plain := plainAnswers(message, nil)
	require.True(t, plain)
	require.Equal(t, []wireAnswer{{ID: 7, Outcome: "fizzled", Why: "too far"}, {ID: 8, Outcome: "applied"}}, answers)
	long := wireAnswer{ID: 7, Outcome: "fizzled", Why: strings.Repeat("x", 1000) + "\n"}
	result, err := long.decode("a:1", 7)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", tile.MaxWhy), result.Why)
}

// isPlain reports whether names need no escapes, and times no sign.
func isPlain(intents []wireSent) bool {
	return !slices.ContainsFunc(intents, func(w wireSent) bool {
		names, _ := json.Marshal(w.Action + w.Actor)
		return w.Admitted < 0 || w.Admitted >= 1e18 || w.ID >= 1e18 || len(names) != len(w.Action+w.Move+w.Actor)+2 ||
			strings.IndexFunc(w.Action+w.Move+w.Actor, func(r rune) bool { return r > '~' }) >= 0
	})
}

// FuzzAnswers: whatever a tile server says, a call under way gets one result at most, and an outcome only if one was
// given.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"v":1,"answers":[{"id":1,"outcome":"applied"},{"id":1,"outcome":"fizzled"}]}`))
	f.Add([]byte(`{"v":1,"answers":[{"id":2,"error":{"code":"redirect","tile":"1","epoch":7,"contact":"b:1"}}]}`))
	f.Add([]byte(`{"v":1,"drain":true}`))
	f.Add([]byte(`{"v":1,"error":{"code":"invalid","field":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if answers, plain := plainAnswers(b, nil); plain {
			var m wireAnswers
			require.NoError(t, json.Unmarshal(b, &m))
			require.Equal(t, wireAnswers{Version: version, Answers: answers}, m)
		}
		ctx, stop := context.WithCancelCause(context.Background())
		u := &uplink{link: &link{wake: make(chan struct{}, 1)}, limit: 8, counts: new(counters),
			waiting: map[uint64]*call{}, stop: stop}
		calls := make([]*call, 3) // the last is not written
		answered := make([]int, len(calls))
		for i := range calls {
			calls[i] = &call{ctx: ctx, tile: 5, intent: []byte(`{}`), done: func(r tile.Result, err error) {
				answered[i]++
				require.NotEqual(t, err == nil, !r.Outcome.Valid())
				require.False(t, err == nil && i == 2, "it was not sent")
				if redirect, ok := errors.AsType[*tile.RedirectError](err); ok {
					require.EqualValues(t, 5, redirect.Tile)
				}
			}}
			require.NoError(t, u.submit(calls[i]))
			if i == 1 {
				message, more := u.next(nil)
				require.NotEmpty(t, message)
				require.False(t, more)
			}
		}
		if u.take(b) != nil {
			u.end(context.Cause(ctx))
		}
		for _, n := range answered {
			require.LessOrEqual(t, n, 1)
		}
	})
}
