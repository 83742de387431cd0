//go:build linux

package benchmark

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// envNode makes this test binary a tile server: it holds a nodeConfig as JSON.
const envNode = "TILEFENCE_BENCH_NODE"

func TestMain(m *testing.M) {
	for variable, serve := range map[string]func(string) error{envNode: serveNode, envPart: servePart,
		envFerries: serveFerries, envOrders: serveOrders, envGateway: serveGateway} {
		if text, is := os.LookupEnv(variable); is {
			if err := serve(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// nodeConfig says what a node does.
type nodeConfig struct {
	Redis    []string
	Postgres string
	Contact  string
	Seed     string // gossip address of another node, or empty
	Tiles    []fence.TileID
	Follow   bool // warm follower; otherwise it owns the tiles
}

// nodeEvent is a line a child process prints. Times are of the machine's clock, which all its processes share.
type nodeEvent struct {
	// gossip and listening (Who: the address), ready, died (Who: the member), serving, tookover, counts, window, joined
	What   string
	At     time.Time
	Who    string             `json:",omitempty"`
	Tile   fence.TileID       `json:",omitempty"`
	Took   *tile.TakeoverInfo `json:",omitempty"`
	Counts counts             `json:",omitempty"` // since it began
	Window *window            `json:",omitempty"`
}

// speaker returns a function that prints events, one a line; it may be called from several goroutines.
func speaker() func(nodeEvent) {
	var mu sync.Mutex
	return func(e nodeEvent) {
		e.At = time.Now()
		line, _ := json.Marshal(e) // it holds nothing that JSON cannot
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(string(line))
	}
}

// serveNode is the child process: a host of tiles, its gossip and its intent port, until SIGTERM.
func serveNode(text string) error {
	var cfg nodeConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say := speaker()
	seams, done, err := openSeams(ctx, cfg.Redis, cfg.Postgres)
	if err != nil {
		return err
	}
	defer done()
	table := new(route.Table)
	var host *tilehost.Host
	g := &gossip.Config{Bind: "127.0.0.1:0", Timing: gossip.Fast(), Notify: func(e route.Event) {
		if e.Kind == route.Died {
			say(nodeEvent{What: "died", Who: e.Member.Contact})
			host.Suspect(e.Member.Contact)
		}
	}}
	if cfg.Seed != "" {
		g.Seeds = []string{cfg.Seed}
	}
	node, err := gossip.New(cfg.Contact, table, g)
	if err != nil {
		return err
	}
	host, err = tilehost.New(cfg.Contact, seams, func(fence.TileID) (tile.Rules, error) { return &busy{}, nil },
		&tilehost.Config{
			Announce: func(o fence.Owner) {
				// of the host's own making
				_ = node.Announce(route.Entry{Tile: o.Tile, Epoch: o.Epoch, Contact: o.Contact})
			},
			Tile: tile.Config{SuspectAfter: tile.NeverSuspect, Hooks: tile.Hooks{
				Transition: func(i tile.TransitionInfo) {
					if i.To == tile.Serving {
						say(nodeEvent{What: "serving", Tile: i.Tile})
					}
				},
				TookOver: func(i tile.TakeoverInfo) { say(nodeEvent{What: "tookover", Tile: i.Tile, Took: &i}) },
			}},
		})
	if err != nil {
		return err
	}
	return runNode(ctx, &cfg, host, node, say)
}

// runNode runs what serveNode has made.
func runNode(ctx context.Context, cfg *nodeConfig, host *tilehost.Host, node *gossip.Node, say func(nodeEvent)) error {
	var running sync.WaitGroup
	errs := make(chan error, 3)
	running.Go(func() { errs <- node.Run(ctx) })
	running.Go(func() { errs <- host.Run(ctx) })
	server := &http.Server{Addr: cfg.Contact, Handler: muxOf(host), ReadHeaderTimeout: time.Second}
	go func() { _ = server.ListenAndServe() }()
	defer func() { _ = server.Close() }()
	<-node.Ready()
	say(nodeEvent{What: "gossip", Who: node.Addr()})
	var err error
	if cfg.Follow {
		err = host.Follow(cfg.Tiles...)
	} else if err = host.Own(cfg.Tiles...); err == nil {
		err = host.Await(ctx, cfg.Tiles...)
	}
	if err != nil {
		return err
	}
	for cfg.Follow && !warm(host, cfg.Tiles) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	say(nodeEvent{What: "ready"})
	running.Wait()
	return nil
}

// muxOf is a host's internal port: intents and hand-overs.
func muxOf(host *tilehost.Host) http.Handler {
	mux := http.NewServeMux()
	intents, err := tilehttp.NewHandler(host, &tilehttp.HandlerConfig{Queue: host.Queue})
	if err != nil { // there is a host, and no configuration
		panic(err)
	}
	mux.Handle(tilehttp.Path, intents)
	mux.Handle(tilehttp.HandoverPath, tilehttp.HandoverHandler(host, nil))
	return mux
}

// warm reports whether every tile is followed and its owner known.
func warm(host *tilehost.Host, tiles []fence.TileID) bool {
	for _, id := range tiles {
		if s, ok := host.TileStatus(id); !ok || s.State != tile.Following || !s.Owner.Present() {
			return false
		}
	}
	return true
}

// openSeams connects to the real servers.
func openSeams(ctx context.Context, addrs []string, postgres string) (tile.Seams, func(), error) {
	pool, err := pgxpool.New(ctx, postgres)
	if err != nil {
		return tile.Seams{}, nil, err
	}
	authority, err := pgfence.New(pool, nil)
	if err == nil {
		err = authority.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return tile.Seams{}, nil, err
	}
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	done := func() {
		_ = client.Close()
		pool.Close()
	}
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	if err == nil {
		err = store.Load(ctx)
	}
	if err != nil {
		done()
		return tile.Seams{}, nil, err
	}
	return tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}, done, nil
}

// busy is a game in which something happens every tick.
type busy struct{ tally }

// Resolve implements tile.Rules.
func (g *busy) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	events = append(events, []byte("something happened"))
	for range intents {
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// process is a child that runs.
type process struct {
	cmd     *exec.Cmd
	orders  io.Writer // its standard input
	events  chan nodeEvent
	counted atomic.Pointer[counts] // the last it said
	contact string
	gossip  string
	ended   chan struct{}
}

// startNode starts a node and waits until it is ready.
func startNode(b *testing.B, cfg nodeConfig) *process {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	cfg.Contact = l.Addr().String()
	require.NoError(b, l.Close())
	cfg.Redis = stacktest.Redis(b)
	p := launch(b, envNode, cfg)
	p.contact = cfg.Contact
	p.gossip = p.await(b, "gossip").Who
	p.await(b, "ready")
	return p
}

// launch starts this test binary as a child that finds its configuration, as JSON, in a variable. It is killed
// at the end of the test.
func launch(tb testing.TB, variable string, cfg any) *process {
	tb.Helper()
	text, err := json.Marshal(cfg)
	require.NoError(tb, err)
	p := &process{cmd: exec.Command(os.Args[0]), events: make(chan nodeEvent, 1<<16), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	devstack.EndTogether(p.cmd)
	out, err := p.cmd.StdoutPipe()
	require.NoError(tb, err)
	p.orders, err = p.cmd.StdinPipe()
	require.NoError(tb, err)
	started := make(chan error)
	go p.follow(out, started)
	require.NoError(tb, <-started)
	tb.Cleanup(p.kill)
	return p
}

// follow starts the process and reads its lines, on the thread whose end would end the process.
func (p *process) follow(out io.Reader, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e nodeEvent
		if !strings.HasPrefix(lines.Text(), "{") || json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		if e.What == "counts" {
			p.counted.Store(&e.Counts)
		} else {
			p.events <- e
		}
	}
	_ = p.cmd.Wait() // it was killed
}

// await returns the next event of a kind and drops what comes before.
func (p *process) await(tb testing.TB, what string) nodeEvent {
	tb.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case e := <-p.events:
			if e.What == what {
				return e
			}
		case <-p.ended:
			tb.Fatalf("the child ended before %q", what)
		case <-deadline:
			tb.Fatalf("no %q within 30 s", what)
		}
	}
}

// kill ends the child as kill -9 does, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}
