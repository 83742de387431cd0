package fence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// Claim asks for a tile.
type Claim struct {
	Tile    TileID
	Contact string  // where the claimant will take intents; never empty
	ID      ClaimID // of this attempt; a retry of the same attempt carries the same one; never zero

	// Expected is the epoch the claimant takes over from; Promote succeeds only while it is current.
	// Claim ignores it.
	Expected Epoch

	// Above is the highest epoch seen anywhere else (owner hash, stream, checkpoint). The minted epoch is
	// above it, so that an authority restored to an older state cannot mint an epoch twice.
	Above Epoch
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (c *Claim) Validate() error {
	switch {
	case c.Tile == 0:
		return argument("tile", c.Tile, "an H3 index, not zero")
	case c.Contact == "" || len(c.Contact) > MaxContact:
		return argument("contact", c.Contact, "the claimant's address, 1 to 255 bytes")
	case c.ID == ClaimID{}:
		return argument("claim ID", c.ID, "a new UUID for each attempt, see NewClaimID")
	case c.Expected >= MaxNumber || c.Above >= MaxNumber:
		return argument("epoch", max(c.Expected, c.Above), "below 2^53-1")
	}
	return nil
}

// Grant is the authority's record of a tile.
type Grant struct {
	Tile    TileID
	Epoch   Epoch   // the fencing token; never reused, never lowered
	Contact string  // the owner's address; empty when the tile was released
	ID      ClaimID // the claim that minted the epoch
}

// Held reports whether somebody owns the tile; a released tile keeps its epoch.
func (g Grant) Held() bool { return g.Contact != "" }

// Authority mints epochs. It is the only arbiter of who owns a tile, and it is never asked on the path
// of a tick. Each mint is one conditional update of the tile's row. Implementations are safe for
// concurrent use. fencetest.RunAuthority states the contract as tests.
//
// Errors common to all methods: a *ArgumentError; a *StoreError with ErrNotApplied when nothing was
// sent, or ErrUnknownOutcome when the answer was lost and could not be read back. An implementation
// resolves an ambiguous answer by reading the row's ClaimID before it gives up.
type Authority interface {
	// Claim takes a tile that nobody holds: never owned, or released. It mints
	// max(row's epoch, Above) + 1. A *LostError names the holder otherwise. Claiming again with the ClaimID that
	// already holds the tile returns the same grant.
	Claim(ctx context.Context, c Claim) (Grant, error)

	// Promote takes a tile from its owner, alive or not, if its epoch is still c.Expected; otherwise a
	// *LostError names the holder (an empty contact when it was released). It mints
	// max(Expected, Above) + 1. Promoting again with the ClaimID that already won returns the same grant.
	Promote(ctx context.Context, c Claim) (Grant, error)

	// Lookup reads a tile's record. ErrNeverOwned when there is none.
	Lookup(ctx context.Context, tile TileID) (Grant, error)

	// Release gives the tile up, keeping its epoch, if g is still the current grant; if it is not,
	// nothing changes and a *LostError names the holder. Releasing twice is no error.
	Release(ctx context.Context, g Grant) error
}
