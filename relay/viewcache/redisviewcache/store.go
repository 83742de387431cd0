package redisviewcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/viewstore"
)

// Store keeps the views of all relays on Redis, for viewcache.New. Close it when its use ends.
type Store struct {
	viewstore.Store
	own *store
}

// store implements viewstore.Store.
type store struct {
	client redis.UniversalClient
	limits viewstore.Limits
	world  fence.World
	heard  listeners
	queues [viewstore.Groups]groupcommit.Queue[*request]
}

var (
	_ viewstore.Store   = (*store)(nil)
	_ fence.WorldKeeper = (*Store)(nil)
)

// New returns a Store of a world, whose name and a colon begin every key and channel, on client, a *redis.Client or a
// *redis.ClusterClient made with Options or like it. It does no I/O: a Redis that is down at the start is used once it
// is up. Errors: a *fence.ArgumentError.
//
// Budget is how many bytes of values the store keeps over all groups, each counted with 256 more for its name and its
// places in the store's lists; a group has a sixteenth of it. Zero means 256 MiB. All relays should have the same: that
// of the relay that stores a version holds. If there is no room for a version, superseded versions go first, oldest
// first, and then the tiles that were used least recently; where a thousand small ones would have to go for a large
// one, the next attempt to store it goes on. A version that needs more than a quarter of its group's share is not
// stored. A superseded version stays for 60 s, for relays that were told of it and have not read it.
func New(client redis.UniversalClient, world fence.World, budget int64) (*Store, error) {
	return open(client, world, viewstore.Limits{Budget: budget})
}

func open(client redis.UniversalClient, world fence.World, limits viewstore.Limits) (*Store, error) {
	if err := cmp.Or(world.Validate(), redislib.Usable(client)); err != nil {
		return nil, err
	}
	l, err := limits.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &store{client: client, limits: l, world: world, heard: listeners{client: client, world: world}}
	for i := range s.queues {
		s.queues[i].Send, s.queues[i].Calls, s.queues[i].Bytes = s.send, pipelineCalls, pipelineBytes
	}
	return &Store{Store: s, own: s}, nil
}

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *Store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.own.client, s.own.world, w)
}

// Close ends the subscriptions to announcements. The client stays open.
func (s *Store) Close() { s.own.heard.close() }

// keysOf are the keys of a tile's group, and its own lock. They are part of the wire contract (docs/wire.md).
func keysOf(w fence.World, tile fence.TileID) []string {
	p := w.Key("{tilefence:views:" + strconv.Itoa(viewstore.GroupOf(tile)) + "}:")
	return []string{p + "index", p + "values", p + "used", p + "old", p + "lock:" + tile.String()}
}

// channel is the sharded channel on which new versions of a group's tiles are announced, each by its tile, position,
// base and stamp, with spaces between. It is part of the wire contract (docs/wire.md).
func channel(group int) string { return "{tilefence:views:" + strconv.Itoa(group) + "}:news" }

// failed tells an answer of the server from none.
func failed(op string, err error) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return fmt.Errorf("%s: %w: %w", op, viewstore.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func unreadable(op string, reply any) error {
	return fmt.Errorf("%s: %w: unreadable answer %v", op, viewstore.ErrRefused, reply)
}

// Find implements viewstore.Store.
func (s *store) Find(ctx context.Context, tile fence.TileID) (v viewstore.Version, found bool, err error) {
	reply, err := s.call(ctx, "find", tile, tile.String()).StringSlice()
	if err != nil || len(reply) == 0 {
		return v, false, failed("find", err)
	}
	if v, err = readFound(reply); err != nil {
		return v, false, unreadable("find", reply)
	}
	return v, true, nil
}

// readFound reads the newest version and its age.
func readFound(reply []string) (v viewstore.Version, err error) {
	if len(reply) != 2 {
		return v, errNoVersion
	}
	v, err1 := readVersion(strings.Fields(reply[0]))
	now, err2 := strconv.ParseUint(reply[1], 10, 64)
	v.Age = time.Duration(int64(now)-int64(v.Stamp)) * time.Microsecond
	return v, errors.Join(err1, err2)
}

var errNoVersion = errors.New("not a version")

// readVersion reads position, base and stamp of a version.
func readVersion(fields []string) (v viewstore.Version, err error) {
	if len(fields) != 3 {
		return v, errNoVersion
	}
	at, err1 := fence.ParsePosition(fields[0])
	base, err2 := fence.ParsePosition(fields[1])
	stamp, err3 := strconv.ParseUint(fields[2], 10, 64)
	return viewstore.Version{At: at, Base: base, Stamp: stamp}, errors.Join(err1, err2, err3)
}

// Values implements viewstore.Store.
func (s *store) Values(
	ctx context.Context, tile fence.TileID, v viewstore.Version, snapshot bool,
) (base, tail []byte, err error) {
	args := []any{"hmget", keysOf(s.world, tile)[1], tile.String() + " t " + v.At.String()}
	if snapshot && !v.Base.IsZero() {
		args = append(args, tile.String()+" b "+v.Base.String())
	}
	reply, err := s.do(ctx, tile, redis.NewCmd(ctx, args...)).Slice()
	if err != nil {
		return nil, nil, failed("read values", err)
	}
	value := func(i int) []byte {
		if i < len(reply) {
			if b, ok := reply[i].(string); ok {
				return []byte(b)
			}
		}
		return nil
	}
	return value(1), value(0), nil
}

// Lock implements viewstore.Store.
func (s *store) Lock(
	ctx context.Context, tile fence.TileID, seen viewstore.Version, lease time.Duration,
) (viewstore.Grant, error) {
	reply, err := s.call(ctx, "lock", tile, tile.String(), seen.At.String(), seen.Stamp,
		lease.Milliseconds()).StringSlice()
	switch {
	case err != nil:
		return viewstore.Grant{}, failed("lock", err)
	case len(reply) == 2 && reply[0] == "held":
		token, err := strconv.ParseUint(reply[1], 10, 64)
		return viewstore.Grant{Token: viewstore.Token(token)}, failed("lock", err)
	case len(reply) == 1 && (reply[0] == "busy" || reply[0] == "changed"):
		return viewstore.Grant{Changed: reply[0] == "changed"}, nil
	case len(reply) == 3 && reply[0] == "changed":
		if v, err := readFound(reply[1:]); err == nil {
			return viewstore.Grant{Changed: true, Newest: v}, nil
		}
	}
	return viewstore.Grant{}, unreadable("lock", reply)
}

// Renew implements viewstore.Store.
func (s *store) Renew(
	ctx context.Context, tile fence.TileID, token viewstore.Token, lease time.Duration,
) (held bool, err error) {
	held, err = s.call(ctx, "renew", tile, uint64(token), lease.Milliseconds()).Bool()
	return held, failed("renew", err)
}

// Unlock implements viewstore.Store.
func (s *store) Unlock(ctx context.Context, tile fence.TileID, token viewstore.Token) error {
	return failed("unlock", s.call(ctx, "unlock", tile, uint64(token)).Err())
}

// Put implements viewstore.Store.
func (s *store) Put(ctx context.Context, p viewstore.Put) (viewstore.Verdict, error) {
	verdict, err := s.call(ctx, "put", p.Tile, p.Tile.String(), uint64(p.Token), p.At.String(), p.Base.String(),
		s.limits.Budget/viewstore.Groups, s.limits.Grace.Milliseconds(),
		s.world.Key(channel(viewstore.GroupOf(p.Tile))), p.Tail, p.Snapshot).Int()
	if err == nil && (verdict < int(viewstore.Stored) || verdict > int(viewstore.Gone)) {
		return 0, unreadable("put", verdict)
	}
	return viewstore.Verdict(verdict), failed("put", err)
}

// Drop implements viewstore.Store.
func (s *store) Drop(ctx context.Context, tile fence.TileID, at fence.Position) error {
	return failed("drop", s.call(ctx, "drop", tile, tile.String(), at.String()).Err())
}

// Listen implements viewstore.Store.
func (s *store) Listen(tile fence.TileID, heard func(viewstore.Version)) (stop func()) {
	return s.heard.listen(tile, heard)
}

// Usage implements viewstore.Store.
func (s *store) Usage(ctx context.Context) (viewstore.Usage, error) {
	var sum viewstore.Usage
	asked := map[int]bool{}
	for tile := fence.TileID(1); len(asked) < viewstore.Groups; tile++ { // some tile of each group
		if asked[viewstore.GroupOf(tile)] {
			continue
		}
		asked[viewstore.GroupOf(tile)] = true
		reply, err := s.call(ctx, "usage", tile).Int64Slice()
		switch {
		case err != nil:
			return sum, failed("usage", err)
		case len(reply) != 4:
			return sum, unreadable("usage", reply)
		}
		sum.Bytes, sum.Tiles = sum.Bytes+reply[0], sum.Tiles+int(reply[1])
		sum.Old, sum.Evicted = sum.Old+int(reply[2]), sum.Evicted+int(reply[3])
	}
	return sum, nil
}
