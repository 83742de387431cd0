package redislib

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// EnterWorld is that of fence.WorldKeeper for the servers of a usable client. own is the world as the back end is
// configured, of which the name counts. The ID is recorded once for all back ends of one name on a server.
func EnterWorld(
	ctx context.Context, client redis.UniversalClient, own, w fence.World,
) (fence.World, error) {
	own.ID = fence.WorldID{}
	key := own.Key(fence.WorldRecord)
	store := "Redis at " + addresses(client)
	compare := func(found fence.World) (fence.World, error) {
		if err := w.Compare(store, "key "+key, found); err != nil {
			return fence.World{}, err
		}
		return found, nil
	}
	if _, err := compare(own); err != nil {
		return fence.World{}, err // before anything is written under another world's name
	}
	text, err := client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		if w.ID.IsZero() {
			return own, nil
		}
		err = client.SetArgs(ctx, key, w.ID.String(), redis.SetArgs{Mode: "NX"}).Err()
		switch {
		case err == nil, errors.Is(err, redis.Nil): // recorded, by this process or another
			text, err = client.Get(ctx, key).Result()
		case strings.HasPrefix(err.Error(), "NOPERM"):
			return own, nil // a reader leaves it to a writer
		}
	}
	if err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
		err = fmt.Errorf("%w; let the user read the key %s, as the users in deploy/acl may", err, key)
	}
	if err != nil {
		return fence.World{}, &fence.StoreError{Op: "enter world", Outcome: fence.ErrNotApplied, Err: err}
	}
	if own.ID, err = fence.ParseWorldID(text); err != nil {
		return fence.World{}, &fence.CorruptError{What: store + ": key " + key, Detail: err.Error()}
	}
	return compare(own)
}

// addresses is where a client finds its servers.
func addresses(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	case *redis.Client:
		return c.Options().Addr
	}
	return ""
}
