//go:build linux

package benchmark

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// envOrders makes this test binary a server of orders: it holds the contact of the tile server that decides them, or
// nothing for a bare server, which answers by itself.
const envOrders = "TILEFENCE_BENCH_ORDERS"

// The load of BenchmarkOrderCost.
const (
	orderPlayers = 4000
	orderTime    = 10 * time.Second
	orderEvery   = 1250 * time.Millisecond // of each player
	orderTick    = 100 * time.Millisecond  // of the tile server
	orderBody    = 24                      // bytes
	orderTiles   = 37
)

// BenchmarkOrderCost is what an order costs a gateway: 4,000 players on sockets of their own give a movement each
// 1.25 s, and a tile server answers those of a tick together. bare is a process that reads the same frames and writes
// answers of as many bytes. x-bare is the gateway's processor time an order over that of bare, of those that are
// answered: on a machine that is busy otherwise it may refuse some. idle-KiB and playing-KiB are its memory a player,
// without what it has before the first one connects.
func BenchmarkOrderCost(b *testing.B) {
	contact := serveTick(b)
	for b.Loop() {
		bare, gateway := giveOrders(b, ""), giveOrders(b, contact)
		b.ReportMetric(bare.micros, "bare-us")
		b.ReportMetric(gateway.micros, "gateway-us")
		b.ReportMetric(gateway.micros/bare.micros, "x-bare")
		b.ReportMetric(gateway.answered, "answered")
		b.ReportMetric(bare.idle, "bare-idle-KiB")
		b.ReportMetric(gateway.idle, "idle-KiB")
		b.ReportMetric(gateway.playing, "playing-KiB")
	}
	b.ReportMetric(0, "ns/op") // of this program, and of no interest
}

// orderCost is what a server has used.
type orderCost struct{ micros, idle, playing, answered float64 }

// giveOrders has players give orders to a server.
func giveOrders(b *testing.B, contact string) orderCost {
	b.Helper()
	p := launch(b, envOrders, contact)
	defer p.kill()
	addr := p.await(b, "listening").Who
	usage(b, addr) // connections of this client come first
	before := usage(b, addr)
	players := make([]*crowd.Client, orderPlayers)
	var answered atomic.Int64
	var reading sync.WaitGroup
	for i := range players {
		var err error
		players[i], err = crowd.Dial(b.Context(), addr, fmt.Sprintf("/?actor=player-%d", i), gatewayws.Subprotocol)
		require.NoError(b, err)
		reading.Go(func() {
			for {
				answer, err := players[i].Next()
				if err != nil {
					return
				}
				if strings.Contains(string(answer), `"applied"`) {
					answered.Add(1)
				}
			}
		})
	}
	time.Sleep(time.Second)
	idle := usage(b, addr)
	play := func(d time.Duration) (given int) {
		for began := time.Now(); time.Since(began) < d; time.Sleep(time.Millisecond) {
			for ; given < int(int64(time.Since(began))*orderPlayers/int64(orderEvery)); given++ {
				require.NoError(b, players[given%orderPlayers].Send(true, orderFrame(given)), "tile server %q", contact)
			}
		}
		return given
	}
	play(orderTime / 5)
	time.Sleep(2 * orderTick)
	answered.Store(0)
	begun := usage(b, addr)
	given := play(orderTime)
	playing := usage(b, addr)
	time.Sleep(2 * orderTick)
	ended := usage(b, addr)
	done := answered.Load()
	require.NotZero(b, done)
	for _, player := range players {
		player.Close()
	}
	reading.Wait()
	kib := func(u usedBy) float64 { return float64(u.Memory-before.Memory) / 1024 / orderPlayers }
	return orderCost{micros: float64((ended.CPU - begun.CPU).Nanoseconds()) / 1000 / float64(done),
		idle: kib(idle), playing: kib(playing), answered: float64(done) / float64(given)}
}

// orderFrame is an order as clients write it.
func orderFrame(n int) []byte {
	return fmt.Appendf(nil, `{"id":"%d","tile":"%s","kind":"move","body":"%s","within":3000}`, n,
		fence.TileID(1+n%orderTiles), base64.StdEncoding.EncodeToString(make([]byte, orderBody)))
}

// usedBy is what a server has used.
type usedBy struct {
	CPU    time.Duration
	Memory int64 // bytes that are resident
}

// usage asks a server what it has used.
func usage(b *testing.B, addr string) (u usedBy) {
	b.Helper()
	r, err := http.Get("http://" + addr + "/used")
	require.NoError(b, err)
	defer func() { _ = r.Body.Close() }()
	require.NoError(b, json.NewDecoder(r.Body).Decode(&u))
	return u
}

// serveTick returns the contact of a tile server that applies each intent at the end of its tick.
func serveTick(b *testing.B) string {
	b.Helper()
	var mu sync.Mutex
	var queued []func(tile.Result, error)
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(nil), &tilehttp.HandlerConfig{
		Queue: func(_ context.Context, _ tile.Intent, answered func(tile.Result, error)) error {
			mu.Lock()
			defer mu.Unlock()
			queued = append(queued, answered)
			return nil
		}})
	require.NoError(b, err)
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	ctx, stop := context.WithCancel(context.Background())
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for tick := time.NewTicker(orderTick); ctx.Err() == nil; <-tick.C {
			mu.Lock()
			all := queued
			queued = nil
			mu.Unlock()
			for _, answered := range all {
				answered(tile.Result{Outcome: stream.Applied}, nil)
			}
		}
	})
	b.Cleanup(func() {
		stop()
		ticking.Wait()
	})
	return server.Listener.Addr().String()
}

// serveOrders is the child process, until SIGTERM.
func serveOrders(text string) error {
	var contact string
	if err := json.Unmarshal([]byte(text), &contact); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	orders := bareOrders()
	if contact != "" {
		gateway, err := gatewayOrders(ctx, contact)
		if err != nil {
			return err
		}
		orders = gateway
	}
	mux := http.NewServeMux()
	mux.Handle("/", orders)
	mux.HandleFunc("/used", func(w http.ResponseWriter, _ *http.Request) {
		var pages, resident int64
		statm, err := os.ReadFile("/proc/self/statm")
		if err == nil {
			_, err = fmt.Sscan(string(statm), &pages, &resident)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(usedBy{cputime.Used(), resident * int64(os.Getpagesize())})
	})
	server, err := listening(ctx, mux)
	if err != nil {
		return err
	}
	speaker()(nodeEvent{What: "listening", Who: server.Listener.Addr().String()})
	<-ctx.Done()
	return nil
}

// bareOrders reads an order and writes an answer, and does nothing else.
func bareOrders() http.Handler {
	answer := socket.Frame(socket.OpText, []byte(`{"id":"10000","outcome":"applied"}`))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := socket.Accept(w, r, socket.Offer{Subprotocol: gatewayws.Subprotocol}, 16<<10, nil,
			func() error { return nil })
		if err != nil {
			return
		}
		go func() { // so that the server's buffers are freed
			defer func() { _ = conn.Close() }()
			for {
				if _, _, err := conn.Next(); err != nil || conn.Send(time.Minute, answer) != nil {
					return
				}
			}
		}()
	})
}

// oneOwner routes every tile to a contact.
type oneOwner string

func (o oneOwner) Route(context.Context, fence.TileID) (string, error)     { return string(o), nil }
func (o oneOwner) Confirmed(context.Context, fence.TileID) (string, error) { return string(o), nil }
func (o oneOwner) Correct(string, route.Entry)                             {}

// gatewayOrders is a gateway whose tiles are all at one contact.
func gatewayOrders(ctx context.Context, contact string) (http.Handler, error) {
	store, err := sqliteledger.Open(ctx, sqliteledger.Memory)
	if err != nil {
		return nil, err
	}
	ledger, err := admission.New(store, nil)
	if err != nil {
		return nil, err
	}
	client, err := tilehttp.NewClient(nil)
	if err != nil {
		return nil, err
	}
	gateway, err := admission.NewGateway(ledger, oneOwner(contact), client, admission.ClientPrices, nil)
	if err != nil {
		return nil, err
	}
	return gatewayws.New(gateway, func(r *http.Request) (session.Identity, error) {
		return session.Identity{Actor: r.FormValue("actor")}, nil
	}, &gatewayws.Config{Sessions: session.Limits{PerAddress: 2 * orderPlayers}})
}
