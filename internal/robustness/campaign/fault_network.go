//go:build unix

package campaign

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

// networkFaults break the ways between processes.
func networkFaults() []*Fault {
	return []*Fault{
		{Name: "owner-without-store", About: "a worker cannot reach Redis; it can reach the authority and its clients",
			parts: true, frozen: true, hold: seconds(2, 5), within: "owner-alone",
			inject: func(ctx context.Context, r *run, v victim) error {
				return r.part(ctx, v.owner.proc, r.otherNodes(nil)...)
			}},
		{Name: "owner-without-authority",
			About: "a worker cannot reach PostgreSQL, while tiles are to move; it can reach Redis", parts: true,
			frozen: true, moves: true, hold: seconds(1.2, 4),
			inject: func(ctx context.Context, r *run, v victim) error {
				return r.part(ctx, v.owner.proc, r.postgres())
			}},
		{Name: "owner-alone", About: "a worker can reach its clients, but neither Redis nor PostgreSQL", parts: true,
			frozen: true, hold: seconds(2, 5),
			inject: func(ctx context.Context, r *run, v victim) error {
				return r.part(ctx, v.owner.proc, append(r.otherNodes(nil), r.postgres())...)
			}},
		{Name: "answers-lost", About: "a master's answers to one worker are lost; requests arrive", parts: true,
			frozen: true, hold: seconds(1, 4),
			inject: func(ctx context.Context, r *run, v victim) error {
				r.damage.Hit(v.Master.Name()+" to "+v.owner.name, r.network.join)
				return r.network.drop(ctx, hostOf(v.Master.Addr()), hostOf(v.owner.contact))
			}},
		{Name: "master-cut-off", About: "a master cannot reach the other nodes, all clients can reach it", parts: true,
			failover: true, frozen: true, hold: seconds(2.5, 5), within: "master-and-owner-cut-off",
			inject: func(ctx context.Context, r *run, v victim) error {
				return r.part(ctx, v.Master, r.otherNodes(v.Master)...)
			}},
		{Name: "master-and-owner-cut-off", About: "a master and an owner reach each other but no other node of Redis",
			parts: true, failover: true, frozen: true, hold: seconds(2.5, 5),
			inject: func(ctx context.Context, r *run, v victim) error {
				others := r.otherNodes(v.Master)
				return errors.Join(r.part(ctx, v.Master, others...), r.part(ctx, v.owner.proc, others...))
			}},
		{Name: "replication-cut",
			About: "a master and its replicas cannot reach each other, all others can reach them", parts: true,
			failover: true, moves: true, hold: seconds(1, 4), within: "master-and-owner-cut-off",
			inject: func(ctx context.Context, r *run, v victim) error {
				return r.part(ctx, v.Master, v.Replicas...)
			}},
		{Name: "client-answers-lost",
			About: "whatever a worker answers its clients and gateways is lost; what they send arrives",
			hold:  seconds(1.7, 3),
			inject: func(ctx context.Context, r *run, v victim) error {
				cut := func(share int64) func(context.Context) error {
					return func(ctx context.Context) error {
						_, err := r.control.tell(ctx, v.owner.orders, order{Resets: "clients", Requests: share})
						return err
					}
				}
				r.damage.Hit(v.owner.name, cut(0))
				return cut(1000)(ctx)
			}},
		{Name: "store-resets",
			About: "connections to Redis are reset before a request or, more often, after it was carried out and " +
				"before the answer",
			moves: true, hold: seconds(1, 3), within: "resets",
			inject: func(ctx context.Context, r *run, _ victim) error { return r.resets(ctx, storeResets) }},
		{Name: "confirmations-reset",
			About: "a replica's link is cut, and connections to Redis are reset while owners wait for its " +
				"confirmation; then the master and a tile's owner are killed",
			failover: true, hold: seconds(0.5, 1.5), inject: resetWaits},
		{Name: "promoted-refuses",
			About:    "SIGKILL of a Redis master; the promoted one refuses connections for its first second",
			failover: true, hold: seconds(0.1, 0.5), inject: refuseAtFirst},
		{Name: "authority-resets", About: "the same on connections to PostgreSQL", moves: true, hold: seconds(1, 3),
			within: "resets",
			inject: func(ctx context.Context, r *run, _ victim) error { return r.resets(ctx, authorityResets) }},
		{Name: "durable-resets", About: "the same on tile servers' connections to the durable store", moves: true,
			hold: seconds(1, 3), within: "resets",
			inject: func(ctx context.Context, r *run, _ victim) error { return r.resets(ctx, durableResets) }},
		{Name: "resets", About: "the same on connections to all three", moves: true, hold: seconds(1.5, 3),
			inject: func(ctx context.Context, r *run, _ victim) error {
				return errors.Join(r.resets(ctx, storeResets), r.resets(ctx, authorityResets),
					r.resets(ctx, durableResets))
			}},
	}
}

// What is lost of the connections to each store.
var (
	storeResets     = order{Resets: "redis", Answers: 60, Requests: 20}
	authorityResets = order{Resets: "postgres", Answers: 250, Requests: 80}
	durableResets   = order{Resets: "dynamodb", Answers: 100, Requests: 50}
)

// part parts one process from others until the fault is over.
func (r *run) part(ctx context.Context, from *devstack.Process, others ...*devstack.Process) error {
	r.damage.Hit(from.Name(), r.network.join)
	var errs []error
	for _, p := range others {
		errs = append(errs, r.network.part(ctx, hostOf(from.Addr()), hostOf(p.Addr())))
	}
	return errors.Join(errs...)
}

// otherNodes are the nodes of Redis but one.
func (r *run) otherNodes(but *devstack.Process) []*devstack.Process {
	return slices.DeleteFunc(r.cluster.Processes(), func(p *devstack.Process) bool { return p == but })
}

// resets gives the connections of all workers to a server accidents, until the fault is over.
func (r *run) resets(ctx context.Context, o order) error {
	r.damage.Hit("all workers", func(ctx context.Context) error { return r.tellAll(ctx, order{Resets: o.Resets}) })
	return r.tellAll(ctx, o)
}

// tellAll gives an order to every worker.
func (r *run) tellAll(ctx context.Context, o order) error {
	var errs []error
	for _, w := range r.workers {
		_, err := r.control.tell(ctx, w.orders, o)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// refuse lets a node of Redis refuse every new connection of workers and other servers; an empty address lets none.
func (r *run) refuse(ctx context.Context, addr string) error {
	for _, m := range r.world.members {
		m.process.toRedis.refuses.Store(&addr)
	}
	return r.tellAll(ctx, order{Resets: "redis", Refuses: addr})
}

// refuseAtFirst kills a master. The promoted one refuses connections for the first second.
func refuseAtFirst(ctx context.Context, r *run, v victim) error {
	r.damage.Hit(v.Replica.Name(), func(ctx context.Context) error { return r.refuse(ctx, "") })
	err := errors.Join(r.refuse(ctx, v.Replica.Addr()), r.killMaster(v.Shard),
		r.cluster.AwaitPromotion(ctx, v.Shard, promotionTime))
	time.Sleep(time.Second)
	return err
}

// resetWaits cuts the link to a replica, breaks connections while owners wait for it to confirm, and kills the master
// and an owner.
func resetWaits(ctx context.Context, r *run, v victim) error {
	err := errors.Join(r.cutLink(ctx, v.Shard), r.tellAll(ctx, order{Resets: "redis", Answers: 300}))
	time.Sleep(500*time.Millisecond + time.Duration(r.rng.Int64N(int64(700*time.Millisecond))))
	return errors.Join(err, r.tellAll(ctx, order{Resets: "redis"}), r.killMaster(v.Shard),
		r.killWorker(r.owner(v.tile)))
}
