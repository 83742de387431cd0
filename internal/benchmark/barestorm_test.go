package benchmark

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// bare starts servers that know no relay's work, in the place of relays: they make the handshake, and send the client
// the Sync that lies ready for its tile. It is what a storm costs that does nothing else.
func (s *viewStorm) bare(b *testing.B) (addrs string, stop func()) {
	b.Helper()
	ready := s.frames(b)
	var all []string
	var servers []*httptest.Server
	for range viewRelays {
		server := listening(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first, err := relaypb.ParseSubscribe(r.FormValue(relaypb.SubscribeParam))
			if err != nil {
				return
			}
			conn, err := socket.Accept(w, r, socket.Offer{Subprotocol: relaypb.Subprotocol, Hold: true}, 1<<10, nil,
				func() error { return nil })
			if err != nil {
				return
			}
			_ = conn.Send(time.Second, ready[first.GetTiles()[0]])
			_, _, _ = conn.Next() // until the client has left
			_ = conn.Close()
		}))
		servers, all = append(servers, server), append(all, strings.TrimPrefix(server.URL, "http://"))
	}
	return strings.Join(all, ","), func() {
		for _, server := range servers {
			server.Close()
		}
	}
}

// frames are the Syncs that a relay sends to clients of the tiles, by the tiles' names.
func (s *viewStorm) frames(b *testing.B) map[string][]byte {
	b.Helper()
	addrs, stop := s.relays(b, nil)
	defer stop()
	addr, _, _ := strings.Cut(addrs, ",")
	frames := map[string][]byte{}
	for _, tile := range s.tiles {
		frames[tile.String()] = firstFrame(b, addr, tile)
	}
	return frames
}

func firstFrame(b *testing.B, addr string, tile fence.TileID) []byte {
	b.Helper()
	client, err := crowd.Dial(b.Context(), addr, subscribeTo(tile), relaypb.Subprotocol)
	require.NoError(b, err)
	defer client.Close()
	sync, err := client.Next()
	require.NoError(b, err)
	return socket.Frame(socket.OpBinary, sync)
}

// runBare measures the same storms at servers that do nothing but to let clients in.
func (s *viewStorm) runBare(b *testing.B) {
	for b.Loop() {
		var all []counts
		for range viewRounds {
			addrs, stop := s.bare(b)
			time.Sleep(2 * time.Second)
			all = append(all, s.meet(b, addrs))
			stop()
		}
		reportJoins(b, all)
		b.ReportMetric(0, "ns/op")
	}
}

// reportJoins reports what clients waited for, and what they cost: medians over storms.
func reportJoins(b *testing.B, storms []counts) {
	b.Helper()
	for _, percent := range []string{"p50", "p95", "p99"} {
		b.ReportMetric(median(storms, percent+"-us")/1000, percent+"-ms")
	}
	b.ReportMetric(median(storms, "relays-us")/viewJoins, "relays-us/join")
	b.ReportMetric(median(storms, "cpu-us")/viewJoins, "clients-us/join")
}
