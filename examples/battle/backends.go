package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/stream/share/redisshare"
	"github.com/tilefence/tilefence/tile/plan/memplan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// backends is what a battle stands on, and what chaos breaks of it.
type backends struct {
	tilefence.Backends
	closers []func()
	stores  *tls.Config // of connections to the servers that this process started; nil: not encrypted

	start                  *tilefence.Starting
	world                  fence.World       // of what the servers keep
	line                   *faultinject.Line // every process's way to the coordination store
	deleteOwner            func(ctx context.Context, id fence.TileID) error
	loseTile               func(id fence.TileID) // empties the store of a tile; nil with servers
	stack                  *devstack.Stack       // servers this process started, or nil
	coordination, delivery *redis.ClusterClient  // nil without servers
	throttle               *faultinject.Throttle // the way to DynamoDB; nil without
	views                  relay.Views           // nil: relays share none
}

// close closes everything, in the reverse order of opening.
func (b *backends) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

func (b *backends) onClose(f func()) { b.closers = append(b.closers, f) }

// openBackends opens what the options ask for. dir is for files of the embedded stores.
func openBackends(
	ctx context.Context, o *options, start *tilefence.Starting, secure *certs.Transport, rebuilds viewcache.Hooks,
	dir string, logger *slog.Logger, progress io.Writer,
) (*backends, error) {
	b := &backends{line: faultinject.New(), start: start}
	b.TLS = secure.Inside()
	b.Members, b.Keys = new(route.Group), o.keys()
	var err error
	at := *o // with the addresses of the servers that this process starts
	switch {
	case o.redis != "":
		if o.certificates != "" {
			b.stores = secure.Inside()
		}
		err = b.openServers(ctx, &at)
	case o.stack == "local":
		fmt.Fprintln(progress, "starting Redis clusters, PostgreSQL and a DynamoDB-compatible server…")
		b.stack, err = devstack.Start(ctx, devstack.Config{Log: progress, Certificates: secure.Certificates()})
		if err == nil {
			b.stores = secure.Inside()
			b.onClose(b.stack.Stop)
			at.redis, at.fanout = strings.Join(b.stack.CoordAddrs, ","), strings.Join(b.stack.FanoutAddrs, ",")
			at.postgres, at.dynamodb, at.views = b.stack.PostgresURL, b.stack.DynamoURL, b.stack.ViewsAddr
			err = b.openServers(ctx, &at)
		}
	default:
		at.views = ""
		err = b.openEmbedded(ctx, dir)
	}
	if o.chaos {
		b.Backends = b.line.Coordination(b.Backends)
	}
	if err == nil && at.views != "" {
		err = b.openViews(at.views, rebuilds, logger)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *backends) openEmbedded(ctx context.Context, dir string) error {
	store := memfence.New()
	b.Authority, b.Store, b.Log = memfence.NewAuthority(), store, memstream.New(store)
	b.Directory = directory.NewMemory()
	b.Fanout, b.Workers, b.Matches, b.Plans = memfanout.New(), share.NewMemory(), memmatch.New(), memplan.New()
	b.deleteOwner = func(_ context.Context, id fence.TileID) error {
		store.Update(id, func(s *memfence.State) { s.Owner = fence.Owner{} })
		return nil
	}
	b.loseTile = func(id fence.TileID) { store.Update(id, func(s *memfence.State) { *s = memfence.State{} }) }
	checkpoints, err := sqlitecheckpoint.Open(ctx, filepath.Join(dir, "checkpoints.db"))
	if err != nil {
		return err
	}
	b.onClose(func() { _ = checkpoints.Close() })
	ledger, err := sqliteledger.Open(ctx, filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	b.onClose(func() { _ = ledger.Close() })
	b.Durable, b.Ledger = checkpoints, ledger
	return nil
}

// openServers waits for servers that are down. What can be known to be wrong without them is refused before.
func (b *backends) openServers(ctx context.Context, o *options) error {
	coordination, err := redisfence.ParseOptions(o.redis)
	if err != nil {
		return err
	}
	named, err := redisfence.ParseOptions(o.fanout)
	if err != nil {
		return err
	}
	delivery := redisfanout.Options(named.Addrs...)
	delivery.Username, delivery.Password, delivery.TLSConfig = named.Username, named.Password, named.TLSConfig
	if err := b.openAuthority(ctx, o.postgres, o.world); err != nil {
		return err
	}
	if err := b.openStore(ctx, coordination); err != nil {
		return err
	}
	if b.delivery, err = b.cluster(ctx, "fan-out", delivery); err != nil {
		return err
	}
	if b.Fanout, err = redisfanout.New(b.delivery, &redisfanout.Config{World: b.world}); err != nil {
		return err
	}
	b.Workers = redisshare.New(b.delivery, b.world)
	b.Directory = redisdirectory.New(b.delivery, b.world)
	if err := b.openMatches(ctx); err != nil {
		return err
	}
	if err := b.openPlans(ctx); err != nil {
		return err
	}
	return b.openDynamo(ctx, o.dynamodb)
}

// openAuthority opens what mints epochs, and asks it for the world.
func (b *backends) openAuthority(ctx context.Context, address, world string) error {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return fmt.Errorf("-postgres or TILEFENCE_POSTGRES: want postgres://user:password@host/database: %w", err)
	}
	b.onClose(pool.Close)
	authority, err := pgfence.New(pool, &pgfence.Config{World: world})
	if err != nil {
		return err
	}
	b.Authority = authority
	return b.start.Await(ctx, "PostgreSQL", func(ctx context.Context) (err error) {
		if err = authority.Migrate(ctx); err == nil {
			b.world, err = authority.World(ctx)
		}
		return err
	})
}

// openStore opens what keeps the tiles.
func (b *backends) openStore(ctx context.Context, o *redis.ClusterOptions) (err error) {
	if b.coordination, err = b.cluster(ctx, "coordination", o); err != nil {
		return err
	}
	// The battle's own servers write no files, and a battle that is lost with them is no loss.
	store, err := redisfence.New(b.coordination, &redisfence.Config{World: b.world, Persistence: redisfence.Volatile})
	if err != nil {
		return err
	}
	b.Store, b.Log = store, redisstream.New(store, b.coordination)
	b.deleteOwner = func(ctx context.Context, id fence.TileID) error {
		return b.coordination.Del(ctx, b.world.Keys(id).Owner).Err()
	}
	return b.start.Await(ctx, "coordination Redis", store.Load)
}

// openMatches keeps the lobby's tickets on the fan-out cluster: chaos takes away all that the coordination cluster
// holds. The tiles' owners restore that, and no process could restore tickets. The cluster has no replicas to wait for.
func (b *backends) openMatches(ctx context.Context) error {
	matches, err := redismatch.New(b.delivery, &redismatch.Config{World: b.world, NoReplicas: true})
	if err != nil {
		return err
	}
	b.Matches = matches
	return b.start.Await(ctx, "fan-out Redis", matches.Load)
}

// openPlans keeps the pilots' requests beside the tickets, for the same reason, under a name of this battle.
func (b *backends) openPlans(ctx context.Context) error {
	plans, err := redisplan.New(b.delivery, &redisplan.Config{World: b.world, Name: "battle-" + rand.Text()[:8]})
	if err != nil {
		return err
	}
	b.Plans = plans
	return b.start.Await(ctx, "fan-out Redis", plans.Load)
}

// cluster connects to a Redis Cluster.
func (b *backends) cluster(ctx context.Context, what string, o *redis.ClusterOptions) (*redis.ClusterClient, error) {
	o.TLSConfig = cmp.Or(o.TLSConfig, b.stores)
	what = fmt.Sprintf("%s Redis Cluster at %s", what, strings.Join(o.Addrs, ","))
	var client redis.UniversalClient
	err := b.start.Await(ctx, what, func(ctx context.Context) (err error) {
		client, err = redisfence.Connect(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.onClose(func() { _ = client.Close() })
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil, fmt.Errorf("%s: it is a single server", what)
	}
	return c, nil
}

// openViews opens what relays share. It need not be there: relays use it when it is.
func (b *backends) openViews(server string, rebuilds viewcache.Hooks, logger *slog.Logger) error {
	named, err := redisfence.ParseOptions(server)
	if err != nil {
		return err
	}
	o := redisviewcache.Options(named.Addrs[0])
	o.Username, o.Password, o.TLSConfig = named.Username, named.Password, cmp.Or(named.TLSConfig, b.stores)
	client := redis.NewClient(o)
	b.onClose(func() { _ = client.Close() })
	store, err := redisviewcache.New(client, b.world, 0)
	if err != nil {
		return err
	}
	b.onClose(store.Close)
	keys := b.Keys
	if keys == nil { // no other process has them: this one shares its views with itself
		keys = [][]byte{[]byte(rand.Text())}
	}
	b.views, err = viewcache.New(store, b.Log, keys, &viewcache.Config{Hooks: rebuilds, Logger: logger})
	return err
}

// dynamoConnections is how many requests to DynamoDB a process has under way at most: the others wait.
const dynamoConnections = 64

func (b *backends) openDynamo(ctx context.Context, endpoint string) error {
	tables := cmp.Or(b.world.Name, "tilefence") // a table is of one world
	checkpointTable, ledgerTable := tables+"-checkpoints", tables+"-ledger"
	// A local DynamoDB-compatible server wants some region and credentials and checks neither.
	// By default every request that is under way has a connection of its own, and most are closed after it.
	connections := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxConnsPerHost, t.MaxIdleConnsPerHost = dynamoConnections, dynamoConnections
		if b.stores != nil {
			t.TLSClientConfig = b.stores
		}
	})
	b.throttle = &faultinject.Throttle{HTTPClient: connections}
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		HTTPClient:  b.throttle,
		Credentials: credentials.NewStaticCredentialsProvider("battle", "battle", "")})
	checkpoints, err := dynamocheckpoint.New(client, checkpointTable, nil)
	if err != nil {
		return err
	}
	err = b.start.Await(ctx, "DynamoDB", func(ctx context.Context) error {
		if err := checkpoints.EnsureTable(ctx); err != nil {
			return err
		}
		return dynamoledger.CreateTable(ctx, client, ledgerTable)
	})
	if err != nil {
		return err
	}
	ledger, err := dynamoledger.New(client, ledgerTable, nil)
	b.Durable, b.Ledger = checkpoints, ledger
	return err
}
