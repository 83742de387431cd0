package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile/plan"
)

// needs are the back ends a command works on.
type needs int

const (
	needCoordination needs = 1 << iota
	needAuthority
	needCheckpoints
	needFanout
	needBroker
	needPlans
	needMatch
	needNodes
	needLedger
	needInspector
)

// log is what tilectl reads of the coordination store.
type log interface {
	stream.Log
	stream.Inspector
}

// examiner is what repair needs of the coordination store.
type examiner interface {
	Examine(ctx context.Context, id fence.TileID, epoch fence.Epoch, remove ...string) (*redisstream.Examination, error)
	Repair(context.Context, *redisstream.Examination) error
}

// listener is what fanout needs of the broker tier.
type listener interface {
	Observe(context.Context, natsfanout.Observer) error
}

// tool is an opened tilectl.
type tool struct {
	options     *options
	in          io.Reader
	out, errs   *printer
	raw         io.Writer // standard output, for what programs read: blobs and traces
	authority   fence.Authority
	store       fence.Store
	log         log
	keys        examiner
	checkpoints checkpoint.Store
	publisher   fanout.Publisher
	audience    fanout.Audience
	broker      listener
	plans       plan.Store
	match       matchStore
	nodes       redis.UniversalClient
	ledger      *admission.AdmissionLedger
	inspector   *inspect.Client
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
	if err := t.world().Validate(); err != nil {
		return &usageError{"-world: " + err.Error()}
	}
	nodes := func(ctx context.Context) (err error) {
		t.nodes, err = t.coordination(ctx)
		return err
	}
	for _, o := range []struct {
		need needs
		open func(context.Context) error
	}{
		{needCoordination, t.openCoordination}, {needNodes, nodes}, {needMatch, t.openMatch},
		{needAuthority, t.openAuthority}, {needFanout, t.openFanout}, {needPlans, t.openPlans},
		{needBroker, func(context.Context) error { return t.openBroker() }}, {needLedger, t.openLedger},
		{needCheckpoints, t.openCheckpoints}, {needInspector, t.openInspector},
	} {
		if n&o.need != 0 {
			if err := o.open(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// world is the world that the commands work on, by its name alone: tilectl records no identity.
func (t *tool) world() fence.World { return fence.World{Name: t.options.world} }

// enter refuses the table or file of a world with another name than -world.
func (t *tool) enter(ctx context.Context, store fence.WorldKeeper) error {
	if t.options.world == "" {
		return nil
	}
	_, err := store.EnterWorld(ctx, t.world())
	return err
}

// redis is a client of the Redis at addrs, a cluster or a single server.
func (t *tool) redis(ctx context.Context, what, addrs string) (redis.UniversalClient, error) {
	o, err := redisfence.ParseOptions(addrs)
	if err != nil {
		return nil, fmt.Errorf("%s Redis: %w", what, err)
	}
	if o.Username == "" && o.Password == "" {
		o.Username, o.Password = t.options.user, os.Getenv("TILEFENCE_PASSWORD")
	}
	client, err := redisfence.Connect(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s Redis: %w", what, err)
	}
	t.closers = append(t.closers, func() { _ = client.Close() })
	return client, nil
}

// coordination is a client of the coordination Redis.
func (t *tool) coordination(ctx context.Context) (redis.UniversalClient, error) {
	if t.options.redis == "" {
		return nil, &usageError{"-redis is missing: the coordination Redis"}
	}
	return t.redis(ctx, "coordination", t.options.redis)
}

func (t *tool) openMatch(ctx context.Context) error {
	client, err := t.coordination(ctx)
	if err == nil {
		t.match, err = redismatch.New(client, &redismatch.Config{World: t.world()})
	}
	return err
}

func (t *tool) openCoordination(ctx context.Context) error {
	client, err := t.coordination(ctx)
	if err != nil {
		return err
	}
	_, alone := client.(*redis.Client) // a server that is in no cluster may be meant to have no replica
	store, err := redisfence.New(client, &redisfence.Config{World: t.world(), AllowNoReplicas: alone})
	if err != nil {
		return err
	}
	l := redisstream.New(store, client)
	t.store, t.log, t.keys = store, l, l
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
	t.authority, err = pgfence.New(pool, &pgfence.Config{World: t.options.world, Table: t.options.table})
	return err
}

func (t *tool) openFanout(ctx context.Context) error {
	if t.options.fanout == "" {
		return &usageError{"-fanout is missing: the fan-out Redis"}
	}
	client, err := t.redis(ctx, "fan-out", t.options.fanout)
	if err != nil {
		return err
	}
	f, err := redisfanout.New(client, &redisfanout.Config{World: t.world()})
	t.publisher, t.audience = f, f
	return err
}

func (t *tool) openBroker() error {
	if t.options.nats == "" {
		return &usageError{"-nats is missing: the broker tier"}
	}
	broker, err := natsfanout.Open(strings.Split(t.options.nats, ","), &natsfanout.Config{World: t.world(),
		Logger: slog.New(slog.NewTextHandler(t.errs.stream(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err == nil {
		t.broker, t.closers = broker, append(t.closers, broker.Close)
	}
	return err
}

// onAWS is the -dynamodb that stands for DynamoDB itself, of the account and region that the environment, the shared
// configuration files or the machine's role say.
const onAWS = "aws"

func (t *tool) openCheckpoints(ctx context.Context) error {
	client, err := t.dynamo(ctx, "the checkpoint store")
	if err != nil {
		return err
	}
	store, err := dynamocheckpoint.New(client, t.options.checkpoints, nil)
	if err != nil {
		return err
	}
	t.checkpoints = store
	return t.enter(ctx, store)
}

// dynamo is a client of DynamoDB, for what is kept there.
func (t *tool) dynamo(ctx context.Context, what string) (*dynamodb.Client, error) {
	switch t.options.dynamodb {
	case "":
		return nil, &usageError{"-dynamodb is missing: " + what}
	case onAWS:
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("AWS: %w", err)
		}
		if cfg.Region == "" {
			return nil, &usageError{"-dynamodb aws: no region is configured; set AWS_REGION"}
		}
		return dynamodb.NewFromConfig(cfg), nil
	}
	// A local DynamoDB-compatible server wants some region and credentials and checks neither.
	return dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(t.options.dynamodb),
		Credentials: credentials.NewStaticCredentialsProvider("tilectl", "tilectl", "")}), nil
}
