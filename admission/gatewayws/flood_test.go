package gatewayws_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/relay/session"
)

// A client that sends nonsense is told so a hundred times, and then cut off.
func TestNonsenseHasABudget(t *testing.T) {
	_, url := serve(t, &gateway{}, nil)
	conn := raw(t, url)
	go func() {
		for conn.Write(t.Context(), websocket.MessageText, []byte("nonsense")) == nil {
		}
	}()
	answers := 0
	for {
		_, b, err := conn.Read(t.Context())
		if err != nil {
			var closed websocket.CloseError
			if errors.As(err, &closed) { // else the connection was reset below what is still being sent
				assert.Equal(t, websocket.StatusPolicyViolation, closed.Code)
			}
			break
		}
		require.Contains(t, string(b), "malformed")
		answers++
	}
	assert.LessOrEqual(t, answers, 100)
	assert.Positive(t, answers)
}

// Strangers cannot fill the disk with lines about their refusal.
func TestRefusalsAreLoggedInSamples(t *testing.T) {
	var lines bytes.Buffer
	h, err := gatewayws.New(&gateway{}, byHeader, &gatewayws.Config{Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		Sessions: session.Limits{PerAddress: 1 << 20}})
	require.NoError(t, err)
	for range 20_000 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"Sec-Websocket-Protocol": {gatewayws.Subprotocol}, "Connection": {"Upgrade"},
			"Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, 401, w.Code)
	}
	n := bytes.Count(lines.Bytes(), []byte("\n"))
	assert.LessOrEqual(t, n, 10*3, "ten in ten seconds")
	assert.GreaterOrEqual(t, n, 10)
}
