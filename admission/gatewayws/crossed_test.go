package gatewayws_test

import (
	"context"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// The client learns where its player went from every kind of answer, and the session goes along.
func TestTheAnswerSaysWhereThePlayerWent(t *testing.T) {
	to := tile.Crossing{Entity: "argo", To: here + 1}
	var refused error
	h, url := serve(t, &gateway{
		move: func(context.Context, tile.Intent) (tile.Result, error) {
			return tile.Result{Outcome: stream.Applied, Crossing: to}, refused
		},
		act: func(context.Context, admission.Action) (admission.Artifact, error) {
			return admission.Artifact{Outcome: stream.Redirected, Refunded: true, Crossing: to}, nil
		},
	}, nil)
	var crossed []tile.Crossing
	client := dial(t, url, &gatewayws.DialConfig{Header: asAnn, Crossed: func(c tile.Crossing) {
		crossed = append(crossed, c)
	}})
	move := gatewayws.Request{Tile: here, Kind: admission.Move}
	a, err := client.Do(t.Context(), move)
	require.NoError(t, err)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Applied, Crossing: to}, a)
	a, err = client.Do(t.Context(), gatewayws.Request{Tile: here, Kind: admission.Act, Action: "0b54", Asset: "card"})
	require.NoError(t, err)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Redirected, Refunded: true, Crossing: to}, a)

	refused = &admission.ForwardError{Tile: here, Err: &tile.CrossedError{Tile: here, Crossing: to}}
	_, err = client.Do(t.Context(), move)
	var e *gatewayws.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, tile.ErrCrossed)
	assert.Equal(t, to, e.Crossing)
	assert.False(t, e.Retryable, "not in that tile")
	assert.Equal(t, []tile.Crossing{to, to, to}, crossed)

	assert.Zero(t, h.EndTile(here))
	assert.Equal(t, 1, h.EndTile(to.To), "the session is where its player is")
}

func TestACrossingOnTheWire(t *testing.T) {
	_, url := serve(t, &gateway{move: func(context.Context, tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Applied, Crossing: tile.Crossing{Entity: "argo", To: 0x85283083fffffff}}, nil
	}}, nil)
	conn := raw(t, url)
	assert.Equal(t, `{"id":"7","outcome":"applied","crossed":{"to":"85283083fffffff","entity":"argo"}}`,
		exchange(t, conn, websocket.MessageText, `{"id":"7","tile":"85283473fffffff","kind":"move"}`))
}
