package redislib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Needs are what a back end needs of every server, masters and replicas: a replica may be promoted at any time, and is
// then what its settings make of it.
type Needs struct {
	Evicted    string // what eviction would delete
	AppendOnly string // why there must be an append-only file; empty: there need not be one
	Replicas   int    // that each master must have
}

// askTimeout bounds the questions to one server.
const askTimeout = 2 * time.Second

// minVersion is the first major version of Redis that has functions.
const minVersion = 7

// LoadOnAll puts the library on every master, if all servers are as they must be. Its error is a *fence.SettingError, a
// *fence.FunctionsError, or a *fence.StoreError if a master could not be asked. A replica that does not answer is left
// out: it may be down for long, and masters serve without it. Masters may have fewer replicas than they need, which is
// for Check to report.
func (l *Library) LoadOnAll(ctx context.Context, client redis.UniversalClient, n Needs) error {
	err := eachReplica(ctx, client, func(ctx context.Context, node *redis.Client) error {
		info, err := ask(ctx, node)
		if err != nil && !Unavailable(err) {
			return err
		}
		return first(n.settings(node.Options().Addr, info))
	})
	if err != nil {
		return failed(err)
	}
	return failed(EachMaster(ctx, client, func(ctx context.Context, node *redis.Client) error {
		return l.loadIfWell(ctx, node, n)
	}))
}

// failed makes an error of a server that could not be asked a *fence.StoreError.
func failed(err error) error {
	if err == nil || !Unavailable(err) {
		return err
	}
	if _, ok := errors.AsType[*fence.StoreError](err); ok {
		return err
	}
	return &fence.StoreError{Op: "load", Outcome: fence.ErrNotApplied, Err: err}
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// ask returns what a server says of itself. INFO needs no right to read the configuration.
func ask(ctx context.Context, node *redis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := node.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("redis %s: %w", node.Options().Addr, err)
	}
	return info, nil
}

// settings are those in which a server differs from what it must be, by its INFO; an empty one differs in none.
func (n *Needs) settings(node, info string) (wrong []error) {
	refuse := func(setting, value, detail string) {
		wrong = append(wrong, &fence.SettingError{Node: "redis " + node, Setting: setting, Value: value,
			Detail: detail})
	}
	if info == "" {
		return nil
	}
	version := InfoField(info, "redis_version") // a fork's own version is another field
	major, _, _ := strings.Cut(version, ".")
	if m, err := strconv.Atoi(major); err == nil && m < minVersion {
		refuse("redis_version", version, "it has no functions; install Redis 7.0 or later")
	}
	policy := InfoField(info, "maxmemory_policy")
	if limit, _ := strconv.ParseUint(InfoField(info, "maxmemory"), 10, 64); limit > 0 && policy != "noeviction" {
		refuse("maxmemory-policy", policy,
			"Redis would delete "+n.Evicted+" when memory runs out; set it to noeviction on every node")
	}
	if n.AppendOnly != "" && InfoField(info, "aof_enabled") != "1" {
		refuse("appendonly", "no", n.AppendOnly)
	}
	return wrong
}

// state is what is wrong with a server for the time being.
func (n *Needs) state(node, info string) (wrong []error) {
	if n.AppendOnly != "" && InfoField(info, "aof_last_write_status") == "err" {
		wrong = append(wrong, &fence.SettingError{Node: "redis " + node, Setting: "aof_last_write_status", Value: "err",
			Detail: "the append-only file cannot be written; see the server's log, and whether its disk is full"})
	}
	connected, err := strconv.Atoi(InfoField(info, "connected_slaves"))
	if err == nil && InfoField(info, "role") == "master" && connected < n.Replicas {
		wrong = append(wrong, &fence.SettingError{Node: "redis " + node, Setting: "connected_slaves",
			Value: strconv.Itoa(connected), Detail: fmt.Sprintf("its shard confirms nothing with fewer than %d "+
				"replicas; attach them, or start those that are down", n.Replicas)})
	}
	return wrong
}

// InfoField is a field of an INFO reply; empty if it is not there.
func InfoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// How often servers are asked that have not changed: those that were well, and those that were not.
const (
	askEvery       = time.Minute
	askAgainWithin = 5 * time.Second
)

// Checks is what the servers of a client lacked when they were last asked, and whether they may be written to. The zero
// value is ready; it is safe for concurrent use.
type Checks struct {
	refused  atomic.Pointer[error]
	mu       sync.Mutex
	topology string
	asked    time.Time
	found    []error
}

// Loaded notes how a Load ended, and returns its error. A Load that could not ask a server says nothing new.
func (c *Checks) Loaded(err error) error {
	switch {
	case err == nil:
		c.refused.Store(nil)
	case !Unavailable(err):
		c.refused.Store(&err)
	}
	return err
}

// Refused is why the last Load refused the servers, with what lets calls go on; nil if it did not. A store that they
// were refused for writes nothing: what is written to a server that forgets is lost later, without a word.
func (c *Checks) Refused() error {
	if err := c.refused.Load(); err != nil {
		return fmt.Errorf("nothing is written to servers that Load refused; mend them, and call Load again: %w", *err)
	}
	return nil
}

// Restore puts the library on a master on which a call has missed it, if Load would.
func (l *Library) Restore(ctx context.Context, node *redis.Client, n Needs, c *Checks) error {
	if err := c.Refused(); err != nil {
		return err
	}
	return l.loadIfWell(ctx, node, n)
}

// loadIfWell puts the library on a master whose settings are as they must be.
func (l *Library) loadIfWell(ctx context.Context, node *redis.Client, n Needs) error {
	info, err := ask(ctx, node)
	if err != nil {
		return err
	}
	if err := first(n.settings(node.Options().Addr, info)); err != nil {
		return err
	}
	return l.LoadOn(ctx, node)
}

// Check implements fence.Checker: it asks the servers that the client knows by now, if it is time, and puts the library
// on masters that lack it.
func (l *Library) Check(ctx context.Context, client redis.UniversalClient, n Needs, c *Checks) []error {
	topology := topologyOf(ctx, client)
	c.mu.Lock()
	defer c.mu.Unlock()
	every := askEvery
	if len(c.found) > 0 {
		every = askAgainWithin
	}
	if known := topology == "" || topology == c.topology; known && time.Since(c.asked) < every {
		return c.found
	}
	if topology != "" {
		c.topology = topology
	}
	c.asked, c.found = time.Now(), l.check(ctx, client, n)
	return c.found
}

// topologyOf says which servers are masters and replicas of which slots; empty: that is not known.
func topologyOf(ctx context.Context, client redis.UniversalClient) string {
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		return "one server"
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	slots, err := c.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS is no right of our users
	if err != nil {
		return ""
	}
	lines := make([]string, len(slots)) // each server lists them in its own order
	for i, s := range slots {
		lines[i] = fmt.Sprint(s.Start, s.End)
		for replica, node := range s.Nodes {
			if replica == 1 {
				slices.SortFunc(s.Nodes[1:], func(a, b redis.ClusterNode) int {
					return strings.Compare(a.Addr, b.Addr)
				})
				node = s.Nodes[1]
			}
			lines[i] += " " + node.Addr
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// check asks all servers.
func (l *Library) check(ctx context.Context, client redis.UniversalClient, n Needs) (found []error) {
	var mu sync.Mutex
	note := func(errs ...error) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, errs...)
	}
	settings := func(ctx context.Context, node *redis.Client) (well bool) {
		info, err := ask(ctx, node)
		if err != nil {
			if !Unavailable(err) {
				note(err)
			}
			return false
		}
		wrong := n.settings(node.Options().Addr, info)
		note(append(wrong, n.state(node.Options().Addr, info)...)...)
		return len(wrong) == 0
	}
	_ = eachReplica(ctx, client, func(ctx context.Context, node *redis.Client) error {
		settings(ctx, node)
		return nil
	})
	_ = EachMaster(ctx, client, func(ctx context.Context, node *redis.Client) error {
		if settings(ctx, node) {
			if err := l.LoadOn(ctx, node); err != nil && !Unavailable(err) {
				note(err)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return found
}

// eachReplica calls f for all replicas of a cluster, several at once.
func eachReplica(
	ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error,
) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachSlave(ctx, f)
	}
	return nil
}
