//go:build browser && unix

package relayjs_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/chromium"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayjs"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// This test needs a browser, so it runs only when asked for:
//
//	go test -tags browser ./relay/relayjs

const plaza fence.TileID = 0x85283083fffffff

// bell counts rings.
type bell struct{ rings byte }

func (b *bell) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("ring")), append(out, stream.Applied)
	}
	return events, out
}
func (b *bell) Apply(_ fence.Tick, events [][]byte) error { b.rings += byte(len(events)); return nil }
func (b *bell) Snapshot() ([]byte, error)                 { return []byte{b.rings}, nil }
func (b *bell) Restore(snapshot []byte) error             { b.rings = append(snapshot, 0)[0]; return nil }

// TestInABrowser: the client follows a tile through the loss of its relay, and is sent only what it missed. One that a
// relay refuses says why.
func TestInABrowser(t *testing.T) {
	store := memfence.New()
	b := tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Workers: share.NewMemory(), Members: new(route.Group)}
	server := serveTile(t, b)
	var current atomic.Pointer[relay.Relay]
	mux := http.NewServeMux()
	mux.Handle("GET /relay/", http.StripPrefix("/relay/", http.FileServerFS(relayjs.Files)))
	mux.HandleFunc("GET /view", func(w http.ResponseWriter, r *http.Request) {
		if current.Load() == nil {
			http.Error(w, "there is no relay", http.StatusServiceUnavailable)
			return
		}
		current.Load().Handler().ServeHTTP(w, r)
	})
	guarded, _ := startRelay(t, b, &relay.Config{Authenticate: session.Keys{make([]byte, 32)}.Authenticate})
	mux.Handle("GET /guarded", guarded.Handler())
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>rings</title>")
	})
	site := httptest.NewServer(mux)
	defer site.Close()

	r, stop := startRelay(t, b, nil)
	current.Store(r)
	page := chromium.Open(t, site.URL+"/")
	page.Eval(fmt.Sprintf(`(async () => {
		const { Client, events } = await import("/relay/client.js");
		window.seen = { rings: 0, restores: 0 };
		window.client = new Client(location.origin.replace("http", "ws") + "/view", [%q], {
			restore: (tile, blob) => { seen.rings = blob[0] ?? 0; seen.restores++; },
			apply: (tile, frame) => { seen.rings += events(frame.payload).length; },
		});
		client.connect();
	})()`, plaza), nil)
	ring(t, server, 3)
	page.Until(`seen.rings === 3 && seen.restores === 1`)

	current.Store(nil)
	stop()
	page.Until(`!client.open`)
	ring(t, server, 2)
	r, _ = startRelay(t, b, nil)
	current.Store(r)
	page.Until(`seen.rings === 5`)
	ring(t, server, 1)
	page.Until(`seen.rings === 6 && seen.restores === 1 && client.counts.connects === 2`)
	page.Eval(`client.close()`, nil)

	page.Eval(fmt.Sprintf(`(async () => {
		const { Client } = await import("/relay/client.js");
		window.links = [];
		window.client = new Client(location.origin.replace("http", "ws") + "/guarded", [%q], {
			token: () => "tf1.nonsense", link: (state, text) => links.push(text),
		});
		client.connect();
	})()`, plaza), nil)
	page.Until(`links.includes("not authenticated: the token is not valid: reconnecting")`)
	page.Until(`client.failures > 1`)
	page.Eval(`client.close()`, nil)
}

// serveTile runs a tile and a bridge until the test ends.
func serveTile(t *testing.T, b tilefence.Backends) *tilefence.TileServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}
	cfg.Host.Tile.TickInterval = 50 * time.Millisecond
	cfg.Host.Tile.SnapshotEvery = 1 << 20 // nothing is trimmed
	server, err := tilefence.NewTileServer(l.Addr().String(), b, func(fence.TileID) (tile.Rules, error) {
		return &bell{}, nil
	}, cfg)
	require.NoError(t, err)
	require.NoError(t, server.Own(plaza))
	bridge, err := tilefence.NewBridgeServer(b, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- tilefence.Run(ctx, server, bridge) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	require.NoError(t, server.Host().Await(t.Context(), plaza))
	return server
}

// startRelay runs a relay until stop is called or the test ends.
func startRelay(t *testing.T, b tilefence.Backends, cfg *relay.Config) (r *relay.Relay, stop func()) {
	r, err := relay.New(b.Fanout, b.Log, relay.Public, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return r, stop
}

func ring(t *testing.T, server *tilefence.TileServer, times int) {
	for range times {
		outcome, err := server.Submit(t.Context(), tile.Intent{Tile: plaza, Actor: "ann"})
		require.NoError(t, err)
		require.Equal(t, stream.Applied, outcome.Outcome)
	}
}
