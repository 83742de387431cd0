package redisdirectory

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/redislib"
)

const (
	together  = 128   // look-ups of one pipeline
	mostWaits = 4_096 // look-ups that wait for one server
)

// look is the look-up of one player on its way to a server, together with others of the same moment.
type look struct {
	groupcommit.Item[*look]
	*redis.Cmd
	key string
}

// Look implements directory.Store. Look-ups of one player share pipelines; those of more are scripts of their own.
func (s *store) Look(ctx context.Context, actors ...string) ([]directorystore.Record, error) {
	if len(actors) != 1 || ctx.Err() != nil {
		return s.run(ctx, "look", "", actors...)
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	l := &look{key: s.world.Key(recordKey(actors[0]))}
	queue, err := s.looks.Of(ctx, s.client, l.key, s.newQueue)
	if err != nil {
		return nil, failed("look", err)
	}
	l.Cmd = command(ctx, "evalsha", recordScript.Hash(), l.key)
	if err := queue.Do(ctx, l); err != nil {
		return nil, failed("look", err) // l may still be under way
	}
	records, err := decodeAll(l.Cmd, 1)
	if err != nil {
		return nil, failed("look", err)
	}
	return records, nil
}

func (s *store) newQueue(server *redis.Client) *groupcommit.Queue[*look] {
	send := func(ctx context.Context, set []*look) { s.send(ctx, server, set) }
	return &groupcommit.Queue[*look]{Send: send, Calls: together, Room: mostWaits}
}

// command looks up the record of a key, by the script or its digest.
func command(ctx context.Context, how, script, key string) *redis.Cmd {
	return redislib.Call(ctx, how, script, []string{key}, recordArgs("look", "")...)
}

// send sends a set to a server, and once more, with the script itself, those that found it missing. What a server does
// not answer goes through the cluster's client, which follows slots that have moved: nothing is written. That client is
// not for the first try: it asks any server which commands there are, and waits up to 5 s for one that hangs.
func (s *store) send(ctx context.Context, server *redis.Client, set []*look) {
	exec(ctx, server, set)
	var missing, failed []*look
	for _, l := range set {
		switch err := l.Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			l.Cmd = command(ctx, "eval", recordSource, l.key)
			missing = append(missing, l)
		case err != nil:
			failed = append(failed, l)
		}
	}
	exec(ctx, server, missing)
	if _, ok := s.client.(*redis.ClusterClient); ok && ctx.Err() == nil {
		exec(ctx, s.client, failed)
	}
}

// exec leaves in each look-up of a set its reply or error.
func exec(ctx context.Context, client redis.UniversalClient, set []*look) {
	switch len(set) {
	case 0:
	case 1:
		_ = client.Process(ctx, set[0].Cmd)
	default:
		pipe := client.Pipeline()
		for _, l := range set {
			_ = pipe.Process(ctx, l.Cmd)
		}
		_, _ = pipe.Exec(ctx) // each has its own error
		for _, l := range set {
			redislib.Settle(l.Cmd)
		}
	}
}
