//go:build linux

package devstack_test

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestEncryptedStack: clients with a certificate reach every server. Those that do not encrypt, and those without a
// certificate where one is wanted, reach none.
func TestEncryptedStack(t *testing.T) {
	authority, err := certs.New()
	require.NoError(t, err)
	stranger, err := certs.New()
	require.NoError(t, err)
	stack := stacktest.Start(t, devstack.Config{Certificates: authority, Dir: openDir(t)})
	ctx := t.Context()

	nodes := stack.Cluster()
	t.Cleanup(nodes.Close)
	require.NoError(t, nodes.Whole(ctx), "the nodes speak with each other")
	redisServers := append(append([]string{stack.ViewsAddr}, stack.CoordAddrs...), stack.FanoutAddrs...)
	for _, addr := range redisServers {
		for name, c := range map[string]struct {
			tls     *tls.Config
			reaches bool
		}{
			"a certificate": {authority.Mutual(), true}, "plain text": {nil, false},
			"no certificate": {authority.Client(), false}, "another's certificate": {stranger.Mutual(), false},
		} {
			client := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: c.tls, MaxRetries: -1})
			err := client.Ping(ctx).Err()
			assert.Equal(t, c.reaches, err == nil, "%s, %s: %v", addr, name, err)
			_ = client.Close()
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stack.CoordAddrs, TLSConfig: authority.Mutual()})
	t.Cleanup(func() { _ = cluster.Close() })
	require.NoError(t, cluster.Set(ctx, "key", 1, 0).Err(), "a client follows the cluster's own addresses")
	replicas, err := cluster.Wait(ctx, 1, 20*time.Second).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, replicas, "replication is encrypted")

	connect := func(query string) error {
		u, err := url.Parse(stack.PostgresURL)
		require.NoError(t, err)
		if query != "" {
			u.RawQuery = query
		}
		conn, err := pgx.Connect(ctx, u.String())
		if err == nil {
			defer func() { _ = conn.Close(ctx) }()
			err = conn.Ping(ctx)
		}
		return err
	}
	require.NoError(t, connect(""))
	require.ErrorContains(t, connect("sslmode=disable"), "pg_hba.conf")

	get := func(client *tls.Config, address string) error {
		transport := &http.Transport{TLSClientConfig: client}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		require.NoError(t, err)
		response, err := (&http.Client{Transport: transport}).Do(r)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	require.True(t, strings.HasPrefix(stack.DynamoURL, "https://"))
	require.NoError(t, get(authority.Mutual(), stack.DynamoURL))
	require.Error(t, get(authority.Client(), stack.DynamoURL))
	require.Error(t, get(stranger.Mutual(), stack.DynamoURL))
	require.Error(t, get(nil, strings.Replace(stack.DynamoURL, "https", "http", 1)))
}

func TestCertificatesAreNotOfOwnAddresses(t *testing.T) {
	authority, err := certs.New()
	require.NoError(t, err)
	_, err = devstack.Start(t.Context(), devstack.Config{Certificates: authority, OwnAddresses: true})
	require.ErrorContains(t, err, "OwnAddresses")
}
