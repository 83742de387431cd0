// Package verdict judges a call to an epoch authority by the tile's row.
//
// Every authority works the same way: one conditional write to the row, then a look at the row as that
// write left it. The look alone decides the caller's outcome, because the row names the claim that minted its
// epoch. A first answer, the answer to a retry, and the answer after a lost connection are therefore one
// and the same judgement, and this package is the one place that makes it:
//
//	row after the write             Claim           Promote        Release
//	none                            ErrNeverOwned*  ErrNeverOwned  ErrNeverOwned
//	minted by this call, held       the grant       the grant      ErrAgain
//	minted by this call, released   LostError       LostError      nil
//	same ClaimID, another call      ArgumentError   ArgumentError  LostError
//	another claim, held             LostError       LostError*     LostError
//	another claim, released         LostError*      LostError*     LostError
//
// (* ErrAgain when the row is as the call expects it: none for a first claim, otherwise at its epoch. For
// Release, "this call" is the grant that is given up.)
//
// The functions are pure and safe for concurrent use, and Authority makes the methods of fence.Authority of them.
// fencetest.RunAuthority tests the judgements.
package verdict

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// ErrAgain means that the row, as it was read, is one the write would have changed: another call changed it
// between the write and the read. Present the same call again. A back end that writes and reads under
// one lock never sees it.
var ErrAgain = errors.New("the row changed between the write and the read")

var errExhausted = errors.New("the tile's epochs are used up: its row is at 2^53-1; check Claim.Floor")

// JudgeClaim judges Authority.Claim. A row with epoch zero stands for no row.
func JudgeClaim(c *fence.Claim, row fence.Grant) (fence.Grant, error) {
	first := c.Expected == 0
	if err := validateRow(&row); err != nil {
		return fence.Grant{}, err
	}
	switch {
	case row.Epoch == 0 && !first:
		return fence.Grant{}, neverOwned(c.Tile)
	case row.Epoch == 0:
		return fence.Grant{}, ErrAgain
	case row.ID == c.ID:
		return own(c, row, row.Epoch == minted(c) || first && row.Epoch > c.Floor)
	case row.Held():
		return fence.Grant{}, &fence.LostError{Tile: c.Tile, Current: row}
	case row.Epoch >= fence.MaxNumber:
		return fence.Grant{}, &fence.StoreError{Op: "claim", Tile: c.Tile, Outcome: fence.ErrNotApplied,
			Err: errExhausted}
	case row.Epoch == c.Expected:
		return fence.Grant{}, ErrAgain
	}
	return fence.Grant{}, &fence.LostError{Tile: c.Tile, Current: row}
}

// judgePromote judges Authority.Promote. A row with epoch zero stands for no row.
func judgePromote(c *fence.Claim, row fence.Grant) (fence.Grant, error) {
	if err := validateRow(&row); err != nil {
		return fence.Grant{}, err
	}
	switch {
	case row.Epoch == 0:
		return fence.Grant{}, neverOwned(c.Tile)
	case row.ID == c.ID:
		return own(c, row, row.Epoch == minted(c))
	case row.Epoch == c.Expected:
		return fence.Grant{}, ErrAgain
	}
	return fence.Grant{}, &fence.LostError{Tile: c.Tile, Current: row}
}

// minted is the epoch that a claim mints if it wins; a first claim may mint a higher one.
func minted(c *fence.Claim) fence.Epoch { return max(c.Expected, c.Floor) + 1 }

// own judges a row that carries the caller's own ClaimID; answers says whether its epoch is one that
// this very call can have minted.
func own(c *fence.Claim, row fence.Grant, answers bool) (fence.Grant, error) {
	switch {
	case !answers, row.Held() && row.Contact != c.Contact:
		return fence.Grant{}, &fence.ArgumentError{Field: "claim ID", Value: c.ID,
			Want: fmt.Sprintf("a new UUID for each attempt: this one minted epoch %d with other arguments",
				row.Epoch)}
	case !row.Held():
		return fence.Grant{}, &fence.LostError{Tile: c.Tile, Current: row}
	}
	return row, nil
}

// judgeRelease judges Authority.Release. A row with epoch zero stands for no row.
func judgeRelease(g *fence.Grant, row fence.Grant) error {
	if err := validateRow(&row); err != nil {
		return err
	}
	switch {
	case row.Epoch == 0:
		return neverOwned(g.Tile)
	case row.Epoch != g.Epoch || row.ID != g.ID:
		return &fence.LostError{Tile: g.Tile, Current: row}
	case row.Held():
		return ErrAgain
	}
	return nil
}

// neverOwned is fence.ErrNeverOwned with the tile's name.
func neverOwned(tile fence.TileID) error {
	return fmt.Errorf("tile %s: %w", tile, fence.ErrNeverOwned)
}

// validateGrant checks the argument of Authority.Release: nil, or a *fence.ArgumentError. The contact
// does not matter: the epoch and the claim name a grant.
func validateGrant(g *fence.Grant) error {
	switch {
	case g.Epoch == 0 || g.Epoch > fence.MaxNumber:
		return &fence.ArgumentError{Field: "epoch", Value: g.Epoch, Want: "the epoch of a grant, from 1 to 2^53-1"}
	case g.ID == fence.ClaimID{}:
		return &fence.ArgumentError{Field: "claim ID", Value: g.ID, Want: "the ClaimID of a grant"}
	}
	return guard.Tile(g.Tile)
}

// validateRow checks a row that was read from a database, which others can write to: nil, or a *fence.CorruptError.
func validateRow(row *fence.Grant) error {
	if row.Epoch <= fence.MaxNumber {
		return nil
	}
	return &fence.CorruptError{Tile: row.Tile, What: "authority's record", At: fence.Position{Epoch: row.Epoch},
		Detail: "its epoch must be from 1 to 2^53-1: see docs/operations.md, An epoch is impossible"}
}

// ValidateLimit checks the limit of Authority.List and Authority.Retire: nil, or a *fence.ArgumentError.
func ValidateLimit(limit int) error {
	if limit < 1 || limit > fence.MaxList {
		return &fence.ArgumentError{Field: "limit", Value: limit,
			Want: fmt.Sprintf("a number of records from 1 to %d", fence.MaxList)}
	}
	return nil
}

// ValidateRetire checks the arguments of Authority.Retire: nil, or a *fence.ArgumentError.
func ValidateRetire(releasedFor time.Duration, limit int) error {
	if releasedFor < 0 {
		return &fence.ArgumentError{Field: "released for", Value: releasedFor, Want: "a duration that is not negative"}
	}
	return ValidateLimit(limit)
}

// Bookmark makes a bookmark of numbers.
func Bookmark(numbers ...uint64) fence.Bookmark {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.FormatUint(n, 10)
	}
	return fence.Bookmark(strings.Join(words, " "))
}

// ParseBookmark reads what Bookmark has made of some numbers, the count of which must be among counts; otherwise the
// error is a *fence.ArgumentError.
func ParseBookmark(b fence.Bookmark, counts ...int) ([]uint64, error) {
	var numbers []uint64
	for word := range strings.SplitSeq(string(b), " ") {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			numbers = nil
			break
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 || !slices.Contains(counts, len(numbers)) {
		return nil, &fence.ArgumentError{Field: "bookmark", Value: b, Want: "what this authority's Added has returned"}
	}
	return numbers, nil
}

// Span is a range of tiles as a database keeps them, as signed numbers: First and Last belong to it.
type Span struct{ First, Last int64 }

// SpansAfter are the tiles after one, in order. There are two spans when the order of tiles crosses from
// positive to negative numbers, one otherwise, and none after the last tile.
func SpansAfter(after fence.TileID) []Span {
	positive, negative := Span{int64(after + 1), math.MaxInt64}, Span{math.MinInt64, -1}
	switch {
	case after == math.MaxUint64:
		return nil
	case after >= math.MaxInt64:
		negative.First = positive.First
		return []Span{negative}
	}
	return []Span{positive, negative}
}
