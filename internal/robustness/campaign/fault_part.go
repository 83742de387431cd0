//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
)

// partFaults break the parts of the system around the tiles: fan-out, relays, and the durable store.
func partFaults() []*Fault {
	return []*Fault{
		{Name: "fanout-killed", About: "SIGKILL of every node of the fan-out cluster; they come back empty",
			hold: seconds(1, 3), single: true,
			inject: func(_ context.Context, r *run, _ victim) error {
				return errors.Join(r.kill(r.fanout[0]), r.kill(r.fanout[1]), r.kill(r.fanout[2]))
			}},
		{Name: "relay-isolated",
			About: "a relay can reach its watchers, but neither store nor fan-out, while tiles move, and watchers " +
				"from it and to it",
			parts: true, moves: true, hold: seconds(1.7, 4), single: true,
			inject: func(ctx context.Context, r *run, _ victim) error {
				relay := relayHosts[r.rng.IntN(len(relayHosts))]
				r.damage.Hit("relay "+relay, r.network.join)
				var errs []error
				for _, p := range append(r.otherNodes(nil), r.fanout...) {
					errs = append(errs, r.network.part(ctx, relay, hostOf(p.Addr())))
				}
				return errors.Join(errs...)
			}},
		memberKilled("gateway", "players go to another, and its actions in flight are settled by a sweep"),
		memberKilled("relay", "watchers go to another one"),
		memberKilled("bridge", "nothing is forwarded until another has taken its place"),
		memberKilled("checkpointer", "nothing is checkpointed until another has taken its place"),
		{Name: faultinject.DurableThrottled.Name,
			About: "the durable store refuses most requests for want of capacity, those of every process",
			hold:  seconds(1, 3), moves: true, inject: throttleDurable},
		{Name: "durable-paused", About: "SIGSTOP of the durable store, of journals, checkpoints and the ledger",
			hold:   seconds(1, 3),
			inject: func(_ context.Context, r *run, _ victim) error { return r.pause(r.dynamo) }},
		{Name: "durable-restored",
			About: "checkpoints and journals are restored to an older state while the owners live",
			hold:  seconds(0.2, 1), single: true,
			inject: restoreDurable},
	}
}

// memberKilled is the fault that one of the servers of a kind loses its memory and all its connections.
func memberKilled(kind, then string) *Fault {
	return &Fault{Name: kind + "-killed", About: "a " + kind + " is killed: " + then, moves: true,
		hold: seconds(0.3, 1.5), single: kind != "checkpointer",
		inject: func(_ context.Context, r *run, _ victim) error {
			all := r.world.of(kind)
			m := all[r.rng.IntN(len(all))]
			r.damage.Hit(kind+" "+m.host, func(context.Context) error { return m.again() })
			m.kill()
			return nil
		}}
}

// throttleDurable refuses most requests of all processes but the campaign's own.
func throttleDurable(ctx context.Context, r *run, _ victim) error {
	const share = 700 // of a thousand
	set := func(share int64) {
		for _, m := range r.world.members {
			m.process.throttle.Share.Store(share)
		}
	}
	r.damage.Hit("the other servers", func(context.Context) error { set(0); return nil })
	set(share)
	return r.resets(ctx, order{Resets: "dynamodb", Throttled: share})
}

// restoreDurable does what a restore from a backup does to every tile, at once.
func restoreDurable(ctx context.Context, r *run, _ victim) error {
	r.damage.Hit("table "+r.servers.checkpoints(), nil)
	before, err := r.durable.items(ctx, r.servers.checkpoints())
	if err != nil {
		return err
	}
	time.Sleep(500*time.Millisecond + time.Duration(r.rng.Int64N(int64(time.Second))))
	// Nothing is written in the midst of it: a backup is of one moment.
	defer func() { _ = r.signalWorkers(devstack.GoOn) }()
	if err := r.signalWorkers(devstack.Pause); err != nil {
		return err
	}
	now, err := r.durable.items(ctx, r.servers.checkpoints())
	if err != nil {
		return err
	}
	for _, tile := range slices.Sorted(maps.Keys(now)) {
		if err := r.durable.replace(ctx, r.servers.checkpoints(), now[tile], before[tile]); err != nil {
			return fmt.Errorf("tile %s: %w", tile, err)
		}
	}
	return nil
}

// item is one of a table, and items are those of a tile by their sort key.
type (
	item  = map[string]types.AttributeValue
	items map[string]item
)

// items reads a table, by tile.
func (p *process) items(ctx context.Context, table string) (map[string]items, error) {
	all := map[string]items{}
	pages := dynamodb.NewScanPaginator(p.dynamo, &dynamodb.ScanInput{TableName: &table})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			tile, part := i["tile"].(*types.AttributeValueMemberS), i["part"].(*types.AttributeValueMemberS)
			if all[tile.Value] == nil {
				all[tile.Value] = items{}
			}
			all[tile.Value][part.Value] = i
		}
	}
	return all, nil
}

// replace makes a tile's items what they were, in one transaction.
func (p *process) replace(ctx context.Context, table string, now, before items) error {
	var writes []types.TransactWriteItem
	for _, part := range slices.Sorted(maps.Keys(before)) {
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: before[part]}})
	}
	for _, part := range slices.Sorted(maps.Keys(now)) {
		if before[part] == nil {
			key := item{"tile": now[part]["tile"], "part": now[part]["part"]}
			writes = append(writes, types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: key}})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	_, err := p.dynamo.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	return err
}

// cutLink keeps the replicas of a shard from its master, by a password that the master does not ask for; or one of two.
func (r *run) cutLink(ctx context.Context, s serverfault.Shard) error {
	cut := s.Replicas
	if len(cut) > 1 && r.rng.IntN(2) == 0 {
		cut = cut[:1]
	}
	return r.cluster.CutReplication(ctx, &r.damage, cut...)
}

// loseTail cuts the link to a replica, lets the master go on alone for a while, and kills it.
func (r *run) loseTail(ctx context.Context, s serverfault.Shard) error {
	err := r.cutLink(ctx, s)
	time.Sleep(300*time.Millisecond + time.Duration(r.rng.Int64N(int64(700*time.Millisecond))))
	return errors.Join(err, r.killMaster(s))
}

// fanoutNodes are the processes of the fan-out cluster.
func fanoutNodes(s *devstack.Stack) (nodes []*devstack.Process) {
	for i := range 3 {
		if p, ok := s.Process(fmt.Sprintf("fanout-%d", i+1)); ok {
			nodes = append(nodes, p)
		}
	}
	return nodes
}
