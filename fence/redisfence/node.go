package redisfence

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/redislib"
)

// node is one server, with a queue for plain requests and one for those that replicas are to confirm: a slow
// replica delays only the requests that wait for it.
type node struct {
	store     *store
	client    *redis.Client
	plain     groupcommit.Queue[*request]
	confirmed groupcommit.Queue[*request]

	// replicas is how many the node had when it was last asked, or unknownReplicas. WAIT asks for as many; the
	// same pipeline asks for the current number, which decides.
	replicas atomic.Int64
}

const unknownReplicas = -1

// nodeOf returns the master of a key, as far as the client knows.
func (s *store) nodeOf(ctx context.Context, key string) (*node, error) {
	return s.nodes.Of(ctx, s.client, key, s.newNode)
}

func (s *store) newNode(client *redis.Client) *node {
	n := &node{store: s, client: client}
	n.plain.Send, n.confirmed.Send = n.send, n.sendConfirmed
	for _, l := range []*groupcommit.Queue[*request]{&n.plain, &n.confirmed} {
		l.Calls, l.Bytes = s.cfg.tuning.PipelineCalls, s.cfg.tuning.PipelineBytes
	}
	n.replicas.Store(unknownReplicas)
	return n
}

// reloadTopology makes later calls look up the slots' masters again: the client of a single node follows no
// redirection.
func (s *store) reloadTopology(ctx context.Context) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

// send sends a set in one pipeline, and once more those that found the function library missing.
func (n *node) send(ctx context.Context, set []*request) {
	n.exec(ctx, set)
	if missing := n.reload(ctx, set); len(missing) > 0 {
		n.exec(ctx, missing)
	}
}

// sendConfirmed is send for a set that wants to be confirmed by replicas.
func (n *node) sendConfirmed(ctx context.Context, set []*request) {
	n.execConfirmed(ctx, set)
	if missing := n.reload(ctx, set); len(missing) > 0 {
		n.execConfirmed(ctx, missing)
	}
}

// exec runs a set, and what is sent behind it, on one connection, once.
func (n *node) exec(ctx context.Context, set []*request, behind ...redis.Cmder) {
	if len(set) == 1 && len(behind) == 0 {
		_ = n.client.Process(ctx, set[0])
	} else {
		cmds := make([]redis.Cmder, 0, len(set)+len(behind))
		for _, r := range set {
			cmds = append(cmds, r)
		}
		pipe := n.client.Pipeline()
		_ = pipe.BatchProcess(ctx, append(cmds, behind...)...)
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	moved := false
	for _, r := range set {
		redislib.Settle(r.Cmder)
		if r.err = r.Err(); r.err == nil || redislib.Missing(r.err) {
			continue
		}
		moved = true
		if neverSent(r.err) || notRun(r.err) {
			r.err = &groupcommit.NotSentError{Err: r.err}
		}
	}
	if moved {
		n.store.reloadTopology(ctx)
	}
}

// execConfirmed runs a set and WAIT on one connection, because WAIT counts the replicas that have the writes of
// its own connection. One WAIT, for the most replicas that a request of the set asks for, confirms them all. The
// number of replicas is asked behind it, so that one which appeared while the set was under way counts too.
func (n *node) execConfirmed(ctx context.Context, set []*request) {
	all := false
	for _, r := range set {
		all = all || r.replicas == fence.AllReplicas
	}
	have := int(n.replicas.Load())
	if all && have == unknownReplicas {
		var err error
		if have, err = n.askReplicas(ctx); err != nil {
			n.store.reloadTopology(ctx)
			for _, r := range set {
				r.err = &groupcommit.NotSentError{Err: err}
			}
			return
		}
	}
	most := n.store.mostWanted(set, have)
	var behind []redis.Cmder
	var wait *redis.Cmd
	if most > 0 {
		wait = redis.NewCmd(ctx, "wait", most, n.store.cfg.ConfirmTimeout.Milliseconds())
		behind = append(behind, wait)
	}
	question := n.store.replicaQuestion(ctx)
	if !all {
		question = question[:1]
	}
	for _, q := range question {
		behind = append(behind, q)
	}
	n.exec(ctx, set, behind...)
	confirmed, have := n.judge(ctx, wait, question, all, have)
	for _, r := range set {
		r.confirmed, r.want = confirmed, n.store.wanted(r.replicas, have)
		if have == 0 && r.replicas == fence.AllReplicas {
			r.detail = noReplica
		}
	}
}

const noReplica = "the master lists no replica: attach one, or set redisfence.Config.AllowNoReplicas if the " +
	"shard is meant to have none"

// judge reads how many replicas have confirmed, and, if all of them are to, how many there are.
func (n *node) judge(
	ctx context.Context, wait *redis.Cmd, question []*redis.StringCmd, all bool, had int,
) (confirmed, have int) {
	have = had
	var err error
	if wait != nil {
		// An error: the node turned into a replica while it waited. What it appended will not survive.
		confirmed, err = wait.Int()
	}
	if wait != nil && err == nil {
		var info string
		info, err = question[0].Result()
		confirmed = min(confirmed, len(redislib.AcknowledgedBy(info)))
	}
	if all && err == nil {
		if have, err = n.store.countReplicas(question); err == nil {
			n.replicas.Store(int64(have))
			have = max(had, have) // those it had when the set was sent, and those it has now
		}
	}
	if err != nil {
		n.replicas.Store(unknownReplicas)
		n.store.reloadTopology(ctx)
		return 0, max(had, 1)
	}
	return confirmed, have
}

// reload puts the function library on the node if a set has found it missing, and returns the requests
// that did, to be sent again: they did not run.
func (n *node) reload(ctx context.Context, set []*request) (missing []*request) {
	for _, r := range set {
		if redislib.Missing(r.err) {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := library.Restore(ctx, n.client, n.store.needs(), &n.store.checks)
	for _, r := range missing {
		r.err = nil
		if err != nil {
			r.err = &groupcommit.NotSentError{Err: err}
		}
		r.SetErr(nil)
	}
	if err != nil {
		return nil
	}
	return missing
}

// neverSent reports whether a command that is sent at most once failed before it was sent: no connection
// could be had.
func neverSent(err error) bool {
	var dial *net.OpError
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &dial) &&
		dial.Op == "dial"
}

// notRun reports whether a server answered that it did not run a command, and another server, or the same
// one later, may.
func notRun(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsTryAgainError(err) || redis.IsClusterDownError(err) || redis.IsReadOnlyError(err) ||
		redis.IsLoadingError(err) || redis.IsMasterDownError(err) || redis.IsNoReplicasError(err) ||
		redis.IsMaxClientsError(err)
}
