package devstack

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const totalSlots = 16384

// clusterShape describes a Redis Cluster. Replica i (counted from 0) follows master i modulo masters.
type clusterShape struct {
	name              string
	masters, replicas int
	args              []string // of every node, besides those that all clusters have
}

// coordShape is that of the coordination cluster.
func (c *Config) coordShape() clusterShape {
	shape := clusterShape{name: "coord", masters: 3, replicas: 3 * c.Replicas}
	if c.AppendOnly {
		shape.args = []string{"--appendonly", "yes"}
	}
	return shape
}

func (c clusterShape) nodes() int { return c.masters + c.replicas }

// slots returns the first and last slot of a master.
func (c clusterShape) slots(master int) (first, last int) {
	return totalSlots * master / c.masters, totalSlots*(master+1)/c.masters - 1
}

// startCluster starts the nodes, joins them, and returns their addresses once the cluster is complete:
// every node sees every slot served and the same members, and every replica holds its master's data.
func (s *Stack) startCluster(ctx context.Context, path string, shape clusterShape) ([]string, error) {
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		processes := make([]*Process, shape.nodes())
		for i := range processes {
			var err error
			if processes[i], err = s.clusterNode(path, fmt.Sprintf("%s-%d", shape.name, i+1), shape.args); err != nil {
				return nil, err
			}
		}
		return processes, nil
	})
	if err != nil {
		return nil, err
	}
	cluster := s.newCluster(shape, processes)
	defer cluster.Close()
	if err := cluster.form(ctx); err != nil {
		return nil, fmt.Errorf("form the cluster: %w", err)
	}
	var addrs []string
	for _, p := range processes {
		addrs = append(addrs, p.addr)
	}
	return addrs, nil
}

// startSingle starts a Redis that is in no cluster, and returns its address.
func (s *Stack) startSingle(ctx context.Context, path, name string) (string, error) {
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		host := s.host()
		port, err := s.ports.pick(host)
		if err != nil {
			return nil, err
		}
		p, err := s.redisServer(path, name, host, port, nil)
		return []*Process{p}, err
	})
	if err != nil {
		return "", err
	}
	return processes[0].addr, nil
}

func (s *Stack) clusterNode(path, name string, more []string) (*Process, error) {
	host := s.host()
	port, err := s.ports.pick(host, busOffset)
	if err != nil {
		return nil, err
	}
	return s.redisServer(path, name, host, port, append([]string{
		// Where a connection fails at once, Redis tries again without the source address; the others would
		// take what they then see for the node's new address.
		"--cluster-announce-ip", host,
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port + busOffset),
		"--cluster-node-timeout", strconv.FormatInt(s.cfg.NodeTimeout.Milliseconds(), 10),
	}, more...))
}

func (s *Stack) redisServer(path, name, host string, port int, more []string) (*Process, error) {
	dir, err := s.dir.sub(name, nil)
	if err != nil {
		return nil, err
	}
	addr := hostPort(host, port)
	return &Process{
		name: name, addr: addr, stack: s,
		program: program{
			path: path,
			args: append([]string{
				"--bind", host, "--bind-source-addr", host,
				// It would refuse every loopback address but 127.0.0.1; nothing else can reach the node anyway.
				"--protected-mode", "no", "--dir", dir,
				"--appendonly", "no", "--save", "", "--maxmemory-policy", "noeviction",
				// A replica is filled at once instead of after five seconds of waiting for others.
				"--repl-diskless-sync-delay", "0",
				// Nothing is kept, so an ending master need not wait for its replicas.
				"--shutdown-timeout", "0",
			}, append(s.redisPort(port), more...)...),
			dir:      dir,
			stop:     syscall.SIGTERM,
			orphaned: syscall.SIGKILL,
		},
		ready: func(ctx context.Context, pid int) error { return s.pingRedis(ctx, addr, pid) },
	}, nil
}

// redisPort are the arguments that say where a server listens, and how.
func (s *Stack) redisPort(port int) []string {
	if s.cfg.Certificates == nil {
		return []string{"--port", strconv.Itoa(port)}
	}
	return []string{"--port", "0", "--tls-port", strconv.Itoa(port), "--tls-replication", "yes", "--tls-cluster", "yes",
		"--tls-cert-file", s.files.Certificate, "--tls-key-file", s.files.Key, "--tls-ca-cert-file", s.files.Authority,
		"--tls-auth-clients", "yes", "--tls-protocols", "TLSv1.3"}
}

func (s *Stack) nodeClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second, MaxRetries: -1, PoolSize: 2,
		ContextTimeoutEnabled: true, TLSConfig: s.clientTLS()})
}

// pingRedis returns nil if the server at addr is the process pid. Joining a stranger's node to a cluster
// would damage both.
func (s *Stack) pingRedis(ctx context.Context, addr string, pid int) error {
	// The client would repeat a refused connection, and print that it was refused.
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	_ = conn.Close()

	client := s.nodeClient(addr)
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server", "persistence").Result()
	if err != nil {
		return err
	}
	if got := infoField(info, "process_id"); got != strconv.Itoa(pid) {
		return fmt.Errorf("%s is served by process %s, not %d", addr, got, pid)
	}
	if infoField(info, "loading") != "0" {
		return fmt.Errorf("%s is loading", addr)
	}
	return nil
}

// infoField returns the value of a "name:value" line, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
