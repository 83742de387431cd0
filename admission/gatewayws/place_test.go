package gatewayws_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// TestWhereTheActorIs: a client that knows no tile is told it, and its movement is sent there.
func TestWhereTheActorIs(t *testing.T) {
	var known fence.TileID
	var failure error
	asked := make(chan string, 10)
	moved := make(chan fence.TileID, 1)
	answered := make(chan gatewayws.AnswerInfo, 10)
	_, url := serve(t, &gateway{move: func(_ context.Context, in tile.Intent) (tile.Result, error) {
		moved <- in.Tile
		return tile.Result{Outcome: stream.Applied}, nil
	}}, &gatewayws.Config{Hooks: gatewayws.Hooks{Answered: func(i gatewayws.AnswerInfo) { answered <- i }},
		Where: func(_ context.Context, actor string) (fence.TileID, error) {
			asked <- actor
			return known, failure
		}})
	client := dial(t, url, nil)
	place, err := client.Where(t.Context())
	require.NoError(t, err)
	require.Zero(t, place)
	_, err = client.Do(t.Context(), gatewayws.Request{Kind: admission.Move})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)

	known = here
	place, err = client.Where(t.Context())
	require.NoError(t, err)
	require.Equal(t, here, place)
	require.Len(t, answered, 3)
	for range 3 {
		require.Zero(t, (<-answered).Tile)
	}
	a, err := client.Do(t.Context(), gatewayws.Request{Kind: admission.Move})
	require.NoError(t, err)
	require.Equal(t, gatewayws.Answer{Outcome: stream.Applied, Tile: here}, a)
	require.Equal(t, here, <-moved)
	require.Equal(t, here, (<-answered).Tile)
	require.Equal(t, "ann", <-asked)
	require.Len(t, asked, 3)
	a, err = client.Do(t.Context(), gatewayws.Request{Kind: admission.Move, Tile: 7})
	require.NoError(t, err)
	require.Zero(t, a.Tile)
	require.Len(t, asked, 3, "it has named its tile")

	failure = &fence.StoreError{Op: "look up", Outcome: fence.ErrUnknownOutcome, Err: errors.New("away")}
	_, err = client.Where(t.Context())
	var e *gatewayws.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, gatewayws.CodeUnavailable, e.Code)
	require.True(t, e.Retryable)

	_, url = serve(t, &gateway{}, nil)
	assert.JSONEq(t, `{"id":"7","where":{}}`,
		exchange(t, raw(t, url), websocket.MessageText, `{"id":"7","kind":"where"}`))
}

// TestTheGameTellsAPlayer: messages come in order, on all connections of the actor and on no other; a client that does
// not read takes few of them, and holds up nothing.
func TestTheGameTellsAPlayer(t *testing.T) {
	h, url := serve(t, &gateway{}, nil)
	told := make(chan string, 100)
	tell := func(message []byte) { told <- string(message) }
	request := gatewayws.Request{Tile: here, Kind: admission.Move}
	for _, cfg := range []*gatewayws.DialConfig{nil, {Told: tell}, {Told: tell}} {
		_, err := dial(t, url, cfg).Do(t.Context(), request)
		require.NoError(t, err)
	}
	require.Equal(t, 3, h.Tell("ann", nil))
	require.Zero(t, h.Tell("bob", []byte("a")))
	for range 2 {
		require.Empty(t, <-told)
	}
	var want []string
	for i := range 10 {
		text := strings.Repeat("x", i) + "\x00"
		require.Equal(t, 3, h.Tell("ann", []byte(text)))
		want = append(want, text, text)
	}
	var got []string
	for range want {
		got = append(got, <-told)
	}
	require.ElementsMatch(t, want, got)

	slow := raw(t, url) // it reads nothing more
	exchange(t, slow, websocket.MessageText, `{"id":"7","tile":"85283473fffffff","kind":"move"}`)
	require.Equal(t, 4, h.Tell("ann", nil))
	for range 2 {
		require.Empty(t, <-told)
	}
	most := bytes.Repeat([]byte("x"), 8<<10)
	waittest.Until(t, func() bool {
		n := h.Tell("ann", most)
		for range 2 {
			<-told
		}
		require.LessOrEqual(t, h.Untold(), 16)
		return n == 3
	}, time.Minute, 0)
	_ = slow.CloseNow()
	h.EndActor("ann")
	require.Zero(t, h.Tell("ann", nil))
	require.False(t, gatewayws.TellAfterTheEnd())
}
