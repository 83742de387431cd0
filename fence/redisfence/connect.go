package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/redislib"
)

// topologyReload is how often Options makes a cluster's client look for a changed topology.
const topologyReload = 500 * time.Millisecond

// Options are the client settings a fence depends on, for a cluster at the given addresses: a slot that
// failed over is found again within half a second instead of a minute, and a call ends when its
// context does, so that a node that hangs holds up one tick and not three seconds of them. The client asks
// any node for the new topology, also one that hangs, without a context: a read timeout of a second bounds
// that (with the client's default of three, a paused master was found to be replaced four seconds late).
// Change the rest as you like before giving them to redis.NewClusterClient.
func Options(addresses ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addresses, ClusterStateReloadInterval: topologyReload,
		ContextTimeoutEnabled: true,
		ReadTimeout:           time.Second}
}

// Connect asks the servers of o.Addrs, one after another, and returns the client for them: a *redis.ClusterClient if
// the first that answers is a node of a cluster, or a *redis.Client if it is a single server. Make o with Options or
// ParseOptions. The caller closes the client.
//
// A single server has no replica that could be promoted: a store on it needs Config.AllowNoReplicas, and what the
// server loses is lost up to the tile's checkpoint. That is for development, and for games that one server carries.
//
// Errors: a *fence.ArgumentError for an empty list, an address that is not host:port, or several addresses of which the
// first that answers is no node of a cluster. Otherwise the error names every server and why it did not answer: a
// *fence.StoreError if one of them may answer later, so that the caller may try again.
func Connect(ctx context.Context, o *redis.ClusterOptions) (redis.UniversalClient, error) {
	if err := CheckAddresses(o.Addrs); err != nil {
		return nil, err
	}
	var failed []error
	later := false
	for _, addr := range o.Addrs {
		client := redis.NewClient(single(o, addr))
		info, err := client.Info(ctx, "cluster").Result()
		switch {
		case err != nil:
			_ = client.Close()
			later = later || redislib.Unavailable(err)
			if redis.IsAuthError(err) {
				err = fmt.Errorf("%w (set Username and Password of the options to those of a user of the server)", err)
			}
			failed = append(failed, fmt.Errorf("redis at %s: %w", addr, err))
			continue
		case redislib.InfoField(info, "cluster_enabled") == "1":
			_ = client.Close()
			return redis.NewClusterClient(o), nil
		case len(o.Addrs) > 1:
			_ = client.Close()
			return nil, &fence.ArgumentError{Field: "Addrs", Value: strings.Join(o.Addrs, ","),
				Want: "one address, since " + addr + " is a single server, or nodes of one cluster"}
		}
		return client, nil
	}
	if later {
		return nil, &fence.StoreError{Op: "connect", Outcome: fence.ErrNotApplied, Err: errors.Join(failed...)}
	}
	return nil, errors.Join(failed...)
}

// CheckAddresses reports whether a list of servers can be used: nil, or a *fence.ArgumentError that names the first
// that is not host:port.
func CheckAddresses(addresses []string) error {
	if len(addresses) == 0 {
		return &fence.ArgumentError{Field: "Addrs", Value: "none", Want: "the address of a Redis server, host:port"}
	}
	for _, a := range addresses {
		if route.ValidateAddress(a) != nil {
			return &fence.ArgumentError{Field: "Addrs", Value: a,
				Want: "host:port of a Redis server; several are separated by commas"}
		}
	}
	return nil
}

// single is o for one of its servers.
func single(o *redis.ClusterOptions, addr string) *redis.Options {
	return &redis.Options{Addr: addr, ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
		Protocol: o.Protocol, Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, MaxRetries: o.MaxRetries,
		MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		TLSConfig: o.TLSConfig}
}
