package fence

import (
	"context" //nolint:gosec // a checksum against damage, not against an attacker
	"time"
)

// Limits of one call. They keep the work of a store function constant: a function that writes cannot be
// interrupted, so it must not be able to run long.
const (
	MaxPayload  = 1 << 20  // bytes of one batch, both parts
	MaxSnapshot = 16 << 20 // bytes of one snapshot
	MaxContact  = 255      // bytes of a contact
)

// DefaultTTL is how long an owner hash outlives the last tick that refreshed it.
const DefaultTTL = 30 * time.Second

// AllReplicas means every replica the shard has, as a number of replicas to wait for.
const AllReplicas = -1

// Commit is one batch presented under an epoch. Once presented it must not change until its fate is
// known: presenting the same value again is safe, and is how an unknown outcome is resolved.
type Commit struct {
	Tile    TileID
	Epoch   Epoch     // fencing token
	Contact string    // where this owner takes intents; never empty
	Prev    Position  // the position this batch follows
	Tick    Tick      // the tick that produced it; under one epoch the owner hash keeps the highest it has seen
	At      time.Time // when the owner formed the batch, by its own clock; milliseconds count. Zero: unknown

	// Payload is what watchers are sent, Private what only owners read. Both are opaque to the fence and at most
	// MaxPayload bytes together. With both empty and Install unset the commit appends nothing: it is a refresh.
	Payload []byte
	Private []byte

	// Install marks a claim the authority has confirmed since the owner last served. Only an install may
	// raise the owner's epoch or bring back an owner hash that has expired, and it always appends.
	Install bool

	// Replicas is how many replicas must hold the batch before Commit succeeds: zero for the master's
	// word alone, AllReplicas for every one. Too few in time is ErrUnconfirmed.
	Replicas int
}

// Refresh reports whether the commit appends nothing and only refreshes the owner hash.
func (c *Commit) Refresh() bool { return len(c.Payload) == 0 && len(c.Private) == 0 && !c.Install }

// Entry is the entry that the commit appends, encoded. The commit must be valid and no refresh.
func (c *Commit) Entry() Entry {
	e := c.entry()
	e.seal()
	return e
}

func (c *Commit) entry() Entry {
	return Entry{Tile: c.Tile, Kind: KindBatch, Position: Position{Epoch: c.Epoch, Seq: c.Prev.Seq + 1}, Prev: c.Prev,
		Tick: c.Tick, At: c.At, Payload: c.Payload, Private: c.Private}
}

// Next is the position the batch takes if it is appended. A refresh stays where it is.
func (c *Commit) Next() Position {
	if c.Refresh() {
		return c.Prev
	}
	e := c.entry()
	e.Chain = e.chain()
	return e.Position
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (c *Commit) Validate() error {
	if err := validateWriter(c.Tile, c.Epoch, c.Contact, c.Tick); err != nil {
		return err
	}
	switch {
	case c.Prev.Epoch > c.Epoch:
		return argument("prev", c.Prev, "a position whose epoch is not above the commit's")
	case c.Prev.Seq >= MaxNumber:
		return argument("prev", c.Prev, "a sequence below 2^53-1")
	case len(c.Payload)+len(c.Private) > MaxPayload:
		return argument("payload", len(c.Payload)+len(c.Private),
			"at most 1048576 bytes with the private part; split the tick's work or shrink its events")
	case !validTime(c.At):
		return argument("at", c.At, "the time the batch was formed, from 1970 on, or zero")
	case c.Replicas < AllReplicas:
		return argument("replicas", c.Replicas, "AllReplicas, zero or a count")
	}
	return nil
}

// Receipt is the answer to a commit or rebase that succeeded.
type Receipt struct {
	Position  Position // where the tile's history now ends
	Duplicate bool     // the batch was already there: this is the first answer again
	Replicas  int      // replicas known to hold it
}

// CommitFn commits one batch. It stands between a tile's tick loop and the store:
// Store.Commit is one, and a wrapper that writes through to a durable log is another.
//
// Errors: a *RefusedError when the store refused it (nothing written; errors.Is tells ErrStale,
// ErrReplay, ErrBehind, ErrForked and ErrNoOwner apart); an *UnconfirmedError when it is on the master but not
// on enough replicas; a *StoreError with ErrNotApplied or ErrUnknownOutcome when the store could not be
// asked: present the same commit again after these two; a *CorruptError when what the store holds of the
// tile cannot be read (nothing written; an operator has to look); an *ArgumentError for a malformed commit.
type CommitFn func(ctx context.Context, c Commit) (Receipt, error)

// Rebase installs an owner from state instead of from the stream: it creates a tile (genesis), restores
// one after the coordination store was lost, or heals a fork. Snapshot, marker entry, sequence jump and
// new owner are one atomic step, and whatever the stream held before no longer counts.
type Rebase struct {
	Tile     TileID
	Epoch    Epoch  // above every epoch the store knows for the tile
	Contact  string // never empty
	Seq      Seq    // the marker's sequence: above the stream's last; see RebaseJump
	Tick     Tick
	At       time.Time // as in Commit
	Blob     []byte    // the tile's whole state, at most MaxSnapshot bytes
	Replicas int       // as in Commit

	// Replaces is where the history ends that the rebase replaces, as the owner has seen it; the zero Position: the
	// store has nothing of the tile. If the store's history ends elsewhere, the rebase is refused with ErrBehind, for
	// it would void entries that its owner has not seen: another owner has committed meanwhile, or the owner
	// had asked a node that is behind, such as a paused master that woke. nil: whatever the store has.
	Replaces *Position
}

// RebaseJump is how far above the highest sequence it knows an owner rebases a tile that has lost
// entries: more than it could have committed unseen. At two ticks a second it is 35 minutes of play.
const RebaseJump = 4096

// Entry is the marker entry, encoded: its private part is the snapshot's checksum.
func (r *Rebase) Entry() Entry {
	e := r.entry()
	e.seal()
	return e
}

func (r *Rebase) entry() Entry {
	return Entry{Tile: r.Tile, Kind: KindRebase, Position: Position{Epoch: r.Epoch, Seq: r.Seq}, Tick: r.Tick, At: r.At,
		Private: []byte(Checksum(r.Blob))}
}

// Next is the position the rebase takes.
func (r *Rebase) Next() Position {
	e := r.entry()
	e.Chain = e.chain()
	return e.Position
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (r *Rebase) Validate() error {
	if err := validateWriter(r.Tile, r.Epoch, r.Contact, r.Tick); err != nil {
		return err
	}
	switch {
	case r.Seq == 0 || r.Seq > MaxNumber:
		return argument("seq", r.Seq, "from 1 to 2^53-1")
	case r.Replaces != nil && (r.Replaces.Epoch > MaxNumber || r.Replaces.Seq > MaxNumber):
		return argument("replaces", r.Replaces, "a position that a store has answered, or zero")
	case len(r.Blob) > MaxSnapshot:
		return argument("blob", len(r.Blob), "at most 16777216 bytes")
	case !validTime(r.At):
		return argument("at", r.At, "the time the rebase was formed, from 1970 on, or zero")
	case r.Replicas < AllReplicas:
		return argument("replicas", r.Replicas, "AllReplicas, zero or a count")
	}
	return nil
}

// SnapshotWrite is a snapshot presented by a tile's owner.
type SnapshotWrite struct {
	Tile     TileID
	Position Position // a position in the stream; Position.Epoch is the writer's epoch
	Tick     Tick     // not above the owner hash's tick
	Blob     []byte   // at most MaxSnapshot bytes
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (s *SnapshotWrite) Validate() error {
	switch {
	case s.Tile == 0:
		return argument("tile", s.Tile, "an H3 index, not zero")
	case s.Position.Epoch == 0 || s.Position.Epoch > MaxNumber || s.Position.Seq == 0 || s.Position.Seq > MaxNumber:
		return argument("position", s.Position, "a committed position")
	case s.Tick > MaxNumber:
		return argument("tick", s.Tick, "at most 2^53-1")
	case len(s.Blob) > MaxSnapshot:
		return argument("blob", len(s.Blob), "at most 16777216 bytes")
	}
	return nil
}

// Store is the coordination store as a writer sees it. Every write is one atomic step on one tile and
// carries its fencing token; there is no way to write without one. Implementations are safe for
// concurrent use. fencetest.RunStore states the contract as tests.
type Store interface {
	// Commit appends a batch, or refreshes the owner hash. See CommitFn for its errors.
	Commit(ctx context.Context, c Commit) (Receipt, error)

	// Rebase installs an owner from state. Refused with ErrStale when the epoch is not above every epoch
	// the store knows, with ErrBehind when the sequence is not above the stream's last, or
	// the history does not end where Replaces says. Other errors as for CommitFn.
	Rebase(ctx context.Context, r Rebase) (Receipt, error)

	// SaveSnapshot replaces the tile's snapshot. Refused with ErrStale or ErrNoOwner when the writer is
	// not the owner, ErrRegress when a later snapshot exists (a higher sequence, or the same at a higher
	// tick), ErrUncommitted when the position is not in the stream or the tick was never committed,
	// ErrChecksum when the blob was damaged on its way. An identical snapshot saved twice succeeds twice.
	// Other errors as for CommitFn.
	SaveSnapshot(ctx context.Context, s SnapshotWrite) error

	// Owner reads the owner hash. A tile without one gives an Owner that is not Present, and no error. A
	// *CorruptError when it cannot be read, a *StoreError with ErrNotApplied when the store cannot be asked.
	Owner(ctx context.Context, tile TileID) (Owner, error)

	// Confirm returns nil once all replicas have the tile's history up to at, a position that a reader was shown, such
	// as the end of what stream.Recover returns. It writes nothing, may take seconds, and is for readers: owners
	// have Commit.Replicas. Errors: an *UnconfirmedError when the replicas do not report it in time, or the stream does
	// not hold at, any more or at all; a *StoreError with ErrNotApplied when the store cannot be asked.
	Confirm(ctx context.Context, tile TileID, at Position) error
}

// validTime reports whether the wire can hold a time: zero, or from 1970 on and below 2^53 milliseconds.
func validTime(t time.Time) bool {
	return t.IsZero() || t.UnixMilli() > 0 && t.UnixMilli() <= MaxNumber
}

func validateWriter(tile TileID, epoch Epoch, contact string, tick Tick) error {
	switch {
	case tile == 0:
		return argument("tile", tile, "an H3 index, not zero")
	case epoch == 0 || epoch > MaxNumber:
		return argument("epoch", epoch, "from 1 to 2^53-1, as minted by the authority")
	case contact == "" || len(contact) > MaxContact:
		return argument("contact", contact,
			"the owner's address, 1 to 255 bytes: a rejected writer is told where to go")
	case tick > MaxNumber:
		return argument("tick", tick, "at most 2^53-1")
	}
	return nil
}

// Checker is a back end whose servers can lack what it needs: their settings, their version, a function library, the
// number of their replicas.
type Checker interface {
	// Check returns what is wrong with the back end's servers: each error names one, and says what is wrong and what to
	// do. It is called every second, and asks the servers again when they have changed, every five seconds while
	// something is wrong, and every minute. A server that does not answer is not judged. It stops nothing.
	Check(ctx context.Context) []error
}
