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
	"github.com/tilefence/tilefence/internal/redislib"
)

// wanted is how many replicas must confirm, of so many that the node has.
func (s *store) wanted(replicas, have int) int {
	switch {
	case s.cfg.Persistence == DurableLog:
		return 0
	case replicas == fence.AllReplicas:
		return max(have, s.cfg.MinReplicas)
	}
	return replicas
}

// mostWanted is how many replicas the most demanding request of a set wants.
func (s *store) mostWanted(set []*request, have int) (most int) {
	for _, r := range set {
		most = max(most, s.wanted(r.replicas, have))
	}
	return most
}

// replicaQuestion is the commands whose answers countReplicas reads.
func (s *store) replicaQuestion(ctx context.Context) []*redis.StringCmd {
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

// countReplicas returns how many replicas the node that answered replicaQuestion has: those connected to it or those
// the cluster lists, whichever are more. A replica that lost its connection is still listed, and a new one is
// connected before the cluster's gossip lists it.
func (s *store) countReplicas(question []*redis.StringCmd) (int, error) {
	info, err := question[0].Result()
	if err != nil {
		return 0, err
	}
	connected, err := strconv.Atoi(redislib.InfoField(info, "connected_slaves"))
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
	promoted := strings.Trim(redislib.InfoField(info, "master_replid2"), "0") != ""
	listed, err := replicasListed(nodes, promoted, s.cfg.IgnoreFailedReplicas)
	if s.cfg.IgnoreFailedReplicas {
		return listed, err // one that has just been declared failed may still be connected
	}
	return max(connected, listed), err
}

func (s *store) isCluster() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

// replicasListed counts the replicas of the node that gave this answer to CLUSTER NODES, a line each:
//
//	<id> <address> <flags> <master id or -> <ping> <pong> <epoch> <link> <slots…>
//
// Replicas of a failed master count against the promoted one. The cluster lists a replica under its old master until
// the replica itself reports the new one, which it does not while it is down or cut off. When it is back it follows
// this node, and could then be promoted with all that the old master had and nothing that came later.
func replicasListed(nodes string, promoted, ignoreFailed bool) (int, error) {
	var self string
	followed := map[string]int{} // replicas by the master they are listed under
	alive := map[string]bool{}   // masters that have not failed
	for line := range strings.Lines(nodes) {
		id, flags, master, ok := nodeLine(line)
		if !ok {
			continue
		}
		failed := hasFlag(flags, "fail")
		if hasFlag(flags, "myself") {
			if !hasFlag(flags, "master") {
				return 0, errors.New("the node is not a master any more")
			}
			self = id
		}
		switch {
		case hasFlag(flags, "slave"):
			if !ignoreFailed || !failed {
				followed[master]++
			}
		case hasFlag(flags, "master") && !failed:
			alive[id] = true
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

// nodeLine reads the fields of a line that count here, without allocating: each set of confirmed commits asks.
func nodeLine(line string) (id, flags, master string, ok bool) {
	fields := 0
	for f := range strings.FieldsSeq(line) {
		switch fields++; fields {
		case 1:
			id = f
		case 3:
			flags = f
		case 4:
			return id, flags, f, true
		}
	}
	return "", "", "", false
}

func hasFlag(flags, name string) bool {
	return slices.Contains(strings.Split(flags, ","), name)
}
