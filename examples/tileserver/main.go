// Tileserver is a complete tile server: one tile on Redis and PostgreSQL, taking intents over HTTP.
//
//	REDIS=127.0.0.1:7000,127.0.0.1:7001 POSTGRES=postgres://… go run ./examples/tileserver
//
// The part between the markers is what README.md shows.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// [begin]

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	pool := must(pgxpool.New(ctx, os.Getenv("POSTGRES")))
	authority := must(pgfence.New(pool, nil)) // mints epochs
	check(authority.Migrate(ctx))

	client := redis.NewClusterClient(redisfence.Options(strings.Split(os.Getenv("REDIS"), ",")...))
	local := &redisfence.Config{AllowNoPersistence: true, AllowNoReplicas: true} // nil in production
	store := must(redisfence.New(client, local))                                 // commits under them
	check(store.Load(ctx))

	const id, contact = fence.TileID(0x85283083fffffff), "127.0.0.1:7777"
	seams := tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}
	p := must(tile.New(id, contact, seams, &doorbell{}, nil))

	go func() { check(http.ListenAndServe(contact, tilehttp.Handler(p))) }()
	check(p.Run(ctx)) // claims, replays, ticks at 2 Hz; drains on Ctrl-C
}

// doorbell is the game: everybody can ring, and the state counts the rings.
type doorbell struct{ rings byte }

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

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
