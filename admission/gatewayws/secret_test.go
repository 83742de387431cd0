package gatewayws_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// TestErrorsShowNoCredentials: whatever goes wrong with a handshake, neither error nor log has the token of the query,
// the cookie, the Authorization header, or the URL's password; on the client's side and on the server's.
func TestErrorsShowNoCredentials(t *testing.T) {
	const secret = "s3cr3t"
	header := http.Header{"Cookie": {"session=" + secret}, "Authorization": {"Bearer " + secret}}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	moved := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/?token="+secret, http.StatusFound))
	defer moved.Close()
	_, refusing := serve(t, &gateway{}, nil)
	var log bytes.Buffer
	_, logging := serve(t, &gateway{}, &gatewayws.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx context.Context
		url string
	}{
		"nothing listens":   {t.Context(), "ws://127.0.0.1:1/play"},
		"no gateway":        {t.Context(), "ws" + strings.TrimPrefix(plain.URL, "http")},
		"moved":             {t.Context(), "ws" + strings.TrimPrefix(moved.URL, "http")},
		"not authenticated": {t.Context(), refusing},
		"cancelled":         {ctx, "ws://127.0.0.1:1/play"},
		"scheme":            {t.Context(), "ftp://127.0.0.1/play"},
		"port":              {t.Context(), "ws://127.0.0.1:" + secret + "/play"},
		"logged":            {t.Context(), logging},
	} {
		url := strings.Replace(c.url, "://", "://user:"+secret+"@", 1) + "?token=" + secret
		_, err := gatewayws.Dial(c.ctx, url, &gatewayws.DialConfig{Header: header})
		require.Error(t, err, name)
		assert.NotContains(t, fmt.Sprintf("%v %+v", err, err), secret, name)
		_, err = relayclient.Dial(c.ctx, url, &relayclient.Config{Header: header})
		require.Error(t, err, name)
		assert.NotContains(t, fmt.Sprintf("%v %+v", err, err), secret, name)
	}
	_, err := gatewayws.Dial(t.Context(), "ws://127.0.0.1:1", &gatewayws.DialConfig{Header: header, MaxInFlight: -1})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
	assert.Contains(t, log.String(), "client refused")
	assert.NotContains(t, log.String(), secret)
}
