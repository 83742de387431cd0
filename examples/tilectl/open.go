package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/checkpoint"
	checkpointdynamo "github.com/tilefence/tilefence/checkpoint/dynamo"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// needs are the back ends a command works on.
type needs int

const (
	needCoordination needs = 1 << iota
	needAuthority
	needCheckpoints
)

// log is what tilectl reads of the coordination store.
type log interface {
	stream.Log
	stream.Inspector
}

// tool is an opened tilectl.
type tool struct {
	options     *options
	out, errs   io.Writer
	authority   fence.Authority
	store       fence.Store
	log         log
	checkpoints checkpoint.Store
	closers     []func()
}

func (t *tool) close() {
	for _, f := range t.closers {
		f()
	}
}

// open connects to what a command needs. It never changes a back end: no function is loaded, no table made.
func (t *tool) open(ctx context.Context, n needs) error {
	ctx, cancel := context.WithTimeout(ctx, t.options.timeout)
	defer cancel()
	if n&needCoordination != 0 {
		if err := t.openCoordination(ctx); err != nil {
			return err
		}
	}
	if n&needAuthority != 0 {
		if err := t.openAuthority(ctx); err != nil {
			return err
		}
	}
	if n&needCheckpoints != 0 {
		return t.openCheckpoints()
	}
	return nil
}

func (t *tool) openCoordination(ctx context.Context) error {
	if t.options.redis == "" {
		return &usageError{"-redis is missing: the coordination cluster"}
	}
	client := redis.NewClusterClient(redisfence.Options(strings.Split(t.options.redis, ",")...))
	t.closers = append(t.closers, func() { _ = client.Close() })
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("coordination Redis Cluster at %s: %w", t.options.redis, err)
	}
	store, err := redisfence.New(client, nil)
	if err != nil {
		return err
	}
	t.store, t.log = store, redisstream.New(store, client)
	return nil
}

func (t *tool) openAuthority(ctx context.Context) error {
	if t.options.postgres == "" {
		return &usageError{"-postgres is missing: the epoch authority"}
	}
	pool, err := pgxpool.New(ctx, t.options.postgres)
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	t.closers = append(t.closers, pool.Close)
	t.authority, err = pgfence.New(pool, &pgfence.Config{Table: t.options.table})
	return err
}

func (t *tool) openCheckpoints() error {
	if t.options.dynamodb == "" {
		return &usageError{"-dynamodb is missing: the checkpoint store"}
	}
	// A local DynamoDB-compatible server wants some region and credentials and checks neither.
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(t.options.dynamodb),
		Credentials: credentials.NewStaticCredentialsProvider("tilectl", "tilectl", "")})
	var err error
	t.checkpoints, err = checkpointdynamo.New(client, t.options.checkpoints, nil)
	return err
}
