package tilehttp_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/tile/tilehttp"
)

// Strangers cannot fill the disk of a tile server with lines about their refusal.
func TestRefusalsAreLoggedInSamples(t *testing.T) {
	var lines bytes.Buffer
	cfg := &tilehttp.HandlerConfig{Keys: tilehttp.Keys{bytes.Repeat([]byte("k"), 32)}, Contact: "a:1",
		Logger: slog.New(slog.NewTextHandler(&lines, nil))}
	intents, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(nil), cfg)
	require.NoError(t, err)
	for method, h := range map[string]http.Handler{http.MethodGet: intents,
		http.MethodPost: tilehttp.HandoverHandler(nil, cfg)} {
		lines.Reset()
		for range 20_000 {
			w, r := httptest.NewRecorder(), request("/", `{"v":1}`)
			r.Method = method
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusUnauthorized, w.Code)
		}
		n := bytes.Count(lines.Bytes(), []byte("\n"))
		assert.LessOrEqual(t, n, 10*3, "ten in ten seconds")
		assert.GreaterOrEqual(t, n, 10)
	}
}
