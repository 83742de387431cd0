package campaign

import (
	"context"
	"errors"
)

// networkFaults break the ways between processes.
func networkFaults() []*Fault {
	return []*Fault{
		{Name: "owner-without-store", About: "a worker cannot reach Redis; it can reach the authority and its clients",
			parts: true, frozen: true, hold: seconds(2, 5),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				w := r.owner(r.tile())
				return w.name, r.network.join, r.partFromStore(ctx, w)
			}},
		{Name: "owner-without-authority",
			About: "a worker cannot reach PostgreSQL, while tiles are to move; it can reach Redis", parts: true,
			frozen: true,
			moves:  true, hold: seconds(2, 4),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				w := r.owner(r.tile())
				p, err := r.postgres()
				if err != nil {
					return "", nil, err
				}
				return w.name, r.network.join, r.network.part(ctx, w.host, hostOf(p.Addr()))
			}},
		{Name: "owner-alone", About: "a worker can reach its clients, but neither Redis nor PostgreSQL", parts: true,
			frozen: true, hold: seconds(2, 5),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				w := r.owner(r.tile())
				p, err := r.postgres()
				if err != nil {
					return "", nil, err
				}
				return w.name, r.network.join,
					errors.Join(r.partFromStore(ctx, w), r.network.part(ctx, w.host, hostOf(p.Addr())))
			}},
		{Name: "answers-lost", About: "a master's answers to one worker are lost; requests arrive", parts: true,
			frozen: true, hold: seconds(1, 4),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				id := r.tile()
				w := r.owner(id)
				s, err := r.cluster.shardOf(ctx, id)
				if err != nil {
					return "", nil, err
				}
				return s.master.Name() + " to " + w.name, r.network.join,
					r.network.drop(ctx, hostOf(s.master.Addr()), w.host, "")
			}},
		{Name: "master-cut-off", About: "a master cannot reach the other nodes, all clients can reach it", parts: true,
			failover: true, frozen: true, hold: seconds(2.5, 5),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				s, err := r.cluster.shardOf(ctx, r.tile())
				if err != nil {
					return "", nil, err
				}
				return s.master.Name(), r.network.join, r.isolate(ctx, s)
			}},
		{Name: "master-and-owner-cut-off", About: "a master and an owner reach each other but no other node of Redis",
			parts: true, failover: true, frozen: true, hold: seconds(2.5, 5), inject: masterAndOwnerCutOff},
		{Name: "replication-cut",
			About: "a master and its replica cannot reach each other, all others can reach both", parts: true,
			failover: true, moves: true, hold: seconds(1, 4),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				s, err := r.cluster.shardOf(ctx, r.tile())
				if err != nil {
					return "", nil, err
				}
				return s.master.Name() + " " + s.replica.Name(), r.network.join,
					r.network.part(ctx, hostOf(s.master.Addr()), hostOf(s.replica.Addr()))
			}},
		{Name: "store-resets",
			About: "connections to Redis are reset before a request or, more often, after it was carried out and " +
				"before the answer",
			moves: true, hold: seconds(1, 3),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				return r.resets(ctx, "redis", 60, 20)
			}},
		{Name: "authority-resets", About: "the same on connections to PostgreSQL", moves: true, hold: seconds(1, 3),
			inject: func(ctx context.Context, r *run) (string, func(context.Context) error, error) {
				return r.resets(ctx, "postgres", 250, 80)
			}},
	}
}

// partFromStore parts a worker from every node of Redis.
func (r *run) partFromStore(ctx context.Context, w *workerSlot) error {
	var errs []error
	for _, addr := range r.cluster.stack.CoordAddrs {
		errs = append(errs, r.network.part(ctx, w.host, hostOf(addr)))
	}
	return errors.Join(errs...)
}

// isolate parts a master from all other nodes.
func (r *run) isolate(ctx context.Context, s shard) error {
	var errs []error
	for _, addr := range r.cluster.stack.CoordAddrs {
		if addr != s.master.Addr() {
			errs = append(errs, r.network.part(ctx, hostOf(s.master.Addr()), hostOf(addr)))
		}
	}
	return errors.Join(errs...)
}

func masterAndOwnerCutOff(ctx context.Context, r *run) (string, func(context.Context) error, error) {
	id := r.tile()
	w := r.owner(id)
	s, err := r.cluster.shardOf(ctx, id)
	if err != nil {
		return "", nil, err
	}
	errs := []error{r.isolate(ctx, s)}
	for _, addr := range r.cluster.stack.CoordAddrs {
		if addr != s.master.Addr() {
			errs = append(errs, r.network.part(ctx, w.host, hostOf(addr)))
		}
	}
	return s.master.Name() + " " + w.name, r.network.join, errors.Join(errs...)
}

// resets gives the connections of all workers to a server accidents, in thousandths of reads and writes.
func (r *run) resets(
	ctx context.Context, server string, answers, requests int,
) (string, func(context.Context) error, error) {
	set := func(ctx context.Context, answers, requests int) error {
		var errs []error
		for _, w := range r.workers {
			errs = append(errs, r.control.accidents(ctx, w.contact, server, answers, requests))
		}
		return errors.Join(errs...)
	}
	return "all workers", func(ctx context.Context) error { return set(ctx, 0, 0) }, set(ctx, answers, requests)
}
