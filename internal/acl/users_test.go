package acl_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// cluster is a Redis Cluster on which the users of one ACL file exist, under names of this test.
type cluster struct {
	addrs  []string
	admin  *redis.ClusterClient
	suffix string
}

// withUsers creates the users of an ACL file on every node, replicas included, and removes them after.
func withUsers(t *testing.T, file string, addrs []string) *cluster {
	t.Helper()
	return withUsersOf(t, "", file, addrs)
}

// withUsersOf is withUsers for a world, with the patterns as deploy/acl/README.md makes them.
func withUsersOf(t *testing.T, world, file string, addrs []string) *cluster {
	t.Helper()
	c := &cluster{addrs: addrs, suffix: "-" + stacktest.UniqueName(t),
		admin: redis.NewClusterClient(redisfence.Options(addrs...))}
	t.Cleanup(func() { _ = c.admin.Close() })
	text, err := os.ReadFile("../../deploy/acl/" + file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if world != "" {
			line = strings.NewReplacer("~{", "~"+world+":{", "&{", "&"+world+":{").Replace(line)
		}
		words := strings.Fields(line)
		require.Equal(t, "user", words[0], "an ACL file has nothing but users")
		words[1] += c.suffix
		c.onEveryNode(t, append([]any{"acl", "setuser"}, anys(words[1:])...)...)
		t.Cleanup(func() { c.onEveryNode(t, "acl", "deluser", words[1]) })
	}
	return c
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = w
	}
	return list
}

// onEveryNode runs a command on each node of which the test has the address. ForEachShard would leave out a replica
// that the node it asks does not list, while the replica is new or seems to have failed.
func (c *cluster) onEveryNode(t *testing.T, command ...any) {
	t.Helper()
	for _, addr := range c.addrs {
		node := redis.NewClient(&redis.Options{Addr: addr})
		err := node.Do(context.WithoutCancel(t.Context()), command...).Err()
		require.NoError(t, errors.Join(err, node.Close()), addr)
	}
}

// as connects as one of the users.
func (c *cluster) as(t *testing.T, actor string) *redis.ClusterClient {
	t.Helper()
	o := redisfanout.Options(c.addrs...)
	o.Username, o.Password = "tilefence-"+actor+c.suffix, "CHANGE-ME-"+actor
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
