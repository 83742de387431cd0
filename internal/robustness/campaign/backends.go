//go:build unix

package campaign

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/dynamolimits"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/stream/share/redisshare"
	"github.com/tilefence/tilefence/tile"
)

// servers are where a run's servers are, and what of them is the run's own.
type servers struct {
	Coordination, Fanout []string
	Postgres, Dynamo     string   // URLs
	Name                 string   // of the run: of its tables, and of its gossip
	Seeds                []string // where the workers gossip
	Alone                bool     // installs need no replica where a master lists none
	AppendOnly           bool     // the coordination store has append-only files, and Load requires them
}

func (s *servers) checkpoints() string { return s.Name + "-checkpoints" }
func (s *servers) ledger() string      { return s.Name + "-ledger" }

// process is one process's part of the system: back ends that are reached from a host of its own.
type process struct {
	tilefence.Backends
	coordination            *redis.ClusterClient
	table                   *pgxpool.Pool // of the authority
	dynamo                  *dynamodb.Client
	checkpoints             *dynamocheckpoint.Store
	toRedis, toRows, toBase accidents // to the coordination store, the authority and the durable store
	toFanout                accidents
	throttle                faultinject.Throttle // of the durable store
	closers                 []func()
}

func (p *process) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

func (p *process) seams() tile.Seams {
	return tile.Seams{Authority: p.Authority, Store: p.Store, Log: p.Log}
}

// connect opens the back ends, with host as the source of every connection. gossips is where the process gossips; empty
// if it does not.
func (s *servers) connect(ctx context.Context, host, gossips string) (p *process, err error) {
	p = &process{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.Tiles = func(fence.TileID) error { return nil } // a run's are random numbers
	if gossips != "" {
		p.Members = gossip.Config{Bind: gossips, Seeds: s.Seeds, Label: s.Name, Timing: gossip.Fast()}
	}
	options := redisfence.Options(s.Coordination...)
	options.Dialer = p.toRedis.dialer(host)
	p.coordination = redis.NewClusterClient(options)
	p.closers = append(p.closers, func() { _ = p.coordination.Close() })
	cfg := &redisfence.Config{AllowNoReplicas: s.Alone}
	if !s.AppendOnly {
		cfg.Persistence = redisfence.Volatile
	}
	store, err := redisfence.New(p.coordination, cfg)
	if err != nil {
		return p, err
	}
	p.Store, p.Log = store, redisstream.New(store, p.coordination)
	if err := s.connectFanout(p, host); err != nil {
		return p, err
	}
	if err := s.connectAuthority(ctx, p, host); err != nil {
		return p, err
	}
	return p, s.connectDynamo(p, host)
}

func (s *servers) connectFanout(p *process, host string) (err error) {
	options := redisfanout.Options(s.Fanout...)
	options.Dialer = p.toFanout.dialer(host)
	client := redis.NewClusterClient(options)
	p.closers = append(p.closers, func() { _ = client.Close() })
	p.Workers = redisshare.New(client, fence.World{})
	p.Fanout, err = redisfanout.New(client, &redisfanout.Config{Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (s *servers) connectAuthority(ctx context.Context, p *process, host string) error {
	options, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return err
	}
	options.MaxConns = 4
	options.ConnConfig.DialFunc = p.toRows.dialer(host)
	if p.table, err = pgxpool.NewWithConfig(ctx, options); err != nil {
		return err
	}
	p.closers = append(p.closers, p.table.Close)
	p.Authority, err = pgfence.New(p.table, nil)
	return err
}

func (s *servers) connectDynamo(p *process, host string) (err error) {
	transport := &http.Transport{DialContext: p.toBase.dialer(host), MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 10 * time.Second}
	p.closers = append(p.closers, transport.CloseIdleConnections)
	p.throttle.HTTPClient = &http.Client{Transport: transport}
	p.dynamo = dynamodb.New(dynamodb.Options{Region: "local", BaseEndpoint: aws.String(s.Dynamo),
		HTTPClient:  &p.throttle,
		Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")},
		dynamolimits.Check(func(err error) { panic(err) })) // a fault of the program, which must not pass for an outage
	if p.checkpoints, err = dynamocheckpoint.New(p.dynamo, s.checkpoints(), nil); err != nil {
		return err
	}
	p.Durable = p.checkpoints
	p.Ledger, err = dynamoledger.New(p.dynamo, s.ledger(), nil)
	return err
}

// createTables makes the run's tables.
func (s *servers) createTables(ctx context.Context, p *process) error {
	if err := p.checkpoints.EnsureTable(ctx); err != nil {
		return fmt.Errorf("table %s: %w", s.checkpoints(), err)
	}
	if err := dynamoledger.CreateTable(ctx, p.dynamo, s.ledger()); err != nil {
		return fmt.Errorf("table %s: %w", s.ledger(), err)
	}
	return nil
}
