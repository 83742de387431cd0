package tilehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// BenchmarkIntents is a gateway's client and a tile server at 2 Hz in one process, over loopback: on one connection,
// and with a request for each intent, as it was before.
//
// steady: bots (-bots, 10,000 by default) send an intent a second each, at times of their own. burst: they send the
// next one when they have the outcome of the last, all together at each tick. CPU and allocations are those of both
// sides and the bots. late is how long after the commit of its tick a bot has its outcome, without the wait for it.
func BenchmarkIntents(b *testing.B) {
	for _, pace := range []struct {
		name  string
		pause time.Duration
	}{{"steady", time.Second}, {"burst", 0}} {
		b.Run(pace.name+"/request", func(b *testing.B) {
			transport := &http.Transport{MaxIdleConnsPerHost: 20000}
			defer transport.CloseIdleConnections()
			playBots(b, &requests{transport}, pace.pause)
		})
		b.Run(pace.name+"/connection", func(b *testing.B) { playBots(b, newClient(b, nil), pace.pause) })
	}
}

// benchBots is how many bots play. Requests need fewer on a machine that is busy otherwise, or they all time out.
var benchBots = flag.Int("bots", 10000, "how many bots play in BenchmarkIntents")

const (
	benchWarmUp = 2 * time.Second
	benchTime   = 4 * time.Second
)

// playBots has bots send intents for benchTime.
func playBots(b *testing.B, f forwarder, pause time.Duration) {
	var committed, measuring atomic.Int64
	contact := serveQuiet(b, &committed)
	bots := make([]bot, *benchBots)
	ctx, cancel := context.WithCancel(b.Context())
	var playing sync.WaitGroup
	for i := range bots {
		playing.Go(func() { bots[i].play(ctx, f, contact, pause, &committed, &measuring) })
	}
	time.Sleep(benchWarmUp)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	measuring.Store(1)
	used, began := cputime.Used(), time.Now()
	time.Sleep(benchTime)
	measuring.Store(0)
	used, took := cputime.Used()-used, time.Since(began)
	runtime.ReadMemStats(&after)
	cancel()
	playing.Wait()

	var late []time.Duration
	failed := 0
	for i := range bots {
		late = append(late, bots[i].late...)
		failed += bots[i].failed
	}
	slices.Sort(late)
	n := float64(len(late))
	require.NotZero(b, n)
	b.ReportMetric(n/took.Seconds(), "intents/s")
	b.ReportMetric(float64(used.Microseconds())/n, "cpu-us/intent")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/intent")
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "late-p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "late-p99-ms")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(0, "ns/op")
}

// bot sends intents, one at a time.
type bot struct {
	late   []time.Duration
	failed int
}

func (p *bot) play(
	ctx context.Context, f forwarder, contact string, pause time.Duration, committed, measuring *atomic.Int64,
) {
	body := make([]byte, 64)
	next := time.Now().Add(rand.N(time.Second))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		_, err := f.Forward(limited, contact, tile.Intent{Tile: here, Actor: "ann-123456", Body: body})
		cancel()
		if measuring.Load() == 1 {
			if err != nil {
				p.failed++
			} else {
				p.late = append(p.late, time.Duration(time.Now().UnixNano()-committed.Load()))
			}
		}
		next = next.Add(pause)
	}
}

type forwarder interface {
	Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error)
}

// single is a tile server that takes an intent in each request.
func single(tiles tilehttp.Submitter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Tile  fence.TileID
			Actor string
			Body  []byte
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		outcome, err := tiles.Submit(r.Context(), tile.Intent{Tile: in.Tile, Actor: in.Actor, Body: in.Body})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"Outcome": outcome.Outcome.String()}) // the bot has gone
	}
}

// requests sends each intent in a request of its own.
type requests struct{ transport *http.Transport }

func (p *requests) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	body, err := json.Marshal(map[string]any{"v": 1, "tile": in.Tile, "actor": in.Actor, "body": in.Body})
	if err != nil {
		return tile.Result{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+contact+"/single", bytes.NewReader(body))
	if err != nil {
		return tile.Result{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return tile.Result{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		return tile.Result{}, err
	}
	var reply struct{ Outcome string }
	if err := json.Unmarshal(body, &reply); err != nil {
		return tile.Result{}, err
	}
	o, err := stream.ParseOutcome(reply.Outcome)
	return tile.Result{Outcome: o}, err
}

// quiet is a game in which intents change nothing. It notes when a tick was committed.
type quiet struct{ committed *atomic.Int64 }

func (q quiet) Restore([]byte) error { return nil }

func (q quiet) Resolve(_ fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	return [][]byte{{1}}, slices.Repeat([]stream.Outcome{stream.Applied}, len(intents))
}

func (q quiet) Apply(fence.Tick, [][]byte) error {
	q.committed.Store(time.Now().UnixNano())
	return nil
}
func (q quiet) Snapshot() ([]byte, error) { return nil, nil }

// serveQuiet returns the contact of a process that runs the game in a tile at 2 Hz.
func serveQuiet(b *testing.B, committed *atomic.Int64) string {
	b.Helper()
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	contact := server.Listener.Addr().String()
	p, err := tile.New(here, contact, seams, quiet{committed},
		&tile.Config{Limits: tile.Limits{QueueLimit: 4 * *benchBots}})
	require.NoError(b, err)
	intents := handler(b, p)
	mux.Handle(tilehttp.Path, intents)
	mux.Handle("/single", single(p))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-ended)
		require.NoError(b, intents.Drain(context.Background()))
		server.Close()
	})
	waittest.Until(b, func() bool { return p.Status().State == tile.Serving }, 10*time.Second, time.Millisecond)
	return contact
}
