package tilefence_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// TestServersThatBelieveEverybodySaySo: without keys each tile server and gateway warns when it starts, with keys none.
func TestServersThatBelieveEverybodySaySo(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]tilehttp.Keys{"open": nil, "keyed": {[]byte(strings.Repeat("k", 32))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			b.Keys = keys
			log, text := logged()
			start(t, tileServer(t, b, tilefence.TileServerConfig{Logger: log}))
			door := listen(t)
			gateway, err := tilefence.NewGatewayServer(door.Addr().String(), b, anybody, free,
				&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: door}, Logger: log})
			require.NoError(t, err)
			start(t, gateway)
			waittest.Until(t, func() bool {
				return text.count("tile server listens") == 1 && text.count("gateway listens") == 1
			}, 20*time.Second, 5*time.Millisecond)
			for _, server := range []string{"tile server", "gateway"} {
				said := text.count(`level=WARN msg="` + server + " has no keys: every process")
				assert.Equal(t, keys == nil, said == 1, "%s: %d times", server, said)
			}
		})
	}
}
