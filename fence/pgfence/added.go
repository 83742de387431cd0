package pgfence

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// A pass reads the records that some transactions have made, a page at a time. Each record has the number of its
// transaction, and transactions end in another order than they have begun. But below the horizon of a snapshot, its
// xmin, all have ended; and what they made, a later snapshot shows. So the next pass begins at the horizon that was
// read before the first page of this one: what this one has not seen is of a transaction that had not ended then, whose
// number is not below it. What it has seen from there on comes again.
//
// The bookmark of a pass that is to begin is the number of its first transaction. Within a pass it is where the next
// pass begins, and the transaction and the tile of the last record.
type pass struct {
	next  uint64 // where the next pass begins; zero: not known yet
	after uint64 // transaction of the record before
	tile  int64  // its tile
}

func parsePass(b fence.Bookmark) (pass, error) {
	n, err := verdict.ParseBookmark(b, 1, 3)
	switch {
	case err != nil:
		return pass{}, err
	case len(n) == 1 && n[0] > 0:
		return pass{after: n[0] - 1, tile: math.MaxInt64}, nil
	case len(n) == 1:
		return pass{}, &fence.ArgumentError{Field: "bookmark", Value: b, Want: "what Added has returned, not zero"}
	}
	return pass{next: n[0], after: n[1], tile: int64(n[2])}, nil //nolint:gosec // its 64 bits
}

// Added returns the records that were made since a bookmark; see fence.Authority. A transaction that stays open, of
// whatever session, has records that were made after it began come again with every pass.
//
// The numbers of transactions are those of one server. Where the table is on several, and after a failover to a standby
// that lacked commits, records may be missed, which a list of all finds.
func (a *authority) Added(
	ctx context.Context, since fence.Bookmark, limit int,
) (grants []fence.Grant, next fence.Bookmark, err error) {
	if err := verdict.ValidateLimit(limit); err != nil {
		return nil, "", err
	}
	begin := pass{}
	if since != "" {
		if begin, err = parsePass(since); err != nil {
			return nil, "", err
		}
	}
	fail := a.transact(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		grants, next = nil, ""
		lowest, highest, err := a.horizon(ctx, conn)
		switch {
		case err != nil, begin.after >= highest || begin.next > highest:
			return err // the server has forgotten transactions: it was restored to an older state
		case since == "":
			next = verdict.Bookmark(lowest)
			return nil
		}
		p := begin
		if p.next == 0 {
			p.next = lowest
		}
		if grants, err = a.page(ctx, conn, &p, highest, limit); err != nil {
			return err
		}
		if next = verdict.Bookmark(p.next); len(grants) == limit {
			next = verdict.Bookmark(p.next, p.after, uint64(p.tile)) //nolint:gosec // its 64 bits
		}
		return nil
	})
	if fail != nil {
		return nil, "", &fence.StoreError{Op: "list", Outcome: fence.ErrNotApplied, Err: a.hint(fail.cause)}
	}
	return grants, next, nil
}

// horizon reads the transaction below which all have ended, and that from which on none has begun.
func (a *authority) horizon(ctx context.Context, conn *pgxpool.Conn) (lowest, highest uint64, err error) {
	var low, high string
	if err := conn.QueryRow(ctx, a.sql.horizon).Scan(&low, &high); err != nil {
		return 0, 0, err
	}
	if lowest, err = strconv.ParseUint(low, 10, 63); err == nil {
		highest, err = strconv.ParseUint(high, 10, 63)
	}
	return lowest, highest, err
}

// page reads the next records of a pass, and moves it on.
func (a *authority) page(
	ctx context.Context, conn *pgxpool.Conn, p *pass, highest uint64, limit int,
) ([]fence.Grant, error) {
	rows, err := conn.Query(ctx, a.sql.added, strconv.FormatUint(p.after, 10), p.tile,
		strconv.FormatUint(highest, 10), limit)
	if err != nil {
		return nil, err
	}
	var last string
	grants, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (fence.Grant, error) { return scan(r, &last) })
	if err != nil || len(grants) == 0 {
		return nil, err
	}
	p.tile = int64(grants[len(grants)-1].Tile)
	p.after, err = strconv.ParseUint(last, 10, 63)
	return grants, err
}
