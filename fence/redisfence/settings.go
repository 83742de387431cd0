package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
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

// warnOfSlowReload says that a client notices a failover late. The client's own default is a minute.
func (s *Store) warnOfSlowReload() {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok || c.Options().ClusterStateReloadInterval <= topologyReload {
		return
	}
	s.cfg.Logger.Warn("redisfence: the client reloads the cluster's topology too rarely: after a failover it goes on "+
		"writing to the former master; make it with redisfence.Options, or set ClusterStateReloadInterval",
		"interval", c.Options().ClusterStateReloadInterval, "want", topologyReload)
}

// ErrSetting: a server's settings would lose what the fence relies on. A *SettingError says which.
var ErrSetting = errors.New("unsafe server setting")

// SettingError is a setting of a server with which it must not serve tiles.
type SettingError struct {
	Node    string // address of the server
	Setting string // as in redis.conf
	Value   string // what it is
	Detail  string // what it would lose, and what to do
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("redis %s: %v: %s is %s: %s", e.Node, ErrSetting, e.Setting, e.Value, e.Detail)
}

// Is matches ErrSetting.
func (e *SettingError) Is(target error) bool { return target == ErrSetting }

// checkSettings asks only INFO, which needs no right to read the configuration (ACL).
func (s *Store) checkSettings(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "memory", "persistence", "replication").Result()
	if err != nil {
		return &fence.StoreError{Op: "load", Outcome: fence.ErrNotApplied,
			Err: fmt.Errorf("redis %s: %w", node.Options().Addr, err)}
	}
	refused := func(setting, value, detail string) error {
		return &SettingError{Node: node.Options().Addr, Setting: setting, Value: value, Detail: detail}
	}
	policy := infoField(info, "maxmemory_policy")
	if limit, _ := strconv.ParseUint(infoField(info, "maxmemory"), 10, 64); limit > 0 && policy != "noeviction" {
		return refused("maxmemory-policy", policy,
			"Redis would delete owners and streams when memory runs out; set it to noeviction")
	}
	if infoField(info, "aof_enabled") != "1" && !s.cfg.AllowNoPersistence {
		return refused("appendonly", "no",
			"a master that restarts before a replica was promoted erases what its replicas have confirmed; "+
				"set appendonly yes and appendfsync everysec on every node, or redisfence.Config.AllowNoPersistence")
	}
	if infoField(info, "role") == "master" && infoField(info, "connected_slaves") == "0" && !s.cfg.AllowNoReplicas {
		s.cfg.Logger.Warn("redisfence: a master has no replica: no tile of its shard begins until it has one; for a "+
			"server that is to have none set redisfence.Config.AllowNoReplicas", "node", node.Options().Addr)
	}
	return nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
