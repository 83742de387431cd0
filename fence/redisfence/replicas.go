package redisfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// wanted is how many replicas must confirm, of so many that the node has.
func (s *Store) wanted(replicas, have int) int {
	if replicas == fence.AllReplicas {
		return max(have, s.cfg.MinReplicas)
	}
	return replicas
}

// mostWanted is how many replicas the most demanding request of a set wants.
func (s *Store) mostWanted(set []*request, have int) (most int) {
	for _, r := range set {
		most = max(most, s.wanted(r.replicas, have))
	}
	return most
}

// replicaQuestion is the commands whose answers countReplicas reads.
func (s *Store) replicaQuestion(ctx context.Context) []*redis.StringCmd {
	question := []*redis.StringCmd{redis.NewStringCmd(ctx, "info", "replication")}
	if s.isCluster() {
		// Not CLUSTER SLOTS: it leaves out a replica until a write has reached it and gossip has said so.
		question = append(question, redis.NewStringCmd(ctx, "cluster", "nodes"))
	}
	return question
}

// askReplicas asks a node how many replicas it has.
func (n *node) askReplicas(ctx context.Context) (int, error) {
	question := n.store.replicaQuestion(ctx)
	pipe := n.client.Pipeline()
	for _, q := range question {
		_ = pipe.Process(ctx, q)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	return n.store.countReplicas(question)
}

// countReplicas reads how many replicas the node has that answered replicaQuestion: those connected to it, or
// those the cluster lists, whichever are more. A replica that has lost its connection is listed, and one that
// a new master has just got is connected before the cluster's gossip has told that master.
func (s *Store) countReplicas(question []*redis.StringCmd) (int, error) {
	info, err := question[0].Result()
	if err != nil {
		return 0, err
	}
	connected, err := strconv.Atoi(infoField(info, "connected_slaves"))
	if err != nil {
		return 0, fmt.Errorf("INFO replication gives no connected_slaves: %w", err)
	}
	if len(question) == 1 {
		return connected, nil
	}
	nodes, err := question[1].Result()
	if err != nil {
		return 0, err
	}
	promoted := strings.Trim(infoField(info, "master_replid2"), "0") != ""
	listed, err := replicasListed(nodes, promoted, s.cfg.IgnoreFailedReplicas)
	if s.cfg.IgnoreFailedReplicas {
		return listed, err // one that has just been declared failed may still be connected
	}
	return max(connected, listed), err
}

func (s *Store) isCluster() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

// replicasListed counts the replicas of the node that gave this answer to CLUSTER NODES, a line each:
//
//	<id> <address> <flags> <master id or -> <ping> <pong> <epoch> <link> <slots…>
//
// Of a node that was promoted, the replicas that its former master has left behind count too: until such a
// replica has said itself whom it follows now, which one that is down or cut off does not, the cluster lists it
// under the old master. It would follow this node when it is back, and could then be promoted in its turn,
// with all that the old master had and nothing that came later.
func replicasListed(nodes string, promoted, ignoreFailed bool) (int, error) {
	var self string
	followed := map[string]int{} // replicas by the master they are listed under
	alive := map[string]bool{}   // masters that have not failed
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		flags := strings.Split(f[2], ",")
		failed := slices.Contains(flags, "fail")
		if slices.Contains(flags, "myself") {
			if !slices.Contains(flags, "master") {
				return 0, errors.New("the node is not a master any more")
			}
			self = f[0]
		}
		switch {
		case slices.Contains(flags, "slave"):
			if !ignoreFailed || !failed {
				followed[f[3]]++
			}
		case slices.Contains(flags, "master") && !failed:
			alive[f[0]] = true
		}
	}
	if self == "" {
		return 0, errors.New("CLUSTER NODES does not list the node that was asked")
	}
	n := followed[self]
	for master, replicas := range followed {
		if promoted && master != self && !alive[master] {
			n += replicas
		}
	}
	return n, nil
}
