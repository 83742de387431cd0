package tilehttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func presentation() tile.Presentation {
	id := func(n int) stream.TransferID { return stream.TransferID{Epoch: 7, Seq: 120, Index: n} }
	departure := stream.Departure{To: 2, Entity: "argo", Actor: "ann", Payload: []byte{0, 1, 2}}
	return tile.Presentation{From: 1, To: 2, After: id(1), Settled: id(1),
		Transfers: []stream.Transfer{{ID: id(2), Tick: 9, Departure: departure}, {ID: id(3), Departure: departure}}}
}

// presented serves presentations by f, and returns a client with other keys if it has some.
func presented(
	t *testing.T, keys, others Keys, f func(context.Context, tile.Presentation) (tile.Answer, error),
) (contact string, c *Client) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	contact = server.Listener.Addr().String()
	mux.Handle(PresentPath, PresentHandler(f, &HandlerConfig{Keys: keys, Contact: contact}))
	c, err := NewClient(&Config{Keys: others})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return contact, c
}

func TestAPresentationTravels(t *testing.T) {
	keys := Keys{[]byte(strings.Repeat("k", 16))}
	want := tile.Answer{Mark: stream.TransferID{Epoch: 7, Seq: 120, Index: 3},
		Refused: []stream.Refusal{{ID: stream.TransferID{Epoch: 7, Seq: 120, Index: 2}, Reason: "full \u00e9"}}}
	contact, client := presented(t, keys, keys, func(_ context.Context, p tile.Presentation) (tile.Answer, error) {
		assert.Equal(t, presentation(), p)
		return want, nil
	})
	got, err := client.Present(t.Context(), contact, presentation())
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestAnErrorOfAPresentationTravels(t *testing.T) {
	for _, want := range []error{&tile.RedirectError{Tile: 2, Epoch: 9, Contact: "b:1"}, tile.ErrOverloaded} {
		contact, client := presented(t, nil, nil, func(context.Context, tile.Presentation) (tile.Answer, error) {
			return tile.Answer{}, want
		})
		_, err := client.Present(t.Context(), contact, presentation())
		assert.Equal(t, want, err)
	}
}

func TestAPresentationIsProved(t *testing.T) {
	ours, theirs := Keys{[]byte(strings.Repeat("o", 16))}, Keys{[]byte(strings.Repeat("t", 16))}
	contact, client := presented(t, ours, theirs, func(context.Context, tile.Presentation) (tile.Answer, error) {
		t.Error("a stranger's presentation has come in")
		return tile.Answer{}, nil
	})
	_, err := client.Present(t.Context(), contact, presentation())
	assert.ErrorIs(t, err, fence.ErrNotApplied)
}

func FuzzPresentation(f *testing.F) {
	p := presentation()
	f.Add(encodePresentation(&p))
	f.Add([]byte{1, 1, 2, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePresentation(b)
		if err != nil {
			var argument *fence.ArgumentError
			require.True(t, errors.As(err, &argument))
			return
		}
		again, err := decodePresentation(encodePresentation(&p))
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
