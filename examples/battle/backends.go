package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/stream/share/redisshare"
)

// broker is the delivery plane: frames from the bridge to the relays, hints from the owners to the bridge.
type broker interface {
	fanout.Publisher
	fanout.Subscriber
	fanout.HintPublisher
	fanout.HintSubscriber
}

// durable is the durable store of tiles: checkpoints, and the journals of those that write through.
type durable interface {
	checkpoint.Store
	checkpoint.Journal
}

// backends is what a battle stands on: one implementation of every seam.
type backends struct {
	authority   fence.Authority
	store       fence.Store
	log         stream.Log
	broker      broker
	members     share.Members
	checkpoints durable
	ledger      admission.Store
	closers     []func()

	// What chaos breaks.
	line                   *line                                            // every process's way to the coordination store
	deleteOwner            func(ctx context.Context, id fence.TileID) error // deletes a tile's owner hash
	loseTile               func(id fence.TileID)                            // loses all that the coordination store has of a tile; nil with servers
	stack                  *devstack.Stack                                  // the servers this process started; nil otherwise
	coordination, delivery *redis.ClusterClient                             // nil without servers
}

// close gives everything back, in the reverse order of opening.
func (b *backends) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

func (b *backends) onClose(f func()) { b.closers = append(b.closers, f) }

// openBackends opens what the options ask for. dir is for files of the embedded stores.
func openBackends(ctx context.Context, o *options, dir string, progress io.Writer) (*backends, error) {
	b := &backends{}
	var err error
	switch {
	case o.redis != "":
		err = b.openServers(ctx, servers{redis: strings.Split(o.redis, ","), fanout: strings.Split(o.fanout, ","),
			postgres: o.postgres, dynamodb: o.dynamodb})
	case o.stack == "local":
		fmt.Fprintln(progress, "starting Redis clusters, PostgreSQL and a DynamoDB-compatible server…")
		b.stack, err = devstack.Start(ctx, devstack.Config{Log: progress})
		if err == nil {
			b.onClose(b.stack.Stop)
			err = b.openServers(ctx, servers{redis: b.stack.CoordAddrs, fanout: b.stack.FanoutAddrs,
				postgres: b.stack.PostgresURL, dynamodb: b.stack.DynamoURL})
		}
	default:
		err = b.openEmbedded(ctx, dir)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	if o.chaos {
		b.line = newLine()
		b.store, b.log = &storeLine{b.line, b.store}, &logLine{b.line, b.log}
	}
	return b, nil
}

func (b *backends) openEmbedded(ctx context.Context, dir string) error {
	store := memfence.New()
	broker := memfanout.New()
	b.authority, b.store, b.log = memfence.NewAuthority(), store, memstream.New(store)
	b.broker, b.members = broker, share.NewMemory()
	b.deleteOwner = func(_ context.Context, id fence.TileID) error {
		store.Update(id, func(s *memfence.State) { s.Owner = fence.Owner{} })
		return nil
	}
	b.loseTile = func(id fence.TileID) { store.Update(id, func(s *memfence.State) { *s = memfence.State{} }) }
	checkpoints, err := sqlitecheckpoint.Open(ctx, filepath.Join(dir, "checkpoints.db"), nil)
	if err != nil {
		return err
	}
	b.onClose(func() { _ = checkpoints.Close() })
	b.checkpoints = checkpoints
	ledger, err := sqliteledger.Open(ctx, filepath.Join(dir, "ledger.db"), nil)
	if err != nil {
		return err
	}
	b.onClose(func() { _ = ledger.Close() })
	b.ledger = ledger
	return nil
}

// servers are the addresses of real ones.
type servers struct {
	redis, fanout      []string
	postgres, dynamodb string
}

const (
	checkpointTable = "tilefence-checkpoints"
	ledgerTable     = "tilefence-ledger"
)

func (b *backends) openServers(ctx context.Context, s servers) error {
	coordination, err := b.cluster(ctx, "coordination", redisfence.Options(s.redis...))
	if err != nil {
		return err
	}
	// The battle's own servers write no files, and nobody minds if a battle is lost with them.
	store, err := redisfence.New(coordination, &redisfence.Config{AllowNoPersistence: true})
	if err != nil {
		return err
	}
	if err := store.Load(ctx); err != nil {
		return err
	}
	b.store, b.log, b.coordination = store, redisstream.New(store, coordination), coordination
	b.deleteOwner = func(ctx context.Context, id fence.TileID) error {
		return coordination.Del(ctx, fence.KeysOf(id).Owner).Err()
	}

	delivery, err := b.cluster(ctx, "fan-out", redisfanout.Options(s.fanout...))
	if err != nil {
		return err
	}
	broker, err := redisfanout.New(delivery, nil)
	if err != nil {
		return err
	}
	b.broker, b.delivery, b.members = broker, delivery, redisshare.New(delivery)

	pool, err := pgxpool.New(ctx, s.postgres)
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	b.onClose(pool.Close)
	authority, err := pgfence.New(pool, nil)
	if err != nil {
		return err
	}
	if err := authority.Migrate(ctx); err != nil {
		return err
	}
	b.authority = authority
	return b.openDynamo(ctx, s.dynamodb)
}

// cluster connects to a Redis Cluster.
func (b *backends) cluster(ctx context.Context, what string, options *redis.ClusterOptions) (*redis.ClusterClient, error) {
	c := redis.NewClusterClient(options)
	b.onClose(func() { _ = c.Close() })
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("%s Redis Cluster at %s: %w", what, strings.Join(options.Addrs, ","), err)
	}
	return c, nil
}

func (b *backends) openDynamo(ctx context.Context, endpoint string) error {
	// A local DynamoDB-compatible server wants some region and credentials and checks neither.
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("battle", "battle", "")})
	checkpoints, err := dynamocheckpoint.New(client, checkpointTable, nil)
	if err != nil {
		return err
	}
	if err := checkpoints.EnsureTable(ctx); err != nil {
		return err
	}
	if err := dynamoledger.CreateTable(ctx, client, ledgerTable); err != nil {
		return err
	}
	ledger, err := dynamoledger.New(client, ledgerTable, nil)
	if err != nil {
		return err
	}
	b.checkpoints, b.ledger = checkpoints, ledger
	return nil
}
