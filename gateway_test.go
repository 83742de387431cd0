package tilefence_test

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestGatewaysOfOneAddress: each listens at that address of a machine of its own. Nothing takes one for the other, and
// no tile server warns of an impostor.
func TestGatewaysOfOneAddress(t *testing.T) {
	b := embedded(t)
	text := new(lockedLog)
	server := tileServer(t, b,
		tilefence.TileServerConfig{Logger: slog.New(slog.NewTextHandler(text, nil))})
	start(t, server)
	for range 2 {
		cfg := &tilefence.GatewayServerConfig{}
		cfg.Web.Listener = listen(t)
		gateway, err := tilefence.NewGatewayServer("0.0.0.0:8080", b, anybody, free, cfg)
		require.NoError(t, err)
		start(t, gateway)
	}
	waittest.Until(t, func() bool { return len(server.Members()) == 3 }, 10*time.Second, 5*time.Millisecond)
	var contacts []string
	for _, m := range server.Members() {
		contacts = append(contacts, m.Contact)
	}
	require.Len(t, slices.Compact(contacts), 3)
	require.Contains(t, text.String(), "member joined")
	require.NotContains(t, text.String(), "impostor")
}

// lockedLog may be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
