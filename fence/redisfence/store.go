package redisfence

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds what has a default. The zero value is valid.
type Config struct {
	// World is the world that the tiles belong to. Its name begins every key. If its ID is known, Load refuses servers
	// of another world. Default: the world without a name.
	World fence.World

	// TTL is how long an owner hash outlives its last refresh. Default fence.DefaultTTL, 30 s; at least
	// one second. Batches that append renew it once a second, or ten times in a TTL if that is more often.
	TTL time.Duration

	// ConfirmTimeout bounds the wait for replicas. Default 200 ms; shorter than the client's ReadTimeout,
	// or the client would give up the connection, and send the write again, while replicas still confirm.
	ConfirmTimeout time.Duration

	// MinReplicas is how many replicas fence.AllReplicas means at the least, also when the master lists
	// fewer. Default 1. Production sets it to the replicas each shard is meant to have. A promoted replica
	// starts without any: takeovers and replicated commits on its shard then fail with fence.ErrUnconfirmed
	// until it has as many. Outside a cluster a master lists only the replicas that are connected, so a client that
	// asks sentinels (redis.NewFailoverClient) needs the number of all that may be promoted. Attach no replicas from
	// outside the cluster: WAIT counts them, and they cannot be promoted.
	MinReplicas int

	// AllowNoReplicas lets fence.AllReplicas mean none on a master that lists no replica: for development,
	// and for shards that are meant to have none. A confirmed commit is then on one server, and lost with
	// it; the tile starts over from its checkpoint. MinReplicas must then be zero.
	AllowNoReplicas bool

	// Persistence says what keeps a master that restarts from coming back without what its replicas have confirmed.
	// Default AppendOnlyFile, which Load checks.
	Persistence Persistence

	// Logger gets a line from Load when the client looks for a changed topology less often than Options has it.
	// Nil means slog.Default().
	Logger *slog.Logger

	// IgnoreFailedReplicas makes fence.AllReplicas leave out a replica that the cluster has declared failed.
	// Off by default: a failed replica may come back, and for cluster-replica-validity-factor times
	// cluster-node-timeout after it lost its master it may be promoted, with the epochs and batches of the
	// moment it was lost. An install it has not confirmed is then undone, and the tile's former owner
	// is accepted again. While it is counted, nothing is confirmed on its shard: installs wait, other commits
	// go on and are kept by their owners. It counts until it is back or CLUSTER FORGET has removed it from
	// the master. Replicas of a failed master count against the promoted one.
	IgnoreFailedReplicas bool

	// Unpipelined sends every call by itself. By default concurrent calls to one node share pipelines, two
	// at a time: one for calls that want replicas to confirm them and one for the others.
	Unpipelined bool

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	// PipelineCalls is how many calls travel in one pipeline at most: 256 take about 3 ms of the server's time.
	PipelineCalls int

	// PipelineBytes is how many bytes of payload travel in one pipeline at most. A larger commit goes by itself, as
	// snapshots and rebases do, so that small ones do not queue behind it.
	PipelineBytes int
}

// Store is a fence.Store on Redis.
type Store struct {
	fence.Store
	fence.Checker     // asks what Load asks: of one server once a minute
	fence.WorldKeeper // the ID is in the key fence.WorldRecord, behind the name
	own               *store
}

type store struct {
	client redis.UniversalClient
	cfg    Config
	ttl    string // milliseconds
	nodes  redislib.PerServer[node]

	renewals renewals
	checks   redislib.Checks

	mayNotHasten atomic.Bool // the user of the client has no right to; see hasten
}

// Sizes of calls, beside their payloads.
const (
	overhead = 512         // keys, numbers, names
	byItself = math.MaxInt // what no queue takes
)

// New returns a store on client, a *redis.ClusterClient or *redis.Client, which stays the caller's to
// close. It does no I/O; call Load before the first commit. A nil cfg means the defaults.
func New(client redis.UniversalClient, cfg *Config) (*Store, error) {
	s := &store{client: client, cfg: setting.Of(cfg)}
	if err := s.cfg.World.Validate(); err != nil {
		return nil, err
	}
	var check setting.Check
	s.cfg.checkReplicas(&check, client)
	s.cfg.Logger = cmp.Or(s.cfg.Logger, slog.Default())
	if err := redislib.Usable(client); err != nil {
		return nil, err
	}
	var readTimeout time.Duration
	switch c := client.(type) {
	case *redis.ClusterClient:
		readTimeout = c.Options().ReadTimeout
		if err := CheckAddresses(c.Options().Addrs); err != nil && c.Options().ClusterSlots == nil {
			return nil, err
		}
	case *redis.Client:
		readTimeout = c.Options().ReadTimeout
	}
	check.From(time.Second, "TTL", &s.cfg.TTL, fence.DefaultTTL)
	check.From(time.Millisecond, "ConfirmTimeout", &s.cfg.ConfirmTimeout, 200*time.Millisecond)
	check.Refuse(readTimeout > 0 && s.cfg.ConfirmTimeout >= readTimeout, "ConfirmTimeout", s.cfg.ConfirmTimeout,
		"less than the client's ReadTimeout, "+readTimeout.String())
	s.cfg.tuning.PipelineCalls = cmp.Or(s.cfg.tuning.PipelineCalls, 256)
	s.cfg.tuning.PipelineBytes = cmp.Or(s.cfg.tuning.PipelineBytes, 256<<10)
	if check.Err != nil {
		return nil, check.Err
	}
	s.ttl = strconv.FormatInt(s.cfg.TTL.Milliseconds(), 10)
	s.renewals.every = min(s.cfg.TTL/10, time.Second)
	return &Store{s, s, s, s}, nil
}

// failoverClient is the address that go-redis gives to a client that asks sentinels for its master.
const failoverClient = "FailoverClient"

// checkReplicas sets and checks who is to confirm.
func (c *Config) checkReplicas(check *setting.Check, client redis.UniversalClient) {
	check.Refuse(c.AllowNoReplicas && c.MinReplicas != 0, "MinReplicas", c.MinReplicas, "zero with AllowNoReplicas")
	check.Refuse(c.MinReplicas < 0, "MinReplicas", c.MinReplicas, "at least 1, or zero for 1; see AllowNoReplicas")
	check.Refuse(c.Persistence < AppendOnlyFile || c.Persistence > Volatile, "Persistence", c.Persistence,
		"AppendOnlyFile, FailoverFirst, DurableLog or Volatile")
	if c.Persistence == DurableLog {
		check.Refuse(c.MinReplicas != 0 || c.AllowNoReplicas, "Persistence", "DurableLog",
			"DurableLog without MinReplicas and AllowNoReplicas: its log confirms, and no replica")
		return
	}
	if one, ok := client.(*redis.Client); ok && one != nil && one.Options().Addr == failoverClient {
		check.Refuse(c.MinReplicas == 0, "MinReplicas", 0, "how many replicas the master of a fail-over client has: "+
			"outside a cluster, one that is away cannot be seen, and could be promoted without what the others confirmed")
	}
	if !c.AllowNoReplicas {
		c.MinReplicas = cmp.Or(c.MinReplicas, 1)
	}
}

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.client, s.cfg.World, w)
}

// Functions is for packages of this module that call other functions of the library.
func (s *Store) Functions() redislib.Caller { return s.own }

// World is Config.World, of which the name begins every key.
func (s *Store) World() fence.World { return s.own.cfg.World }

// Commit implements fence.Store.
func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	if err := c.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	began := time.Now()
	renew := c.Install || c.Refresh() || s.renewals.due(c.Tile)
	r, err := s.write(ctx, s.commit(&c, renew))
	if err != nil {
		began = time.Time{}
	}
	if renew || err != nil {
		s.renewals.renewed(c.Tile, began)
	}
	return r, err
}

// commit is the call that commits c and, with renew, renews the owner hash's time to live.
func (s *store) commit(c *fence.Commit, renew bool) *call {
	ttl := s.ttl
	if !renew {
		ttl = "0"
	}
	mode, next, frame := "refresh", c.Prev, []byte(nil)
	if !c.Refresh() {
		e := c.Entry()
		mode, next, frame = "append", e.Position, e.Frame
	}
	if c.Install {
		mode = "install"
	}
	k := s.cfg.World.Keys(c.Tile)
	f := &call{request: request{Item: sized(overhead + len(frame)), replicas: c.Replicas},
		op: "commit", tile: c.Tile, epoch: c.Epoch, next: next, install: c.Install, key: k.Owner}
	a := &f.arguments
	if c.Install {
		a.fcall("tilefence_commit_v1", k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead)
	} else {
		a.fcall("tilefence_commit_v1", k.Owner, k.Stream, k.Snapshot)
	}
	a.number(uint64(c.Epoch))
	a.text(c.Contact)
	a.text(mode)
	a.text(c.Prev.String())
	a.text(next.String())
	a.number(uint64(c.Tick))
	a.bytes(frame)
	a.text(ttl)
	return f
}

// Rebase implements fence.Store.
func (s *store) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	if err := r.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	k, e := s.cfg.World.Keys(r.Tile), r.Entry()
	f := &call{request: request{Item: sized(byItself), replicas: r.Replicas},
		op: "rebase", tile: r.Tile, epoch: r.Epoch, next: e.Position, install: true, key: k.Owner}
	a := &f.arguments
	a.fcall("tilefence_rebase_v1", k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead)
	a.text(r.Contact)
	a.text(e.Position.String())
	a.number(uint64(r.Tick))
	a.text(string(e.Frame))
	a.text(string(e.Private)) // the checksum of the blob
	a.bytes(r.Blob)
	a.text(s.ttl)
	if r.Replaces != nil {
		a.text(r.Replaces.String())
	} else {
		a.text("0")
	}
	return s.write(ctx, f)
}

// SaveSnapshot implements fence.Store.
func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	if err := w.Validate(); err != nil {
		return err
	}
	k := s.cfg.World.Keys(w.Tile)
	f := &call{request: request{Item: sized(byItself)}, op: "snapshot", tile: w.Tile, epoch: w.Position.Epoch,
		next: w.Position, key: k.Owner}
	a := &f.arguments
	a.fcall("tilefence_snapshot_v1", k.Owner, k.Stream, k.Snapshot)
	a.text(w.Position.String())
	a.number(uint64(w.Tick))
	a.text(fence.Checksum(w.Blob))
	a.bytes(w.Blob)
	_, err := s.write(ctx, f)
	return err
}

// Owner implements fence.Store.
func (s *store) Owner(ctx context.Context, tile fence.TileID) (fence.Owner, error) {
	if err := guard.Call(ctx, "owner", tile); err != nil {
		return fence.Owner{}, err
	}
	v, err := s.ownerHash(ctx, s.cfg.World.Keys(tile).Owner)
	if err != nil {
		return fence.Owner{}, s.unread(ctx, "owner", tile, err, s.cfg.World.Keys(tile).Owner)
	}
	return redislib.ParseOwner(tile, v)
}

// unread is why a read of keys of a tile failed: a *fence.CorruptError if one of them is of a wrong type.
func (s *store) unread(ctx context.Context, op string, tile fence.TileID, err error, keys ...string) error {
	if err = redislib.ExplainOne(ctx, s.client, tile, err, keys...); errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrNotApplied, Err: err}
}

// ownerHash reads through the queue of the key's master, and through the cluster's client where that fails:
// a read may be repeated.
func (s *store) ownerHash(ctx context.Context, key string) ([]any, error) {
	if !s.cfg.Unpipelined {
		if n, err := s.nodeOf(ctx, key); err == nil {
			cmd := redis.NewSliceCmd(ctx, ownerCommand(key)...)
			r := &request{Cmder: cmd, Item: sized(overhead)}
			if err := n.plain.Do(ctx, r); err != nil {
				return nil, err
			}
			if r.err == nil {
				return cmd.Result()
			}
		}
	}
	return s.client.HMGet(ctx, key, redislib.OwnerFields...).Result()
}

func ownerCommand(key string) []any {
	args := []any{"hmget", key}
	for _, f := range redislib.OwnerFields {
		args = append(args, f)
	}
	return args
}

// maxRenewals bounds what renewals remembers. Past it, all tiles renew once more.
const maxRenewals = 1 << 17

// renewals remembers when the time to live of owner hashes was last renewed. Batches that append leave it as it is for
// a while: renewing it is a fifth of the server's work for a commit, and one that is a second old is as good.
type renewals struct {
	every time.Duration
	mu    sync.Mutex
	at    map[fence.TileID]time.Time
}

// due reports whether a batch has to renew the time to live.
func (r *renewals) due(tile fence.TileID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.at[tile]) >= r.every
}

// renewed notes that the time to live was renewed by a call that began at a time, or, if that is zero, that nothing is
// known of it any more.
func (r *renewals) renewed(tile fence.TileID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil || len(r.at) >= maxRenewals {
		r.at = map[fence.TileID]time.Time{}
	}
	if at.IsZero() {
		delete(r.at, tile)
	} else {
		r.at[tile] = at
	}
}
