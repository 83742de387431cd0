package redisfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// replicasOf asks a master how many replicas it has: those that follow it according to the cluster and
// have not been declared failed, connected or not; outside a cluster those that are connected.
func (s *Store) replicasOf(ctx context.Context, node *redis.Client) (int, error) {
	if _, ok := s.client.(*redis.ClusterClient); ok {
		// Not CLUSTER SLOTS: it leaves out a replica until a write has reached it and gossip has said so.
		nodes, err := node.ClusterNodes(ctx).Result()
		if err != nil {
			return 0, err
		}
		n, err := countReplicas(nodes)
		return max(n, s.cfg.MinReplicas), err
	}
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(infoField(info, "connected_slaves"))
	if err != nil {
		return 0, fmt.Errorf("INFO replication gives no connected_slaves: %w", err)
	}
	return max(n, s.cfg.MinReplicas), nil
}

// countReplicas reads the answer to CLUSTER NODES, a line each:
//
//	<id> <address> <flags> <master id or -> …
func countReplicas(nodes string) (int, error) {
	var self string
	masters := map[string]int{} // replicas of each master
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		flags := strings.Split(f[2], ",")
		if slices.Contains(flags, "myself") {
			if !slices.Contains(flags, "master") {
				return 0, errors.New("the node is not a master any more")
			}
			self = f[0]
		}
		if slices.Contains(flags, "slave") && !slices.Contains(flags, "fail") {
			masters[f[3]]++
		}
	}
	if self == "" {
		return 0, errors.New("CLUSTER NODES does not list the node that was asked")
	}
	return masters[self], nil
}
