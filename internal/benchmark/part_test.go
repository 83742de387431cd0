//go:build linux

package benchmark

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// envPart makes this test binary one of the parts of a deployment: it holds a partConfig as JSON.
const envPart = "TILEFENCE_BENCH_PART"

// partConfig says which part a process is, and what it works with.
type partConfig struct {
	Role     string // owner, bridge, checkpointer, relay, reader or viewers
	Redis    []string
	Fanout   []string
	DynamoDB string
	Table    string
	Tiles    []fence.TileID

	// Of an owner.
	Tick          time.Duration
	SnapshotEvery int  // ticks
	Payload       int  // bytes of the event that each tick has
	State         int  // bytes of the state
	Full          bool // tiles of the battle, full of ships, instead

	Hints bool // the owner gives wake hints, the bridge takes them

	// Of a bridge.
	MarkEvery time.Duration

	// Of a reader.
	AtOnce   int           // recoveries at once; of viewers: how many join
	Pause    time.Duration // at most, at random, before each
	Replicas bool          // read from them
}

// counts are what a part has done since it began, by name.
type counts map[string]int64

// part is a process that plays one part.
type part struct {
	partConfig
	log    *redisstream.Log
	store  *redisfence.Store
	fanout *redisfanout.Fanout
	meter  *partMeter
	say    func(nodeEvent)
}

// servePart is the child process: one part until SIGTERM.
func servePart(text string) error {
	p := part{say: speaker(), meter: &partMeter{}}
	if err := json.Unmarshal([]byte(text), &p.partConfig); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := redis.NewClusterClient(redisfence.Options(p.Redis...))
	defer func() { _ = client.Close() }()
	var err error
	if p.store, err = redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile}); err != nil {
		return err
	}
	reading := client
	if p.Replicas {
		options := redisfence.Options(p.Redis...)
		options.ReadOnly = true
		reading = redis.NewClusterClient(options)
		defer func() { _ = reading.Close() }()
	}
	p.log = redisstream.New(p.store, reading)
	if len(p.Fanout) > 0 {
		delivery := redis.NewClusterClient(redisfanout.Options(p.Fanout...))
		defer func() { _ = delivery.Close() }()
		if p.fanout, err = redisfanout.New(delivery, nil); err != nil {
			return err
		}
	}
	play, ok := map[string]func(context.Context) error{"owner": p.own, "bridge": p.forward,
		"checkpointer": p.checkpoint,
		"relay":        p.relay, "reader": p.read, "viewers": p.view}[p.Role]
	if !ok {
		return fmt.Errorf("no part is called %q", p.Role)
	}
	return play(ctx)
}

// own runs the tiles, and answers each line of its input with what it measured since the one before.
func (p *part) own(ctx context.Context) error {
	rules := func(fence.TileID) (tile.Rules, error) {
		return &steady{event: make([]byte, p.Payload), state: make([]byte, p.State)}, nil
	}
	if p.Full {
		rules = newFull
	}
	hooks := p.meter.hooks()
	if p.Hints {
		hinter, err := fanout.NewHinter(p.fanout, nil)
		if err != nil {
			return err
		}
		go func() { _ = hinter.Run(ctx) }()
		measured := hooks.Committed
		hooks.Committed = func(i tile.CommitInfo) {
			measured(i)
			hinter.Hint(i.Tile)
		}
	}
	h, err := tilehost.New("owner:1", tile.Seams{Authority: memfence.NewAuthority(), Store: p.store, Log: p.log}, rules,
		&tilehost.Config{
			Tile: tile.Config{TickInterval: p.Tick, SnapshotEvery: p.SnapshotEvery, SuspectAfter: tile.NeverSuspect,
				Hooks: hooks},
		})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	if err := h.Own(p.Tiles...); err != nil {
		return err
	}
	if err := h.Await(ctx, p.Tiles...); err != nil {
		return err
	}
	p.say(nodeEvent{What: "ready"})
	go func() {
		for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
			w := p.meter.cut()
			p.say(nodeEvent{What: "window", Window: &w})
		}
	}()
	return <-ended
}

func (p *part) forward(ctx context.Context) error {
	var hints fanout.HintSubscriber
	if p.Hints {
		hints = p.fanout
	}
	b, err := bridge.New(p.log, p.fanout, hints, p.Tiles, &bridge.Config{MarkEvery: p.MarkEvery})
	if err != nil {
		return err
	}
	p.count(ctx, func() counts {
		s := b.Stats()
		return counts{"batches": int64(s.Batches), "failures": int64(s.StoreFailures + s.PublishFailures)}
	})
	return b.Run(ctx)
}

// checkpointCadence is short, so that the durable store is worked on all the time.
const checkpointCadence = time.Second

func (p *part) checkpoint(ctx context.Context) error {
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(p.DynamoDB),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")})
	store, err := dynamocheckpoint.New(client, p.Table, nil)
	if err == nil {
		err = store.EnsureTable(ctx)
	}
	if err != nil {
		return err
	}
	var durable, failed atomic.Int64
	c, err := checkpoint.New(p.log, store, nil, p.Tiles,
		&checkpoint.Config{Cadence: checkpointCadence, Hooks: checkpoint.Hooks{
			Durable: func(checkpoint.DurableInfo) { durable.Add(1) },
			Failed:  func(checkpoint.FailedInfo) { failed.Add(1) },
		}})
	if err != nil {
		return err
	}
	p.count(ctx, func() counts { return counts{"durable": durable.Load(), "failures": failed.Load()} })
	return c.Run(ctx)
}

// relay runs a relay, and clients that watch all tiles of its configuration through it.
func (p *part) relay(ctx context.Context) error {
	r, err := relay.New(p.fanout, p.log, relay.Public, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	server, err := listening(ctx, r.Handler())
	if err != nil {
		return err
	}
	defer server.Close()
	p.say(nodeEvent{What: "listening", Who: server.Listener.Addr().String()})
	for tiles := range slices.Chunk(p.Tiles, relay.DefaultMaxTilesPerClient) {
		c, err := relayclient.Dial(ctx, server.URL, &relayclient.Config{})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if err := c.Subscribe(ctx, tiles...); err != nil {
			return err
		}
	}
	p.count(ctx, func() counts {
		s := r.Stats()
		return counts{"frames": int64(s.FramesIn), "repairs": int64(s.Repairs), "failures": int64(s.RepairsFailed)}
	})
	return <-ended
}

// read recovers one tile after another, as relays do that have lost their connections.
func (p *part) read(ctx context.Context) error {
	var done, failed, bytes atomic.Int64
	p.count(ctx, func() counts {
		return counts{"reads": done.Load(), "failures": failed.Load(), "bytes": bytes.Load()}
	})
	var readers sync.WaitGroup
	for range p.AtOnce {
		readers.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(rand.N(p.Pause + 1))
				r, err := stream.Recover(ctx, p.log, p.Tiles[rand.IntN(len(p.Tiles))])
				if err != nil {
					failed.Add(1)
					continue
				}
				done.Add(1)
				n := len(r.Snapshot.Blob)
				for i := range r.Entries {
					n += len(r.Entries[i].Payload)
				}
				bytes.Add(int64(n))
			}
		})
	}
	readers.Wait()
	return nil
}

// count says that the part is ready, and then what it has done, until ctx ends.
func (p *part) count(ctx context.Context, what func() counts) {
	p.say(nodeEvent{What: "counts", Counts: what()})
	p.say(nodeEvent{What: "ready"})
	go func() {
		for turn := time.NewTicker(countEvery); ctx.Err() == nil; <-turn.C {
			p.say(nodeEvent{What: "counts", Counts: what()})
		}
	}()
}

// countEvery is how often a part says what it has done.
const countEvery = 100 * time.Millisecond
