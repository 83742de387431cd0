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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// envWorker holds a workerConfig as JSON in the environment of a worker process.
const envWorker = "TILEFENCE_ROBUSTNESS_WORKER"

// workerConfig configures a worker process.
type workerConfig struct {
	Process  string   // name of this run of the worker in the history
	Contact  string   // host:port it listens on; the host is also the one it connects from
	History  string   // file it records to
	Redis    []string // nodes of the coordination cluster
	Postgres string   // URL
	Tick     time.Duration
	Alone    bool // installs need no replica where a master lists none
}

// classes are the durability classes of the tiles, by their numbers. There is no journal, so none writes through.
var classes = []tile.Durability{tile.Checkpointed, tile.Replicated, tile.ReplicatedActions}

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

// worker is a tilehost.Host for the tiles that it is ordered to own.
type worker struct {
	cfg     workerConfig
	host    *tilehost.Host
	toRedis accidents
	toRows  accidents

	mu    sync.Mutex
	ended map[fence.TileID]tileStatus // of processors that have ended
}

func work(ctx context.Context, cfg workerConfig) error {
	file, err := history.Create(cfg.History)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	logging.Disable() // what a worker prints is a finding; lost connections are none
	w := &worker{cfg: cfg, ended: map[fence.TileID]tileStatus{}}
	seams, err := w.connect(ctx)
	if err != nil {
		return err
	}
	recorder := history.NewRecorder(cfg.Process, file, nil)
	hosting := tilehost.Config{Tile: tile.Config{TickInterval: cfg.Tick, SnapshotEvery: 20, ConfirmEvery: 5},
		Hooks: tilehost.Hooks{Ended: w.noteEnd}, Configure: func(id fence.TileID, c *tile.Config) {
			c.Durability = classes[int(id>>1)%len(classes)]
		}}
	rules := func(fence.TileID) (tile.Rules, error) { return &game.Register{}, nil }
	w.host, err = tilehost.New(cfg.Contact, recorder.Host(cfg.Contact, seams, &hosting), rules, &hosting)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Contact)
	if err != nil {
		return err
	}
	go func() { _ = w.host.Run(context.Background()) }() // a worker ends by being killed
	intents, err := tilehttp.NewHandler(w.host, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(tilehttp.Path, intents)
	mux.HandleFunc("POST "+orderPath, w.takeOrder)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return recorder.Err()
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

// connect opens the seams, with this worker's host as the source of every connection.
func (w *worker) connect(ctx context.Context) (seams tile.Seams, err error) {
	host, _, err := net.SplitHostPort(w.cfg.Contact)
	if err != nil {
		return seams, err
	}
	options := redisfence.Options(w.cfg.Redis...)
	options.Dialer = w.toRedis.dialer(host)
	client := redis.NewClusterClient(options)
	store, err := redisfence.New(client, &redisfence.Config{AllowNoPersistence: true, AllowNoReplicas: w.cfg.Alone})
	if err != nil {
		return seams, err
	}
	pool, err := pgxpool.ParseConfig(w.cfg.Postgres)
	if err != nil {
		return seams, err
	}
	pool.MaxConns = 4
	pool.ConnConfig.DialFunc = w.toRows.dialer(host)
	rows, err := pgxpool.NewWithConfig(ctx, pool)
	if err != nil {
		return seams, err
	}
	authority, err := pgfence.New(rows, nil)
	return tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}, err
}
