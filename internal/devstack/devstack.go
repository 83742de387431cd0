// Package devstack starts private instances of the real servers Tilefence works with, for tests and for
// the local reference deployment: a Redis Cluster for coordination, a second one for fan-out, a single Redis
// for the relays' views, PostgreSQL and a DynamoDB-compatible server.
//
//	stack, err := devstack.Start(ctx, devstack.Config{})
//	if err != nil {
//		return err
//	}
//	defer stack.Stop()
//	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stack.CoordAddrs})
//
// Everything runs from installed programs, on free loopback ports, inside one temporary directory. A
// server of the same kind that already runs on the machine is neither used nor touched.
//
// # Cleaning up
//
// Nothing: [Stack.Stop] ends every process and removes the directory. If the process that called Start is
// killed without a chance to stop, the kernel ends the servers with it, and the next Start on the machine
// removes the directory that was left.
//
// # Safety
//
// The servers listen on loopback addresses only. PostgreSQL asks for a random password, which is part of
// PostgresURL; Redis and the DynamoDB-compatible server accept any local user. Keep nothing in them. With
// Config.Certificates the connections are encrypted.
//
// A Stack and its processes may be used by several goroutines. Only Linux is supported.
package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/internal/certs"
)

// The environment variables by which a started stack is made known to tests; see [Stack.Env].
//
// EnvRequire is not an address: set to 1, it turns a missing address into a test failure.
const (
	EnvRequire  = "TILEFENCE_REQUIRE_SERVERS"
	EnvEngine   = "TILEFENCE_ENGINE"   // not an address: the program to start, such as valkey-server or a path
	EnvRedis    = "TILEFENCE_REDIS"    // coordination cluster, host:port separated by commas
	EnvFanout   = "TILEFENCE_FANOUT"   // fan-out cluster, host:port separated by commas
	EnvPostgres = "TILEFENCE_POSTGRES" // a postgres:// URL of a superuser
	EnvDynamoDB = "TILEFENCE_DYNAMODB" // an http:// endpoint
	EnvViews    = "TILEFENCE_VIEWS"    // the Redis of the relays' views, host:port
)

// ErrStopped is returned when a process of a stopped stack is to be started again.
var ErrStopped = errors.New("devstack: the stack is stopped")

// Part is one of the servers of a stack.
type Part string

// The parts of a stack.
const (
	// Redis Cluster: coord-1 to coord-3 start as masters, coord-4 to coord-6 as their replicas
	Coordination Part = "coordination"
	Fanout       Part = "fanout"   // Redis Cluster: fanout-1 to fanout-3, masters without replicas
	Postgres     Part = "postgres" // one PostgreSQL server: postgres
	DynamoDB     Part = "dynamodb" // one DynamoDB-compatible server, in memory: dynamodb
	Views        Part = "views"    // one Redis that is no cluster: views
)

// AllParts returns every part.
func AllParts() []Part { return []Part{Coordination, Fanout, Postgres, DynamoDB, Views} }

// ParsePart returns the part called name.
func ParsePart(name string) (Part, error) {
	if !slices.Contains(AllParts(), Part(name)) {
		return "", fmt.Errorf("devstack: Parts: none is called %q; there are %v", name, AllParts())
	}
	return Part(name), nil
}

// Config holds the optional settings of a stack. The zero value starts every part.
type Config struct {
	// Dir is the directory in which the stack makes a directory of its own, by default the system's
	// temporary directory. The path should be short, and when running as root, every user must be able
	// to enter it: PostgreSQL refuses to run as root.
	Dir string

	// Log receives a line for each part that is ready and for each process that ends unexpectedly. Nil
	// discards them.
	Log io.Writer

	// Parts names what to start; nil means all.
	Parts []Part

	// NodeTimeout is after how long the nodes of a Redis Cluster consider a silent node failed, in
	// whole milliseconds. Zero means one second; a replica is then promoted within about three.
	NodeTimeout time.Duration

	// Replicas is how many replicas each of the three masters of the coordination cluster has. Zero means one.
	Replicas int

	// AppendOnly makes the nodes of the coordination cluster write an append-only file, as redisfence wants it unless
	// Config.Persistence says otherwise. By default no Redis writes files.
	AppendOnly bool

	// OwnAddresses gives each server a loopback address of its own (127.0.1.1, 127.0.1.2, and so on), on
	// which it listens and from which it connects, so that a routing rule can separate any two of them. The
	// DynamoDB-compatible server stays on 127.0.0.1, which all share by default.
	OwnAddresses bool

	// Host is the address on which all servers listen, of IPv4 or IPv6, such as one that other network
	// namespaces reach: then PostgreSQL admits its subnet. Empty: 127.0.0.1. Not with OwnAddresses or
	// Certificates.
	Host string

	// NoSync lets PostgreSQL commit without waiting for the disk, which makes tests faster. A server that is
	// killed still loses nothing; a machine that loses power does. Figures of durable writes mean nothing then.
	NoSync bool

	// Certificates, if set, are those of all servers, which then take encrypted connections and no others. Redis and
	// the DynamoDB-compatible server want a certificate of the authority from clients too. The latter has no TLS of
	// its own: a proxy in this process ends it, and the server itself listens on a loopback port that no field names.
	// Not with OwnAddresses, which the certificates do not name.
	Certificates *certs.Authority
}

// startTimeout bounds the whole start-up; an idle machine needs about three seconds.
const startTimeout = time.Minute

func (c Config) withDefaults() (Config, error) {
	dir, err := filepath.Abs(cmp.Or(c.Dir, os.TempDir()))
	if err != nil {
		return c, fmt.Errorf("devstack: Dir: %w", err)
	}
	c.Dir, c.NodeTimeout, c.Replicas = dir, cmp.Or(c.NodeTimeout, time.Second), cmp.Or(c.Replicas, 1)
	if c.Log == nil { // which cmp.Or cannot compare: a writer may be of any type
		c.Log = io.Discard
	}
	if c.Parts == nil {
		c.Parts = AllParts()
	}
	c.Parts = slices.Compact(slices.Sorted(slices.Values(c.Parts)))
	for _, part := range c.Parts {
		if _, err := ParsePart(string(part)); err != nil {
			return c, err
		}
	}
	if c.Certificates != nil && c.OwnAddresses {
		return c, errors.New("devstack: Certificates are not of OwnAddresses")
	}
	if c.Host != "" && (c.OwnAddresses || c.Certificates != nil) {
		return c, errors.New("devstack: Host is not with OwnAddresses or Certificates")
	}
	c.Host = cmp.Or(c.Host, defaultHost)
	if c.Replicas < 0 {
		return c, fmt.Errorf("devstack: Replicas is %d", c.Replicas)
	}
	if c.NodeTimeout < time.Millisecond {
		return c, fmt.Errorf("devstack: NodeTimeout %v is less than a millisecond", c.NodeTimeout)
	}
	return c, nil
}

// Stack is a set of running servers. The address of a part that was not started is empty.
type Stack struct {
	CoordAddrs  []string // nodes of the coordination cluster, host:port
	FanoutAddrs []string // nodes of the fan-out cluster, host:port
	PostgresURL string   // superuser, database "postgres"
	DynamoURL   string   // endpoint; any region and any credentials are accepted
	ViewsAddr   string   // the Redis of the relays' views, host:port

	cfg     Config
	dir     *ownDir
	spawner *spawner
	ports   portPicker
	files   certs.Files  // if there are Config.Certificates
	proxy   *tlsProxy    // before the DynamoDB-compatible server, or nil
	hosts   atomic.Int32 // loopback addresses given out; see host
	logMu   sync.Mutex

	mu        sync.Mutex
	processes []*Process
	stopOnce  sync.Once
}

// Start starts the configured parts, all at once, and returns when every one of them answers and both
// clusters are complete. On an error, and when ctx ends first, everything is stopped again.
//
// A program that is not installed gives a [*MissingProgramError].
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	programs, err := findPrograms(cfg.Parts)
	if err != nil {
		return nil, err
	}
	sweep(cfg.Dir)
	dir, err := makeOwnDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, dir: dir, spawner: newSpawner()}
	if err := s.writeCertificates(); err != nil {
		s.Stop()
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range cfg.Parts {
		group.Go(func() error { return s.startPart(ctx, part, programs) })
	}
	if err := group.Wait(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Stack) startPart(ctx context.Context, part Part, programs programs) error {
	began := time.Now()
	var where string
	var err error
	// The addresses are fields of their own, so the parts may set them at the same time.
	switch part {
	case Coordination:
		s.CoordAddrs, err = s.startCluster(ctx, programs.redis, s.cfg.coordShape())
		where = strings.Join(s.CoordAddrs, ",")
	case Fanout:
		// Delivery is at most once: a dead node must not make the others refuse.
		s.FanoutAddrs, err = s.startCluster(ctx, programs.redis, clusterShape{name: "fanout", masters: 3,
			args: []string{"--cluster-require-full-coverage", "no"}})
		where = strings.Join(s.FanoutAddrs, ",")
	case Postgres:
		s.PostgresURL, where, err = s.startPostgres(ctx, programs)
	case DynamoDB:
		s.DynamoURL, err = s.startDynamoDB(ctx, programs.dynoxide)
		_, where, _ = strings.Cut(s.DynamoURL, "://")
	case Views:
		s.ViewsAddr, err = s.startSingle(ctx, programs.redis, "views")
		where = s.ViewsAddr
	}
	if err != nil {
		return fmt.Errorf("devstack: start %v: %w", part, err)
	}
	s.logf("%v ready in %.1fs on %s", part, time.Since(began).Seconds(), where)
	return nil
}

// Stop ends every process, waits for it, and removes the stack's directory. A process that does not end
// within a few seconds of being asked is killed. Calling Stop again waits for the first call.
func (s *Stack) Stop() {
	s.stopOnce.Do(func() {
		s.spawner.refuse()
		s.proxy.close()
		terminateAll(s.Processes())
		s.spawner.end()
		if err := s.dir.remove(); err != nil {
			s.logf("could not remove %s: %v", s.dir.path, err)
		}
	})
}

// Env returns the addresses of the started parts as NAME=value settings for a child process. That of the
// DynamoDB-compatible server is also given in the variables by which AWS's own libraries find it.
func (s *Stack) Env() []string {
	var env []string
	add := func(name, value string) {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	add(EnvRedis, strings.Join(s.CoordAddrs, ","))
	add(EnvFanout, strings.Join(s.FanoutAddrs, ","))
	add(EnvPostgres, s.PostgresURL)
	add(EnvDynamoDB, s.DynamoURL)
	if s.DynamoURL != "" {
		env = append(env, "AWS_ENDPOINT_URL_DYNAMODB="+s.DynamoURL, "AWS_REGION=us-east-1",
			"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local")
	}
	add(EnvViews, s.ViewsAddr)
	return env
}

// Processes returns the server processes, sorted by name.
func (s *Stack) Processes() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.processes)
	slices.SortFunc(all, func(a, b *Process) int { return strings.Compare(a.name, b.name) })
	return all
}

// Process returns the process called name ("coord-1", "fanout-3", "postgres", "dynamodb", "views"; see [Part]),
// and false if the stack has none of that name.
func (s *Stack) Process(name string) (*Process, bool) {
	for _, p := range s.Processes() {
		if p.name == name {
			return p, true
		}
	}
	return nil, false
}

func (s *Stack) adopt(processes []*Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, processes...)
}

func (s *Stack) logf(format string, args ...any) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	// A log that cannot be written to must not stop the servers.
	_, _ = fmt.Fprintf(s.cfg.Log, format+"\n", args...)
}
