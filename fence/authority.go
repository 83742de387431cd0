package fence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"unicode/utf8"
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
	Contact string  // where the claimant will take intents: 1 to MaxContact bytes of UTF-8 without a zero byte
	ID      ClaimID // of this attempt, never zero; a retry is the same Claim again, field for field

	// Expected is the epoch the claimant takes over from; Promote succeeds only while it is current.
	// Claim ignores it.
	Expected Epoch

	// Above is the highest epoch seen anywhere else (owner hash, stream, checkpoint). The minted epoch is
	// above it, so that an authority restored to an older state cannot mint an epoch twice. Zero when
	// nothing was seen.
	Above Epoch
}

// Validate checks the arguments without any I/O: nil, or an *ArgumentError.
func (c *Claim) Validate() error {
	switch {
	case c.Tile == 0:
		return argument("tile", c.Tile, "an H3 index, not zero")
	case c.Contact == "" || len(c.Contact) > MaxContact:
		return argument("contact", c.Contact, "the claimant's address, 1 to 255 bytes")
	case !utf8.ValidString(c.Contact) || strings.ContainsRune(c.Contact, 0):
		return argument("contact", c.Contact, "text: valid UTF-8 without a zero byte, which databases refuse")
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
// # Errors common to all methods
//
// A *ArgumentError: nothing was written. A *StoreError: with ErrNotApplied nothing was written, and
// nothing of this call will be; with ErrUnknownOutcome the answer was lost and could not be found out,
// and the request may even take effect after the error was returned. Resolve it by making the same call
// again. An implementation resolves an ambiguous answer by itself, from the ClaimID in the row, before
// it gives up; it does not outstay ctx to do so. Lookup writes nothing, so it fails with ErrNotApplied
// only.
//
// # Retries
//
// A ClaimID mints one epoch. Claim and Promote, called again with the same Claim, return the same grant
// for as long as it is the current one, and a *LostError once it was released or superseded. The ClaimID
// of the current grant in a call with any other argument that matters is a *ArgumentError. The row
// remembers one claim only: a Claim whose grant was superseded and then released by the successor is
// taken for a new attempt. So do not retry an attempt whose answer has arrived.
type Authority interface {
	// Claim takes a tile that nobody holds: never owned, or released. It mints
	// max(row's epoch, Above) + 1. A *LostError names the holder otherwise; its Current is not held only
	// when the claim's own grant has been released. A tile whose epochs are used up (its row is at
	// MaxNumber) is a *StoreError with ErrNotApplied.
	Claim(ctx context.Context, c Claim) (Grant, error)

	// Promote takes a tile from its owner, alive or not, or one that was released, if its epoch is still
	// c.Expected; otherwise a *LostError names the holder (an empty contact when it was released). It
	// mints max(Expected, Above) + 1. ErrNeverOwned when there is no record of the tile, whatever
	// Expected is: Claim it instead.
	Promote(ctx context.Context, c Claim) (Grant, error)

	// Lookup reads a tile's record. ErrNeverOwned when there is none.
	Lookup(ctx context.Context, tile TileID) (Grant, error)

	// Release gives the tile up, keeping its epoch, if g is still the current grant (epoch and ID; the
	// contact does not matter); if it is not, nothing changes and a *LostError names the holder, and
	// without any record of the tile the error is ErrNeverOwned. In all three cases the tile is no longer
	// the caller's. Releasing twice is no error, until somebody else has claimed the tile in between.
	Release(ctx context.Context, g Grant) error
}
