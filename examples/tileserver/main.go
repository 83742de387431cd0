// Tileserver is a complete production process: a tile server with gossip, wake hints, hand-over and warm followers,
// and a checkpointer, on Redis, PostgreSQL and DynamoDB. Any number of them run the same tiles together.
//
//	TILEFENCE_CONTACT=10.0.0.7:7000 TILEFENCE_GOSSIP=10.0.0.7:7946 TILEFENCE_GOSSIP_SEEDS=10.0.0.8:7946 \
//	TILEFENCE_REDIS=10.0.1.1:6379,10.0.1.2:6379 TILEFENCE_POSTGRES=postgres://… AWS_REGION=… \
//	TILEFENCE_SECRET=$(openssl rand -hex 32) go run ./examples/tileserver
//
// TILEFENCE_SECRET is the same for all: with it the servers prove themselves to each other, and encrypt their gossip.
// To replace it, name several with commas between: the first is used, all are accepted. Where others reach the process
// at addresses that it does not have itself, it listens at TILEFENCE_LISTEN and TILEFENCE_GOSSIP, and they reach it at
// TILEFENCE_CONTACT and TILEFENCE_GOSSIP_ADVERTISE. /livez and /readyz are at TILEFENCE_OPERATOR, by default
// 127.0.0.1:8082.
//
// The part between the markers is short enough to be copied.
package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/share/redisshare"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// [begin]

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// A setting that is wrong ends the process before it waits for anything.
	options, err := redisfence.ParseOptions(os.Getenv("TILEFENCE_REDIS"))
	check(named("TILEFENCE_REDIS", err))
	pool, err := pgxpool.New(ctx, os.Getenv("TILEFENCE_POSTGRES"))
	check(named("TILEFENCE_POSTGRES: want postgres://user:password@host/database", err))
	authority, err := pgfence.New(pool, &pgfence.Config{World: os.Getenv("TILEFENCE_WORLD")}) // mints epochs
	check(named("TILEFENCE_WORLD", err))
	keys := secrets("TILEFENCE_SECRET")
	contact := os.Getenv("TILEFENCE_CONTACT")
	check(named("TILEFENCE_CONTACT", route.ValidateAddress(contact)))
	aws := must(config.LoadDefaultConfig(ctx))

	start := &tilefence.Starting{Logger: slog.Default()} // alive and not ready while a back end is away
	operator := must(net.Listen("tcp", cmp.Or(os.Getenv("TILEFENCE_OPERATOR"), "127.0.0.1:8082")))
	go func() { check(http.Serve(operator, start)) }()
	await := func(what string, open func(context.Context) error) {
		err := start.Await(ctx, what, open)
		if ctx.Err() != nil {
			log.Printf("stopped: %v", err)
			os.Exit(0)
		}
		check(err)
	}
	await("PostgreSQL", authority.Migrate)
	var world fence.World // no other mixes with it
	await("PostgreSQL", func(ctx context.Context) (err error) {
		world, err = authority.World(ctx)
		return err
	})
	var client redis.UniversalClient
	await("coordination Redis", func(ctx context.Context) (err error) {
		client, err = redisfence.Connect(ctx, options)
		return err
	})
	store := must(redisfence.New(client, &redisfence.Config{World: world})) // commits under them
	await("coordination Redis", store.Load)
	table := cmp.Or(world.Name, "tilefence") + "-checkpoints" // a table is of one world
	durable := must(dynamocheckpoint.New(dynamodb.NewFromConfig(aws), table, nil))
	await("DynamoDB", durable.EnsureTable)

	b := tilefence.Backends{
		Authority: authority, Store: store, Log: redisstream.New(store, client), Durable: durable,
		Fanout:  must(redisfanout.New(client, &redisfanout.Config{World: world})),
		Workers: redisshare.New(client, world),
		Members: gossip.Config{Bind: os.Getenv("TILEFENCE_GOSSIP"), SecretKeys: keys, Label: world.String(),
			Advertise: os.Getenv("TILEFENCE_GOSSIP_ADVERTISE"), Seeds: list("TILEFENCE_GOSSIP_SEEDS")},
		Keys: keys,
	}
	cfg := &tilefence.TileServerConfig{Logger: slog.Default()}
	cfg.Web.Listener = must(net.Listen("tcp", cmp.Or(os.Getenv("TILEFENCE_LISTEN"), contact)))
	server := must(tilefence.NewTileServer(contact, b, newDoorbell, cfg))
	check(server.Own(0x85283083fffffff, 0x85283087fffffff)) // or follow those that another server owns
	checkpointer := must(tilefence.NewCheckpointServer(b, nil))
	probes := http.NewServeMux()
	probes.Handle("/livez", tilefence.LiveHandler(server, checkpointer))
	probes.Handle("/readyz", tilefence.ReadyHandler(server, checkpointer))
	start.Started(probes)
	check(tilefence.Run(ctx, server, checkpointer)) // on Ctrl-C hands the tiles over
}

// doorbell is the game: everybody can ring, and the state counts the rings.
type doorbell struct{ rings byte }

func newDoorbell(fence.TileID) (tile.Rules, error) { return &doorbell{}, nil }

func (d *doorbell) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("ring")), append(out, stream.Applied)
	}
	return events, out
}

func (d *doorbell) Apply(_ fence.Tick, events [][]byte) error {
	d.rings += byte(len(events))
	return nil
}
func (d *doorbell) Snapshot() ([]byte, error)     { return []byte{d.rings}, nil }
func (d *doorbell) Restore(snapshot []byte) error { d.rings = append(snapshot, 0)[0]; return nil }

// [end]

// list is what a variable lists with commas between.
func list(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' })
}

// secrets are the keys that a variable lists, of 32 bytes in hexadecimal each.
func secrets(variable string) (keys tilehttp.Keys) {
	for _, text := range list(variable) {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != 32 {
			keys = nil
			break
		}
		keys = append(keys, key)
	}
	if keys == nil {
		log.Fatal(variable + ": want 32 bytes in hexadecimal, from openssl rand -hex 32; of several, the first is used")
	}
	return keys
}

// named says which setting an error is about.
func named(setting string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", setting, err)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
