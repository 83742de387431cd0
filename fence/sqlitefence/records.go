package sqlitefence

import (
	"context"
	"database/sql"
	_ "embed"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// The statements.
var (
	//go:embed sql/claim_new.sql
	claimNew string
	//go:embed sql/claim_released.sql
	claimReleased string
	//go:embed sql/promote.sql
	promote string
	//go:embed sql/release.sql
	release string
	//go:embed sql/read.sql
	read string
	//go:embed sql/list.sql
	list string
	//go:embed sql/added.sql
	added string
	//go:embed sql/count.sql
	count string
	//go:embed sql/retirable.sql
	retirable string
	//go:embed sql/raise_floor.sql
	raiseFloor string
	//go:embed sql/retire.sql
	retire string
)

// present carries out a call, as one transaction, and returns the row it left (epoch zero for none), or a
// *fence.StoreError.
func (a *authority) present(ctx context.Context, c verdict.Call) (row fence.Grant, err error) {
	run := a.db.Write
	if c.Kind == verdict.Lookup {
		run = a.db.Read
	}
	err = run(ctx, c.String(), c.Tile, func(tx *sqlitedb.Tx) (err error) {
		row, err = apply(tx, c)
		return err
	})
	return row, err
}

func apply(tx *sqlitedb.Tx, c verdict.Call) (row fence.Grant, err error) {
	tile, floor, expected := int64(c.Tile), int64(c.Floor), int64(c.Expected)
	switch c.Kind {
	case verdict.ClaimNew:
		_, err = tx.Exec(claimNew, tile, floor, c.Contact, c.ID[:])
	case verdict.ClaimReleased:
		_, err = tx.Exec(claimReleased, tile, floor, c.Contact, c.ID[:], expected)
	case verdict.Promote:
		_, err = tx.Exec(promote, tile, floor, c.Contact, c.ID[:], expected)
	case verdict.Release:
		_, err = tx.Exec(release, tile, expected, c.ID[:])
	}
	if err != nil {
		return fence.Grant{}, err
	}
	found := false
	row, err = scan(func(dest ...any) (err error) {
		found, err = tx.Row(read, []any{tile}, dest...)
		return err
	})
	if !found {
		return fence.Grant{}, err
	}
	return row, err
}

// scan reads a row of tiles, and more columns of it.
func scan(from func(dest ...any) error, more ...any) (fence.Grant, error) {
	var tile, epoch, minted int64
	var contact sql.NullString
	var claim []byte
	var row fence.Grant
	dest := append([]any{&tile, &epoch, &contact, &claim, &minted, &row.Mints}, more...)
	if err := from(dest...); err != nil {
		return fence.Grant{}, err
	}
	row.Tile, row.Epoch, row.Contact = fence.TileID(tile), fence.Epoch(epoch), contact.String
	row.Minted = time.UnixMilli(minted).UTC()
	copy(row.ID[:], claim)
	return row, nil
}

// listSpan appends up to limit rows of a span of tiles.
func listSpan(tx *sqlitedb.Tx, span verdict.Span, limit int, to *[]fence.Grant) error {
	return tx.Rows(list, []any{span.First, span.Last, limit}, func(from func(dest ...any) error) error {
		row, err := scan(from)
		if err == nil {
			*to = append(*to, row)
		}
		return err
	})
}

// addedAfter reads up to limit rows made after the nth, and which the last of them was; known is false if no n were
// made.
func addedAfter(tx *sqlitedb.Tx, n uint64, limit int) (grants []fence.Grant, last uint64, known bool, err error) {
	var made uint64
	if _, err := tx.Row(count, nil, &made); err != nil || made < n {
		return nil, 0, false, err
	}
	last = n
	err = tx.Rows(added, []any{int64(n), limit}, func(from func(dest ...any) error) error {
		row, err := scan(from, &last)
		if err == nil {
			grants = append(grants, row)
		}
		return err
	})
	return grants, last, true, err
}

// retireRows removes rows within a transaction. No process can claim a tile between the look at its row and its
// removal, or see the removal before the floor: SQLite has one writer at a time.
func retireRows(tx *sqlitedb.Tx, releasedFor time.Duration, limit int) (retired int, err error) {
	var tiles []int64
	var highest int64
	err = tx.Rows(retirable, []any{releasedFor.Milliseconds(), limit}, func(from func(dest ...any) error) error {
		var tile, epoch int64
		err := from(&tile, &epoch)
		tiles, highest = append(tiles, tile), max(highest, epoch)
		return err
	})
	if err != nil || len(tiles) == 0 {
		return 0, err
	}
	if _, err := tx.Exec(raiseFloor, highest); err != nil {
		return 0, err
	}
	for _, tile := range tiles {
		n, err := tx.Exec(retire, tile)
		if err != nil {
			return 0, err
		}
		retired += int(n)
	}
	return retired, nil
}
