package fence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"time"
)

// ClaimID identifies one attempt to own a tile. The authority keeps it in the tile's row, so that a
// claimant whose answer was lost can see whether it won.
type ClaimID [16]byte

// NewClaimID returns a random (version 4) UUID.
func NewClaimID() ClaimID {
	var id ClaimID
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// String returns the UUID in its usual 8-4-4-4-12 form.
func (id ClaimID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// LogValue implements slog.LogValuer with the form of String.
func (id ClaimID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// Claim asks for a tile.
type Claim struct {
	Tile    TileID
	Contact string  // where the claimant will take intents: 1 to MaxContact bytes of UTF-8 without a zero byte
	ID      ClaimID // of this attempt, never zero; a retry is the same Claim again, field for field

	// Expected is the epoch the claimant has seen at the authority: the attempt succeeds only while it is
	// the tile's. Zero stands for a tile without a record.
	Expected Epoch

	// Floor is the highest epoch the claimant knows from elsewhere (owner hash, stream, checkpoint). The
	// minted epoch is above it, so that an authority restored to an older state cannot mint an epoch twice. At most
	// MaxRetired, or 2^20 above Expected: no authority has minted what is higher, so that a number in a store, which
	// others can write to, cannot use up the tile's epochs. Zero: none is known.
	Floor Epoch
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (c *Claim) Validate() error {
	switch {
	case c.Tile == 0:
		return argument("tile", c.Tile, "an H3 index, not zero")
	case c.Contact == "" || len(c.Contact) > MaxContact:
		return argument("contact", c.Contact, "the claimant's address, 1 to 255 bytes")
	case !IsName(c.Contact, MaxContact):
		return argument("contact", c.Contact, "text: UTF-8 without control characters, or others that are not seen")
	case c.ID == ClaimID{}:
		return argument("claim ID", c.ID, "a new UUID for each attempt, see NewClaimID")
	case c.Expected >= MaxNumber:
		return argument("epoch", c.Expected, "below 2^53-1")
	case !c.Floor.Plausible(c.Expected) || c.Floor >= MaxNumber:
		return argument("floor", c.Floor, fmt.Sprintf("at most %d, or 2^20 above the record's epoch %d: no authority "+
			"has minted what a store or a caller shows; see docs/operations.md, An epoch is impossible", MaxRetired,
			c.Expected))
	}
	return nil
}

// Grant is the authority's record of a tile.
type Grant struct {
	Tile    TileID
	Epoch   Epoch   // the fencing token; never reused, never lowered
	Contact string  // the owner's address; empty when the tile was released
	ID      ClaimID // the claim that minted the epoch

	// For people and metrics; no decision rests on them.
	Minted time.Time // when the epoch was minted, by the authority's clock, in UTC
	Mints  int64     // epochs minted since the record was made, so the tile has moved Mints-1 times
}

// Held reports whether the tile has an owner; a released tile keeps its epoch.
func (g Grant) Held() bool { return g.Contact != "" }

// ClaimResult is what Authority.ClaimMany has for one claim: a grant, or an error and the zero Grant.
type ClaimResult struct {
	Grant Grant
	Err   error
}

// MaxList is the most records one call of Authority.List returns, and the most that one call of
// Authority.Retire removes.
const MaxList = 10_000

// MaxRetired is the highest epoch of a record that Authority.Retire removes, and the highest Floor of a claim. A record
// with a higher one owes it to a mistaken Floor: were it removed, every new tile would have to start above it.
const MaxRetired Epoch = 1 << 40

// Bookmark is a place in the order in which an authority has made its records, see Authority.Added. It is text of that
// authority, for no other.
type Bookmark string

// Authority mints epochs, and the identity of its world. It alone decides which process owns a tile, and it is never
// asked on the path
// of a tick. Each mint is one conditional update of the tile's row. Implementations are safe for
// concurrent use. fencetest.RunAuthority states the contract as tests.
//
// # Errors common to all methods
//
// A *ArgumentError: nothing was written. A *StoreError: with ErrNotApplied nothing was written, and
// nothing of this call will be; with ErrUnknownOutcome the answer was lost and could not be found out,
// and the request may even take effect after the error was returned. Resolve it by making the same call
// again. An implementation resolves an ambiguous answer by itself, from the ClaimID in the row, before
// it gives up; it does not outstay ctx to do so. Lookup, List and Added write nothing, so they fail with
// ErrNotApplied only.
//
// # Retries
//
// A ClaimID mints one epoch. Claim and Promote, called again with the same Claim, return the same grant
// for as long as it is the current one, and a *LostError once it was released or superseded. A copy of a
// call that was delayed on its way does nothing once the tile has had another epoch, held or released:
// the epoch it expects is gone for good. (Except for a first claim, which expects no record, if the
// record was retired meanwhile. It then takes the tile, under a new epoch.) The ClaimID of the current
// grant in a call with any other argument that matters is a *ArgumentError: a new attempt takes a new
// ClaimID.
type Authority interface {
	// World is the world that the authority mints for: the name it was given, and the ID that its migration drew. A
	// *WorldError if the records are those of a world with another name, a *StoreError with ErrNotApplied if it cannot
	// be asked.
	World(ctx context.Context) (World, error)

	// Claim takes a tile that is not held, if its epoch is still c.Expected: that of the released record,
	// or zero for a tile without one. It mints max(Expected, Floor) + 1, or more for a tile without a
	// record, which may have had one once (see Retire). Otherwise a *LostError has the record. When that is
	// not held, try again with a new ClaimID and its epoch. ErrNeverOwned when there is no record, but
	// Expected is not zero: try again with zero. A tile whose epochs are used up (its record is at
	// MaxNumber) is a *StoreError with ErrNotApplied.
	Claim(ctx context.Context, c Claim) (Grant, error)

	// ClaimMany makes any number of claims in few round trips and returns their results in the same order.
	// Each has the outcome that Claim could have had for it: they do not stand or fall together, some may
	// have been granted when others are cut off by ctx, and of several claims of one tile one can win.
	ClaimMany(ctx context.Context, claims []Claim) []ClaimResult

	// Promote takes a tile from its owner, alive or not, or one that was released, if its epoch is still
	// c.Expected; otherwise a *LostError has the record (not held when the tile was released). It mints
	// max(Expected, Floor) + 1. ErrNeverOwned when there is no record of the tile, whatever Expected is:
	// Claim it instead.
	Promote(ctx context.Context, c Claim) (Grant, error)

	// Lookup reads a tile's record. ErrNeverOwned when there is none.
	Lookup(ctx context.Context, tile TileID) (Grant, error)

	// Release gives the tile up, keeping its epoch, if g is still the current grant (epoch and ID; nothing
	// else of it matters); if it is not, nothing changes and a *LostError names the holder, and without any
	// record of the tile the error is ErrNeverOwned. In all three cases the tile is no longer the caller's.
	// Releasing twice is no error, until another claim has taken the tile in between.
	Release(ctx context.Context, g Grant) error

	// List returns up to limit records (1 to MaxList), held or not, of the tiles after the given one, in the
	// order of their numbers; zero starts from the beginning, and fewer than limit are the last. It is no
	// snapshot: what moves between two calls may be seen twice or in its later state. With Retire it is the
	// one call that asks every shard of a distributed authority, so it is for operators, never on the path
	// of a claim.
	List(ctx context.Context, after TileID, limit int) ([]Grant, error)

	// Added returns up to limit records (1 to MaxList) that were made since a bookmark, in any order, and the bookmark
	// to go on from; fewer than limit are all there were. So it costs what was added, however many records there are.
	// A record comes at least once, also one that was committed after others that were begun later; that it has changed
	// since does not make it come again.
	//
	// With the empty bookmark Added returns no record, and the bookmark of now: take that, list all records once, and
	// go on from it. An empty bookmark in return says that the authority does not know since, as when it was restored
	// to an older state: begin again. Listing all from time to time finds what was retired, and what a restored
	// authority has added where it had been before.
	Added(ctx context.Context, since Bookmark, limit int) ([]Grant, Bookmark, error)

	// Retire removes up to limit records (1 to MaxList) of tiles that were released at least releasedFor ago,
	// by the authority's clock, and says how many; fewer than limit are all there were, but for those of which a
	// claim is under way, which are left for the next call. Held tiles keep
	// their records for ever, and so do epochs above MaxRetired. No epoch is used again: a tile without a
	// record gets its next epoch above every epoch that was ever removed, of whatever tile. Let releasedFor
	// be longer than any request can be under way. An error may come after some were removed; call again.
	Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error)
}

// Records gives the records of all tiles, in the order of Authority.List, of which it asks for 1,000 at a time. It ends
// with the first error.
func Records(ctx context.Context, a Authority) iter.Seq2[Grant, error] {
	const page = 1000
	return func(yield func(Grant, error) bool) {
		for after := TileID(0); ; {
			grants, err := a.List(ctx, after, page)
			if err != nil {
				yield(Grant{}, err)
				return
			}
			for _, g := range grants {
				if after = g.Tile; !yield(g, nil) {
					return
				}
			}
			if len(grants) < page {
				return
			}
		}
	}
}
