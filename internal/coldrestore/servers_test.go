package coldrestore_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/dynamolimits"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// embedded is coordination in memory with a durable file, and how to lose it.
func embedded(t *testing.T, class tile.Durability) (servers, func(*testing.T, fence.TileID)) {
	store, broker := memfence.New(), memfanout.New()
	file, err := sqlitecheckpoint.Open(t.Context(), filepath.Join(t.TempDir(), "durable.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, file.Close()) })
	lose := func(_ *testing.T, id fence.TileID) {
		store.Update(id, func(s *memfence.State) { *s = memfence.State{} })
	}
	return servers{authority: memfence.NewAuthority(), store: store, log: memstream.New(store), publisher: broker,
		watchers: broker, durable: file, class: class}, lose
}

// cluster is a coordination cluster of this test alone, to be broken, beside the shared fan-out cluster and the
// shared DynamoDB-compatible server, which stay.
type cluster struct {
	stack  *devstack.Stack
	client *redis.ClusterClient
	store  *redisfence.Store
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{stack: stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}})}
	c.client = redis.NewClusterClient(redisfence.Options(c.stack.CoordAddrs...))
	t.Cleanup(func() { _ = c.client.Close() })
	c.whole(t)
	var err error
	c.store, err = redisfence.New(c.client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, c.store.Load(t.Context()))
	return c
}

func (c *cluster) servers(t *testing.T, class tile.Durability) servers {
	delivery := redis.NewClusterClient(redisfanout.Options(stacktest.Fanout(t)...))
	t.Cleanup(func() { _ = delivery.Close() })
	broker, err := redisfanout.New(delivery, nil)
	require.NoError(t, err)
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(stacktest.DynamoDB(t)),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")},
		dynamolimits.Check(func(err error) { t.Error(err) }))
	table, err := dynamocheckpoint.New(client, stacktest.UniqueName(t), nil)
	require.NoError(t, err)
	require.NoError(t, table.EnsureTable(t.Context()))
	return servers{authority: memfence.NewAuthority(), store: c.store, log: redisstream.New(c.store, c.client),
		publisher: broker, watchers: broker, durable: table, class: class}
}

// loseEverything kills all nodes at once. They come back empty.
func (c *cluster) loseEverything(t *testing.T, _ fence.TileID) {
	t.Helper()
	for _, p := range c.stack.Processes() {
		assert.NoError(t, p.Signal(os.Kill))
	}
	var nodes sync.WaitGroup
	for _, p := range c.stack.Processes() {
		nodes.Go(func() { assert.NoError(t, p.Restart(t.Context())) })
	}
	nodes.Wait()
	c.whole(t)
}

// whole waits until every node says that all slots are served and all six nodes are there, and each shard's replica
// follows its master.
func (c *cluster) whole(t *testing.T) {
	t.Helper()
	waittest.Until(t, func() bool {
		for _, addr := range c.stack.CoordAddrs {
			if !healthy(t.Context(), addr) {
				return false
			}
		}
		return true
	}, soon, 50*time.Millisecond, "the cluster is whole")
	c.client.ReloadState(t.Context())
}

func healthy(ctx context.Context, addr string) bool {
	node := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: time.Second})
	defer node.Close()
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
		return false
	}
	nodes, err := node.ClusterNodes(ctx).Result()
	if err != nil || strings.Contains(nodes, "fail") {
		return false
	}
	replication, err := node.Info(ctx, "replication").Result()
	return err == nil && (strings.Contains(replication, "state=online") ||
		strings.Contains(replication, "master_link_status:up"))
}

// serving finds the master and the replica of a tile's shard.
func (c *cluster) serving(t *testing.T, id fence.TileID) (master, replica *devstack.Process) {
	t.Helper()
	c.client.ReloadState(t.Context())
	key := fence.KeysOf(id).Owner
	node, err := c.client.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	shards, err := c.client.ClusterShards(t.Context()).Result()
	require.NoError(t, err)
	for _, shard := range shards {
		var addrs []string
		for _, n := range shard.Nodes {
			addrs = append(addrs, net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10)))
		}
		if slices.Contains(addrs, node.Options().Addr) {
			for _, addr := range addrs {
				if p := c.process(t, addr); addr == node.Options().Addr {
					master = p
				} else {
					replica = p
				}
			}
		}
	}
	require.NotNil(t, master)
	require.NotNil(t, replica)
	return master, replica
}

func (c *cluster) process(t *testing.T, addr string) *devstack.Process {
	t.Helper()
	for _, p := range c.stack.Processes() {
		if p.Addr() == addr {
			return p
		}
	}
	require.Fail(t, "no process", addr)
	return nil
}

// has reports whether a replica has a tile up to a position.
func (c *cluster) has(t *testing.T, replica *devstack.Process, id fence.TileID, at fence.Position) bool {
	node := redis.NewClient(&redis.Options{Addr: replica.Addr(), MaxRetries: -1})
	defer node.Close()
	conn := node.Conn()
	defer conn.Close()
	if conn.Do(t.Context(), "readonly").Err() != nil {
		return false
	}
	text, _ := conn.HGet(t.Context(), fence.KeysOf(id).Owner, "head").Result()
	head, err := fence.ParsePosition(text)
	return err == nil && head.Seq >= at.Seq
}

// cutReplicas ends a master's connections to its replicas.
func (c *cluster) cutReplicas(t *testing.T, master *devstack.Process) {
	node := redis.NewClient(&redis.Options{Addr: master.Addr(), MaxRetries: -1})
	defer node.Close()
	require.NoError(t, node.Do(t.Context(), "client", "kill", "type", "replica").Err())
}

// promoted waits until a replica is its tile's master.
func (c *cluster) promoted(t *testing.T, id fence.TileID, replica *devstack.Process) {
	t.Helper()
	waittest.Until(t, func() bool {
		c.client.ReloadState(t.Context())
		node, err := c.client.MasterForKey(t.Context(), fence.KeysOf(id).Owner)
		return err == nil && node.Options().Addr == replica.Addr()
	}, soon, 50*time.Millisecond, "the replica is promoted")
}
