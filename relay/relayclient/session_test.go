package relayclient_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// A client with tokens renews its session by itself, again and again, on one connection.
func TestSessionIsRenewed(t *testing.T) {
	s := newScript(t)
	var tokens atomic.Int64
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Token = func(context.Context) (string, error) { return strconv.FormatInt(tokens.Add(1), 10), nil }
	})
	for i := 2; i < 5; i++ {
		p.send(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_Session{Session: &relaypb.Session{ExpiresInMs: 20}}})
		for p.receive().GetRefresh().GetToken() != strconv.Itoa(i) { // a subscription comes first
		}
	}
	require.EqualValues(t, 1, v.Stats().Connects)
	require.NoError(t, v.Refresh(t.Context(), "by hand"))
	require.Equal(t, "by hand", p.receive().GetRefresh().GetToken())
	p.end()
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.Refresh(t.Context(), "late"), relayclient.ErrClosed)
}
