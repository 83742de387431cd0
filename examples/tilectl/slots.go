package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/wait"
)

// Redis moves a slot key by key, and knows nothing of confirmation: what every replica of the source had confirmed
// is on the target alone until the target's replicas have it too. If the target dies before that, with the tile's
// owner, a confirmed batch is lost. So slots move only to a master whose replicas all follow it, and a slot is
// given only when they have its keys. What is left is the time that replication takes, a millisecond or so, in
// which target and owner would both have to die.

// keysAMove is how many keys one MIGRATE takes: it blocks both masters while it runs.
const keysAMove = 16

// clusterSlots is how many slots a cluster has.
const clusterSlots = 16384

// errBehind means that the target's replicas do not have what it has.
var errBehind = errors.New("not all replicas of the target follow it")

// slotMove moves slots to one master.
type slotMove struct {
	*tool
	masters  map[string]*redis.Client // by node ID
	addr     string                   // of the target
	target   string                   // its node ID
	replicas int                      // that the cluster knows of the target, also those that are down

	user, password string // of the nodes, also for what they send each other
}

func moveSlots(ctx context.Context, t *tool, args []string) error {
	if len(args) < 2 {
		return &usageError{"slots move takes the address of a master, and slots"}
	}
	slots, err := parseSlots(args[1:])
	if err != nil {
		return err
	}
	m, err := t.newSlotMove(ctx, args[0])
	if err == nil {
		err = m.confirmed(ctx)
	}
	for _, slot := range slots {
		if err != nil {
			return err
		}
		err = m.move(ctx, slot)
	}
	return err
}

// parseSlots reads slots and ranges of them.
func parseSlots(words []string) (slots []int, err error) {
	for _, w := range words {
		first, last, isRange := strings.Cut(w, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= clusterSlots {
			return nil, &usageError{fmt.Sprintf("%q is no slot from 0 to %d, and no range of them", w, clusterSlots-1)}
		}
		for s := a; s <= b; s++ {
			slots = append(slots, s)
		}
	}
	return slots, nil
}

// newSlotMove finds the masters of the cluster, and among them the target.
func (t *tool) newSlotMove(ctx context.Context, addr string) (*slotMove, error) {
	cluster, ok := t.nodes.(*redis.ClusterClient)
	if !ok {
		return nil, errors.New("the coordination Redis is a single server, which has no slots to move")
	}
	o := cluster.Options()
	m := &slotMove{tool: t, addr: addr, masters: map[string]*redis.Client{}, user: o.Username, password: o.Password}
	nodes, err := t.nodes.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	var followed []string // whom each replica follows
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		at, _, _ := strings.Cut(f[1], "@")
		switch {
		case strings.Contains(f[2], "slave"):
			followed = append(followed, f[3])
			continue
		case strings.Contains(f[2], "fail"), strings.Contains(f[2], "handshake"), strings.Contains(f[2], "noaddr"):
			continue // a master that failed holds no slot that could be moved
		}
		node := redis.NewClient(&redis.Options{Addr: at, Username: m.user, Password: m.password, TLSConfig: o.TLSConfig,
			ContextTimeoutEnabled: true, MaxRetries: -1})
		t.closers = append(t.closers, func() { _ = node.Close() })
		m.masters[f[0]] = node
		if at == addr {
			m.target = f[0]
		}
	}
	for _, of := range followed {
		if of == m.target {
			m.replicas++
		}
	}
	switch {
	case m.target == "":
		return nil, fmt.Errorf("the cluster has no master at %s", addr)
	case m.replicas == 0:
		return nil, fmt.Errorf("%w: %s has none; add one first", errBehind, addr)
	}
	return m, nil
}

// move moves one slot and gives it to the target. A slot that was left half way is moved on.
func (m *slotMove) move(ctx context.Context, slot int) error {
	from, err := m.ownerOf(ctx, slot)
	if err != nil || from == m.target {
		return err
	}
	source, target := m.masters[from], m.masters[m.target]
	// The target first: it must know of the slot before the source sends clients there.
	err = target.Do(ctx, "cluster", "setslot", slot, "importing", from).Err()
	if err == nil {
		err = source.Do(ctx, "cluster", "setslot", slot, "migrating", m.target).Err()
	}
	keys := 0
	if err == nil {
		keys, err = m.moveKeys(ctx, source, slot)
	}
	if err != nil {
		return fmt.Errorf("slot %d: %w", slot, err)
	}
	if err = m.confirmed(ctx); err != nil {
		return fmt.Errorf("slot %d has its keys on %s and is not given to it; "+
			"mend its replicas, and run this again: %w", slot, m.addr, err)
	}
	// The target first: if this ends half way, every master still has an owner of the slot.
	for _, id := range m.targetFirst() {
		if err = m.masters[id].Do(ctx, "cluster", "setslot", slot, "node", m.target).Err(); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
	}
	m.say("slot %d: %d keys moved to %s, on %d replicas\n", slot, keys, m.addr, m.replicas)
	return nil
}

// ownerOf is the node that has a slot, by the target's view of the cluster.
func (m *slotMove) ownerOf(ctx context.Context, slot int) (id string, err error) {
	shards, err := m.masters[m.target].ClusterShards(ctx).Result()
	if err != nil {
		return "", err
	}
	for _, s := range shards {
		has := slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool {
			return r.Start <= int64(slot) && int64(slot) <= r.End
		})
		for _, n := range s.Nodes {
			if has && n.Role == "master" && m.masters[n.ID] != nil {
				return n.ID, nil
			}
		}
	}
	return "", fmt.Errorf("slot %d: no living master has it", slot)
}

// moveKeys moves the keys of a slot that are left on the source.
func (m *slotMove) moveKeys(ctx context.Context, source *redis.Client, slot int) (moved int, err error) {
	host, port, _ := strings.Cut(m.addr, ":")
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, keysAMove).Result()
		if err != nil || len(keys) == 0 {
			return moved, err
		}
		args := []any{"migrate", host, port, "", 0, m.options.timeout.Milliseconds()}
		if m.password != "" {
			args = append(args, "auth2", cmp.Or(m.user, "default"), m.password)
		}
		args = append(args, "keys")
		for _, k := range keys {
			args = append(args, k)
		}
		if err := source.Do(ctx, args...).Err(); err != nil {
			return moved, err
		}
		moved += len(keys)
	}
}

// confirmed waits until every replica that the cluster knows of the target has all that the target has now. WAIT would
// not do: it waits for what its own connection has written, and the keys came over the source's.
func (m *slotMove) confirmed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.timeout)
	defer cancel()
	want := int64(-1)
	for {
		info, err := m.masters[m.target].Info(ctx, "replication").Result()
		if err != nil {
			return fmt.Errorf("%w: %w", errBehind, err)
		}
		end, follow := followers(info, want)
		if want < 0 {
			want = end
			continue
		}
		if follow >= m.replicas {
			return nil
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%w: %d of %d within %v", errBehind, follow, m.replicas, m.options.timeout)
		}
	}
}

// followers reads a master's INFO replication: where its stream ends, and how many replicas have confirmed it as far as
// an offset and were heard of within a second.
func followers(info string, offset int64) (end int64, n int) {
	end, _ = strconv.ParseInt(redislib.InfoField(info, "master_repl_offset"), 10, 64)
	for _, r := range redislib.AcknowledgedBy(info) {
		if r.Offset >= offset && r.Lag <= 1 {
			n++
		}
	}
	return end, n
}

// targetFirst lists the masters, the target first.
func (m *slotMove) targetFirst() (ids []string) {
	for id := range m.masters {
		if id != m.target {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return append([]string{m.target}, ids...)
}
