package sqlitefence

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// list appends up to limit rows of a span of tiles.
func (db *database) list(work context.Context, span verdict.Span, limit int, to *[]fence.Grant) error {
	rows, err := db.statements[list].QueryContext(work, span.First, span.Last, limit)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return err
		}
		*to = append(*to, row)
	}
	return rows.Err()
}

// retire removes rows within a transaction. Nobody can claim a tile between the look at its row and its
// removal, or see the removal before the floor: SQLite has one writer at a time.
func (db *database) retire(work context.Context, releasedFor time.Duration, limit int) (int, error) {
	tiles, highest, err := db.retirable(work, releasedFor, limit)
	if err != nil || len(tiles) == 0 {
		return 0, err
	}
	if _, err := db.statements[raiseFloor].ExecContext(work, highest); err != nil {
		return 0, err
	}
	retired := 0
	for _, tile := range tiles {
		result, err := db.statements[retire].ExecContext(work, tile)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		retired += int(n)
	}
	return retired, nil
}

// retirable finds tiles whose rows may go, and the highest of their epochs.
func (db *database) retirable(work context.Context, releasedFor time.Duration, limit int) (tiles []int64, highest int64, err error) {
	rows, err := db.statements[retirable].QueryContext(work, releasedFor.Milliseconds(), limit)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var tile, epoch int64
		if err := rows.Scan(&tile, &epoch); err != nil {
			return nil, 0, err
		}
		tiles, highest = append(tiles, tile), max(highest, epoch)
	}
	return tiles, highest, rows.Err()
}
