//go:build linux

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
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// bareServer starts a server that knows nothing of a relay's work: it makes the handshake, and sends the client the
// frame that lies ready for its tile, by the tile's name. A storm at it costs what any storm does.
func bareServer(tb testing.TB, ready map[string][]byte) *httptest.Server {
	tb.Helper()
	server, err := listening(tb.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	require.NoError(tb, err)
	return server
}

// bare starts bare servers in the place of relays.
func (s *viewStorm) bare(b *testing.B) (addrs string, stop func()) {
	b.Helper()
	var all []string
	var servers []*httptest.Server
	for range viewRelays {
		server := bareServer(b, s.ready)
		servers, all = append(servers, server), append(all, server.Listener.Addr().String())
	}
	return strings.Join(all, ","), func() {
		for _, server := range servers {
			server.Close()
		}
	}
}

// syncFrames are the Syncs that a relay sends to clients of tiles, by the tiles' names.
func syncFrames(tb testing.TB, addr string, tiles []fence.TileID) map[string][]byte {
	tb.Helper()
	frames := map[string][]byte{}
	for _, tile := range tiles {
		client, err := crowd.Dial(tb.Context(), addr, subscribeTo(tile), relaypb.Subprotocol)
		require.NoError(tb, err)
		sync, err := client.Next()
		require.NoError(tb, err)
		frames[tile.String()] = socket.Frame(socket.OpBinary, sync)
		client.Close()
	}
	return frames
}

// frames are the Syncs of the tiles that are joined.
func (s *viewStorm) frames(b *testing.B) map[string][]byte {
	b.Helper()
	addrs, stop := s.relays(b, nil)
	defer stop()
	addr, _, _ := strings.Cut(addrs, ",")
	return syncFrames(b, addr, s.tiles)
}

// stormFigures are what some storms of joins cost: those who joined, and the owner of tiles.
type stormFigures struct {
	joins          []counts
	before, during []spans // of commits
}

// meet adds a storm.
func (f *stormFigures) meet(tb testing.TB, owner *process, storm func() counts) {
	tb.Helper()
	f.before = append(f.before, owner.measure(tb, 2*time.Second).Commit)
	f.joins = append(f.joins, storm())
	f.during = append(f.during, owner.window(tb).Commit)
}

// overBare is the p99 of commits in a storm over that in one at bare servers: the median of the pairs.
func (f *stormFigures) overBare(bare *stormFigures) float64 {
	var over []float64
	for i := range f.during {
		over = append(over, float64(f.during[i].P99)/float64(bare.during[i].P99))
	}
	slices.Sort(over)
	return over[len(over)/2]
}

// slower is the p99 of commits in the storms over that before them.
func (f *stormFigures) slower() float64 { return middle(f.during, p99Of) / middle(f.before, p99Of) }

func p99Of(d spans) time.Duration { return d.P99 }

// report reports medians over the storms, and of those at bare servers beside them.
func (f *stormFigures) report(b *testing.B, bare *stormFigures) {
	b.Helper()
	for _, percent := range []string{"p50", "p95", "p99"} {
		b.ReportMetric(median(f.joins, percent+"-us")/1000, percent+"-ms")
	}
	b.ReportMetric(median(bare.joins, "p95-us")/1000, "bare-p95-ms")
	b.ReportMetric(median(f.joins, "relays-us")/viewJoins, "relays-us/join")
	b.ReportMetric(median(bare.joins, "relays-us")/viewJoins, "bare-us/join")
	b.ReportMetric(median(f.joins, "cpu-us")/viewJoins, "clients-us/join")
	b.ReportMetric(middle(f.before, p99Of), "calm-p99-ms")
	b.ReportMetric(f.slower(), "x-commit")
	b.ReportMetric(bare.slower(), "bare-x-commit")
	b.ReportMetric(f.overBare(bare), "x-over-bare")
	b.ReportMetric(0, "ns/op") // the length of the windows: it says nothing
}
