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
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
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

// worker runs processors for the tiles that it is ordered to own.
type worker struct {
	cfg      workerConfig
	recorder *history.Recorder
	seams    tile.Seams
	toRedis  accidents
	toRows   accidents

	mu    sync.Mutex
	runs  int
	tiles map[fence.TileID]*owned
	wg    sync.WaitGroup
}

// owned is the last processor that the worker ran for a tile.
type owned struct {
	processor *tile.TileProcessor
	ended     chan struct{}
	err       error // of Run; set before ended is closed
}

func work(ctx context.Context, cfg workerConfig) error {
	file, err := history.Create(cfg.History)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	logging.Disable() // what a worker prints is a finding; lost connections are none
	w := &worker{cfg: cfg, recorder: history.NewRecorder(cfg.Process, file, nil), tiles: map[fence.TileID]*owned{}}
	if err := w.connect(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Contact)
	if err != nil {
		return err
	}
	intents, err := tilehttp.NewHandler(w, nil)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.handler(intents), ReadHeaderTimeout: 5 * time.Second}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return w.recorder.Err()
}

// connect opens the seams, with this worker's host as the source of every connection.
func (w *worker) connect(ctx context.Context) error {
	host, _, err := net.SplitHostPort(w.cfg.Contact)
	if err != nil {
		return err
	}
	options := redisfence.Options(w.cfg.Redis...)
	options.Dialer = w.toRedis.dialer(host)
	client := redis.NewClusterClient(options)
	store, err := redisfence.New(client, &redisfence.Config{AllowNoPersistence: true, AllowNoReplicas: w.cfg.Alone})
	if err != nil {
		return err
	}
	pool, err := pgxpool.ParseConfig(w.cfg.Postgres)
	if err != nil {
		return err
	}
	pool.MaxConns = 4
	pool.ConnConfig.DialFunc = w.toRows.dialer(host)
	rows, err := pgxpool.NewWithConfig(ctx, pool)
	if err != nil {
		return err
	}
	authority, err := pgfence.New(rows, nil)
	w.seams = tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}
	return err
}

// own makes the tile's processor take it from its owner: the follower at work, or a new one. With follow,
// a follower is started instead, unless a processor is at work.
func (w *worker) own(id fence.TileID, follow bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.tiles[id]; o != nil && !o.hasEnded() {
		if !follow {
			o.processor.TakeOver(tile.Ordered) // ignored unless it follows
		}
		return nil
	}
	w.runs++
	client := fmt.Sprintf("%s#%d", id, w.runs)
	seams := tile.Seams{Authority: w.recorder.Authority(client, w.seams.Authority),
		Store: w.recorder.Store(client, w.seams.Store), Log: w.seams.Log}
	p, err := tile.New(id, w.cfg.Contact, seams, &game.Register{}, &tile.Config{
		TickInterval: w.cfg.Tick, SnapshotEvery: 20, ConfirmEvery: 5, TakeOver: true, Follow: follow,
		Hooks: w.recorder.Hooks(client, w.cfg.Contact, tile.Hooks{}),
	})
	if err != nil {
		return err
	}
	o := &owned{processor: p, ended: make(chan struct{})}
	w.tiles[id] = o
	w.wg.Go(func() {
		o.err = p.Run(context.Background()) // a worker ends by being killed
		w.recorder.Ended(client, w.cfg.Contact, id, o.err)
		close(o.ended)
	})
	return nil
}

func (o *owned) hasEnded() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// Submit implements tilehttp.Submitter over all the worker's tiles.
func (w *worker) Submit(ctx context.Context, in tile.Intent) (stream.Outcome, error) {
	w.mu.Lock()
	o := w.tiles[in.Tile]
	w.mu.Unlock()
	if o == nil {
		return 0, &tile.RedirectError{Tile: in.Tile}
	}
	return o.processor.Submit(ctx, in)
}

var _ tilehttp.Submitter = (*worker)(nil)
