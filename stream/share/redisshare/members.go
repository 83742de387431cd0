// Package redisshare keeps the lists of living members of package share on Redis 7.
//
//	client := redis.NewClusterClient(redisfanout.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	s, err := share.New(redisshare.New(client, fence.World{}), "bridge", share.Fixed(tiles), target, nil)
//
// The list of a group is one sorted set, {tilefence:members:<group>}, see docs/wire.md. A heartbeat is one script on
// one key, in one round trip, by the clock of the node that has the key. Any Redis will do; bridges have the fan-out
// cluster at hand. The list need not survive a failover or a restart: the members write themselves anew. A user
// needs evalsha, eval, zadd, zrange, zrem, pexpire and time on the keys of its groups, see deploy/acl.
package redisshare

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream/share"
)

//go:embed beat.lua
var source string

var script = redis.NewScript(source)

// Members implements share.Members on Redis.
type Members struct {
	client redis.UniversalClient
	world  fence.World
}

var (
	_ share.Members     = (*Members)(nil)
	_ fence.WorldKeeper = (*Members)(nil)
)

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (m *Members) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, m.client, m.world, w)
}

// New returns the lists on client, of a world; the zero World is the one without a name. It does no I/O; a name that is
// none makes every call fail with a *fence.ArgumentError. The client must obey deadlines (ContextTimeoutEnabled, see
// redisfanout.Options), or a heartbeat could outlast the TTL.
func New(client redis.UniversalClient, w fence.World) *Members { return &Members{client, w} }

// keyOf is the key of a group's list in the world without a name; fence.World.Key makes those of others of it. It is
// part of the wire contract (docs/wire.md).
func keyOf(group string) string { return "{tilefence:members:" + group + "}" }

// Beat implements share.Members. The client may retry it, which does no harm.
func (m *Members) Beat(ctx context.Context, group, member string, ttl time.Duration) ([]string, bool, error) {
	if err := m.world.Validate(); err != nil {
		return nil, false, err
	}
	reply, err := script.Run(ctx, m.client, []string{m.world.Key(keyOf(group))}, member, ttl.Milliseconds()).Slice()
	if err != nil {
		return nil, false, failed("heartbeat", err)
	}
	living := make([]string, 0, len(reply))
	for _, item := range reply[min(1, len(reply)):] {
		name, _ := item.(string)
		living = append(living, name)
	}
	if !slices.Contains(living, member) {
		return nil, false, failed("heartbeat", fmt.Errorf("unexpected answer %q", reply))
	}
	slices.Sort(living)
	return living, reply[0] == int64(1), nil
}

// Leave implements share.Members.
func (m *Members) Leave(ctx context.Context, group, member string) error {
	if err := m.client.ZRem(ctx, m.world.Key(keyOf(group)), member).Err(); err != nil {
		return failed("leave", err)
	}
	return nil
}

func failed(op string, err error) error {
	return &fence.StoreError{Op: op, Outcome: fence.ErrUnknownOutcome, Err: err}
}
