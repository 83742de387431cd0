package benchmark

import (
	"net/http"
	"net/http/httptest"
	"slices"
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
			_ = conn.Send(time.Second, s.ready[first.GetTiles()[0]])
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

// viewStorms is what some storms cost: those who joined, and the owner of other tiles.
type viewStorms struct {
	joins          []counts
	before, during []spans // of commits
}

// meet adds a storm at the servers of these addresses.
func (f *viewStorms) meet(b *testing.B, s *viewStorm, addrs string) {
	b.Helper()
	f.before = append(f.before, s.owner.measure(b, 2*time.Second).Commit)
	f.joins = append(f.joins, s.meet(b, addrs))
	f.during = append(f.during, s.owner.window(b).Commit)
}

// report reports medians over the storms, and of those at bare servers beside them.
func (f *viewStorms) report(b *testing.B, bare *viewStorms) {
	b.Helper()
	for _, percent := range []string{"p50", "p95", "p99"} {
		b.ReportMetric(median(f.joins, percent+"-us")/1000, percent+"-ms")
	}
	b.ReportMetric(median(bare.joins, "p95-us")/1000, "bare-p95-ms")
	b.ReportMetric(median(f.joins, "relays-us")/viewJoins, "relays-us/join")
	b.ReportMetric(median(bare.joins, "relays-us")/viewJoins, "bare-us/join")
	b.ReportMetric(median(f.joins, "cpu-us")/viewJoins, "clients-us/join")
	p99 := func(d spans) time.Duration { return d.P99 }
	b.ReportMetric(middle(f.before, p99), "calm-p99-ms")
	b.ReportMetric(middle(f.during, p99)/middle(f.before, p99), "x-commit")
	b.ReportMetric(middle(bare.during, p99)/middle(bare.before, p99), "bare-x-commit")
	var over []float64
	for i := range f.during {
		over = append(over, float64(f.during[i].P99)/float64(bare.during[i].P99))
	}
	slices.Sort(over)
	b.ReportMetric(over[len(over)/2], "x-over-bare")
	b.ReportMetric(0, "ns/op") // the length of the windows: it says nothing
}
