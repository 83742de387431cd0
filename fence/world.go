package fence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
)

// maxName is how many bytes the name of a world has at most.
const maxName = 32

// World names a deployment: a game, or one of its stages. Worlds may share servers and never mix. The name of a world
// begins every key and channel that its processes use; the ID tells two worlds of one name apart.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	authority, err := pgfence.New(pool, &pgfence.Config{World: "staging"})
//	err = authority.Migrate(ctx) // mints the ID
//	world, err := authority.World(ctx)
//	client := redis.NewClusterClient(redisfence.Options("10.0.0.1:6379"))
//	store, err := redisfence.New(client, &redisfence.Config{World: world})
//	err = store.Load(ctx) // a *WorldError if the servers belong to another world of this name
//
// The zero World has no name: its keys are those of deployments from before there were worlds.
type World struct {
	// Name is up to 32 lower-case letters, digits and hyphens, the first a letter; or empty.
	Name string
	// ID is minted once, by the authority of the world. Zero: not known, as in a process that has no authority.
	ID WorldID
}

// WorldID is the identity of a world, drawn at random.
type WorldID [16]byte

// NewWorldID draws an identity. Authorities mint with it.
func NewWorldID() WorldID {
	var id WorldID
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
	return id
}

// IsZero reports whether the identity is not known.
func (id WorldID) IsZero() bool { return id == WorldID{} }

// String returns the identity as 32 lower-case hexadecimal digits, its form in the stores.
func (id WorldID) String() string { return hex.EncodeToString(id[:]) }

// LogValue implements slog.LogValuer with the form of String.
func (id WorldID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// ParseWorldID reads the form String writes, of an identity that is known.
func ParseWorldID(s string) (WorldID, error) {
	var id WorldID
	n, err := hex.Decode(id[:], []byte(s[:min(len(s), 2*len(id))]))
	if err != nil || n != len(id) || id.String() != s || id.IsZero() {
		return WorldID{}, argument("world ID", s, "32 lower-case hexadecimal digits, not all zero")
	}
	return id, nil
}

// Validate checks the name: nil, or an *ArgumentError.
func (w World) Validate() error {
	for i, r := range w.Name {
		letter := 'a' <= r && r <= 'z'
		if i >= maxName || !letter && (i == 0 || r != '-' && (r < '0' || '9' < r)) {
			return argument("World", w.Name,
				"up to 32 lower-case letters, digits and hyphens, the first a letter, or an empty name")
		}
	}
	return nil
}

// String returns the name in quotes, and the identity if it is known.
func (w World) String() string {
	if w.ID.IsZero() {
		return fmt.Sprintf("%q", w.Name)
	}
	return fmt.Sprintf("%q (%s)", w.Name, w.ID)
}

// LogValue implements slog.LogValuer with the form of String.
func (w World) LogValue() slog.Value { return slog.StringValue(w.String()) }

// Key returns the world's form of a key or channel: behind the name and a colon, or as it is if the world has no name.
// A name holds no brace, so the key keeps its hash tag, and with it its slot. It allocates if the world has a name.
func (w World) Key(key string) string {
	if w.Name == "" {
		return key
	}
	return w.Name + ":" + key
}

// WorldRecord is the key under which a Redis server keeps the ID of a world, as World.Key writes it. It is part of the
// wire contract (docs/wire.md).
const WorldRecord = "{tilefence:world}"

// WorldKeeper is a back end that keeps, beside its data, to which world they belong. The servers of the root package
// ask each of theirs when they start, and every minute.
type WorldKeeper interface {
	// EnterWorld returns the world of the back end: its name as it is configured, its ID as it is recorded, zero if
	// none is. If w.ID is known and no ID is recorded, w.ID is recorded, in one conditional write; a caller
	// that may only read leaves that to others. A *WorldError, and nothing is changed, if the back end belongs to
	// another world than w. The zero World is compared with nothing, and an ID that is not known neither.
	// Other errors: a *StoreError if the back end cannot be asked, a *CorruptError if the record cannot be read.
	EnterWorld(ctx context.Context, w World) (World, error)
}

// ErrWorld: a back end belongs to another world. A *WorldError says which.
var ErrWorld = errors.New("belongs to another world")

// WorldError is a back end that belongs to another world than the process that was given it.
type WorldError struct {
	Store  string // the back end
	Record string // what keeps its world: the key, the table, the file
	Want   World  // of the process
	Found  World  // of the back end
}

func (e *WorldError) Error() string {
	s := fmt.Sprintf("%s %v, %v; this process is of %v: ", e.Store, ErrWorld, e.Found, e.Want)
	if e.Found.Name != e.Want.Name {
		return s + "give all back ends of a process one name, and this process the servers of its world (the record " +
			"is " + e.Record + ")"
	}
	return s + "give this process the servers of its own world, or give the two worlds different names; only if the " +
		"authority was made anew for the data of this world, remove the record, " + e.Record
}

// Is matches ErrWorld.
func (e *WorldError) Is(target error) bool { return target == ErrWorld }

// Compare returns the *WorldError of a back end that belongs to found, given a process of w, or nil. record is what
// keeps the world of the back end. It is for implementations of WorldKeeper.
func (w World) Compare(store, record string, found World) error {
	names := w.Name != found.Name && w != World{}
	ids := w.ID != found.ID && !w.ID.IsZero() && !found.ID.IsZero()
	if !names && !ids {
		return nil
	}
	return &WorldError{Store: store, Record: record, Want: w, Found: found}
}

// Keys of a tile in the coordination store. All share the hash tag {tile:X}, so they lie in one slot
// and one function call may touch them together. They are part of the wire contract (docs/wire.md).
type Keys struct {
	Owner    string // hash with a time to live: epoch, contact, seq, chain, tick
	Stream   string // stream: one entry a committed batch, id <seq>-0
	Snapshot string // hash: the last snapshot
	Marks    string // hash: the consumers' watermarks
	Dead     string // stream: entries the bridge could not decode
}

// KeysOf returns the keys of a tile in the world without a name; see World.Keys.
func KeysOf(t TileID) Keys { return World{}.Keys(t) }

// Keys returns the keys of a tile in the world. The hash tag is that of the tile alone.
func (w World) Keys(t TileID) Keys {
	var room [len("{tile:ffffffffffffffff}:") + maxName + 1]byte
	b := room[:0]
	if w.Name != "" {
		b = append(append(b, w.Name...), ':')
	}
	b = append(strconv.AppendUint(append(b, "{tile:"...), uint64(t), 16), "}:"...)
	p := string(b)
	all := p + "owner" + p + "stream" + p + "snapshot" + p + "marks" + p + "dead" // one allocation for all of them
	next := func(name string) string {
		key := all[:len(p)+len(name)]
		all = all[len(key):]
		return key
	}
	return Keys{Owner: next("owner"), Stream: next("stream"), Snapshot: next("snapshot"), Marks: next("marks"),
		Dead: next("dead")}
}

// Channel is the channel on which the frames of a tile are published, in the world.
func (w World) Channel(t TileID) string {
	if w.Name == "" {
		return "{tile:" + t.String() + "}:frames"
	}
	return w.Name + ":{tile:" + t.String() + "}:frames"
}
