//go:build unix

package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// envWorker holds a workerConfig as JSON in the environment of a worker process.
const envWorker = "TILEFENCE_ROBUSTNESS_WORKER"

// workerConfig configures a worker process.
type workerConfig struct {
	Process string // name of this run of the worker in the history
	Contact string // host:port it listens on; the host is also the one it connects from
	Gossip  string // host:port
	Orders  string // host:port
	History string // file it records to
	Servers servers
	Tiles   []fence.TileID // of the run, among which travellers cross
	Tick    time.Duration

	Travellers int  // that begin in each tile
	Unbroken   bool // the run is long: most of what happens is not recorded, and outcomes are soon forgotten
	Durable    bool // all tiles have a journal
}

// classes are the durability classes of the tiles: two bits of a tile's number choose.
var classes = [4]tile.Durability{tile.Checkpointed, tile.Replicated, tile.ReplicatedActions, tile.WriteThrough}

func classOf(id fence.TileID) tile.Durability { return classes[id>>1&3] }

// retryWindow is for how long an action is sent to its tile. It is shorter than most faults, so that actions expire.
const retryWindow = 1500 * time.Millisecond

// bootTimeout is for how long a claimant tries, and how often an owner looks whether the authority's record is its own.
const bootTimeout = 4 * time.Second

// configure is what tiles differ in. One in three keeps hardly anything for a failover, and rebases after it.
func (w *workerConfig) configure(id fence.TileID, c *tile.Config) {
	c.Durability, c.MixedBorders = classOf(id), true
	if w.Durable {
		c.Durability = tile.WriteBehind
	}
	if keepsLittle(id) {
		c.KeepBytes = littleKept
	}
}

// littleKept is about two batches.
const littleKept = 500

func keepsLittle(id fence.TileID) bool { return id>>3&1 == 0 }

// RunWorker turns this process into a worker, for ever, if its environment says so. Call it first thing in
// main or TestMain: a campaign starts its workers from its own executable.
func RunWorker() {
	text := os.Getenv(envWorker)
	if text == "" {
		return
	}
	var cfg workerConfig
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = work(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is a tile server that does what it is ordered.
type worker struct {
	*process
	host      *tilehost.Host
	toClients accidents

	mu    sync.Mutex
	ended map[fence.TileID]tileStatus // of processors that have ended
}

// work serves until ctx ends, and then hands the tiles over. Most workers are killed before.
func work(ctx context.Context, cfg workerConfig) error {
	file, err := history.Create(cfg.History)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	logging.Disable() // what a worker prints is a finding; lost connections are none
	w := &worker{ended: map[fence.TileID]tileStatus{}}
	if w.process, err = cfg.Servers.connect(ctx, hostOf(cfg.Contact), cfg.Gossip); err != nil {
		return err
	}
	defer w.close()
	w.Workers = nil // a worker that was killed is started again at once, and not after its lease on the address
	var sink history.Sink = file
	limits := tile.Limits{RetryWindow: retryWindow}
	if cfg.Unbroken {
		sink, limits.RememberFor = history.Only{Sink: file, Kinds: keptUnbroken}, 10*retryWindow
	}
	recorder := history.NewRecorder(cfg.Process, sink, nil)
	intents, err := net.Listen("tcp", cfg.Contact)
	if err != nil {
		return err
	}
	serving := tilefence.TileServerConfig{HandOverTimeout: 3 * time.Second,
		Web: tilefence.Web{Listener: &frailListener{intents, &w.toClients}},
		Host: tilehost.Config{Configure: cfg.configure, Hooks: tilehost.Hooks{Ended: w.noteEnd},
			Tile: tile.Config{TickInterval: cfg.Tick, SnapshotEvery: 20, ConfirmEvery: 5,
				Limits: limits, Timeouts: tile.Timeouts{BootTimeout: bootTimeout}}}}
	b := w.Backends
	seams, journal := recorder.Host(cfg.Contact, w.seams(), b.Durable, &serving.Host)
	b.Authority, b.Store = seams.Authority, seams.Store
	b.Durable = struct {
		checkpoint.Store
		checkpoint.JournalStore
	}{b.Durable, journal}
	rules := func(id fence.TileID) (tile.Rules, error) {
		return &game.Register{Travel: game.TravelAmong(cfg.Tiles, id, cfg.Travellers)}, nil
	}
	server, err := tilefence.NewTileServer(cfg.Contact, b, rules, &serving)
	if err != nil {
		return err
	}
	w.host = server.Host()
	orders, err := net.Listen("tcp", cfg.Orders)
	if err != nil {
		return err
	}
	commands := &http.Server{Handler: http.HandlerFunc(w.takeOrder), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = commands.Serve(orders) }() // until the process ends
	return errors.Join(server.Run(ctx), recorder.Err())
}

func (w *worker) noteEnd(i tilehost.EndInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := tileStatus{Status: i.Status}
	if i.Err != nil {
		ended.Err = i.Err.Error()
	}
	w.ended[i.Status.Tile] = ended
}
