package sqlitefence

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Authority mints epochs in an SQLite database: a fence.Authority, with the failures that the package comment names.
// Create one with Open. It is safe for concurrent use.
type Authority struct {
	fence.Authority
	own *authority
}

type authority struct {
	methods
	db   *sqlitedb.DB
	name string // of its world
}

// methods are Claim, Promote, Lookup and Release.
type methods = verdict.Authority

// maxSet is how many claims of ClaimMany are one transaction. Others wait for the file meanwhile.
const maxSet = 500

// ClaimMany makes claims in the order they have, some hundred to a transaction; see fence.Authority. When
// one of them is refused by the database, so is the rest of its transaction.
func (a *authority) ClaimMany(ctx context.Context, claims []fence.Claim) []fence.ClaimResult {
	results := make([]fence.ClaimResult, len(claims))
	for done := 0; done < len(claims); done += maxSet {
		end := min(done+maxSet, len(claims))
		a.claimSet(ctx, claims[done:end], results[done:end])
	}
	return results
}

// claimSet makes some claims in one transaction.
func (a *authority) claimSet(ctx context.Context, claims []fence.Claim, results []fence.ClaimResult) {
	rows := make([]fence.Grant, len(claims))
	for i := range claims {
		results[i].Err = claims[i].Validate()
	}
	failed := a.db.Write(ctx, "claim", 0, func(tx *sqlitedb.Tx) (err error) {
		for i := range claims {
			if results[i].Err != nil {
				continue
			}
			if rows[i], err = apply(tx, verdict.Claiming(&claims[i])); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range claims {
		switch {
		case results[i].Err != nil:
		case failed != nil:
			results[i].Err = ofTile(failed, claims[i].Tile)
		default:
			results[i].Grant, results[i].Err = verdict.JudgeClaim(&claims[i], rows[i])
		}
	}
}

// ofTile gives an error of a set of claims the tile of one.
func ofTile(err error, tile fence.TileID) error {
	if e, ok := errors.AsType[*fence.StoreError](err); ok {
		return &fence.StoreError{Op: e.Op, Tile: tile, Outcome: e.Outcome, Err: e.Err}
	}
	return err
}

// List returns the records of the tiles after one; see fence.Authority.
func (a *authority) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
	if err := verdict.ValidateLimit(limit); err != nil {
		return nil, err
	}
	var grants []fence.Grant
	err := a.db.Read(ctx, "list", 0, func(tx *sqlitedb.Tx) error {
		grants = nil
		for _, span := range verdict.SpansAfter(after) {
			if err := listSpan(tx, span, limit-len(grants), &grants); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Added returns the records made since a bookmark, which is how many had been made; see fence.Authority.
func (a *authority) Added(
	ctx context.Context, since fence.Bookmark, limit int,
) (grants []fence.Grant, next fence.Bookmark, err error) {
	if err := verdict.ValidateLimit(limit); err != nil {
		return nil, "", err
	}
	if since == "" {
		var made uint64
		err := a.db.Read(ctx, "list", 0, func(tx *sqlitedb.Tx) error {
			_, err := tx.Row(count, nil, &made)
			return err
		})
		return nil, verdict.Bookmark(made), err
	}
	n, err := verdict.ParseBookmark(since, 1)
	if err != nil {
		return nil, "", err
	}
	err = a.db.Read(ctx, "list", 0, func(tx *sqlitedb.Tx) (err error) {
		var last uint64
		var known bool
		if grants, last, known, err = addedAfter(tx, n[0], limit); known {
			next = verdict.Bookmark(last)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return grants, next, nil
}

// Retire removes records of tiles released long ago, in one transaction; see fence.Authority. To find them
// it reads the whole table.
func (a *authority) Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error) {
	if err := verdict.ValidateRetire(releasedFor, limit); err != nil {
		return 0, err
	}
	retired := 0
	err := a.db.Write(ctx, "retire", 0, func(tx *sqlitedb.Tx) (err error) {
		retired, err = retireRows(tx, releasedFor, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return retired, nil
}

// Close waits for the call in progress and closes the database; a database in memory is gone with it.
// Calls made later fail with fence.ErrNotApplied. Closing twice is no error.
func (a *Authority) Close() error { return a.own.db.Close() }
