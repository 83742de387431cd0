package pgfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// retireSet is how many rows Retire removes in one transaction. Claims of these tiles wait for it.
const retireSet = 500

// List returns the records of the tiles after one; see fence.Authority.
func (a *authority) List(ctx context.Context, after fence.TileID, limit int) ([]fence.Grant, error) {
	if err := verdict.ValidateLimit(limit); err != nil {
		return nil, err
	}
	var grants []fence.Grant
	fail := a.transact(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		grants = nil
		for _, span := range verdict.SpansAfter(after) {
			if len(grants) == limit {
				break
			}
			rows, err := conn.Query(ctx, a.sql.list, span.First, span.Last, limit-len(grants))
			if err == nil {
				grants, err = pgx.AppendRows(grants, rows,
					func(r pgx.CollectableRow) (fence.Grant, error) { return scan(r) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if fail != nil {
		return nil, &fence.StoreError{Op: "list", Outcome: fence.ErrNotApplied, Err: a.hint(fail.cause)}
	}
	return grants, nil
}

// errNoWorld means that the migration was undone.
var errNoWorld = errors.New("the table of the world has no row; restore it, or remove the table and its version from " +
	schemaTable + " and call Migrate, which mints another identity")

// World is the world of the table of tiles; see fence.Authority.
func (a *authority) World(ctx context.Context) (fence.World, error) {
	var w fence.World
	var id string
	err := a.pool.QueryRow(ctx, a.sql.world).Scan(&w.Name, &id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoWorld
	}
	if err != nil {
		return fence.World{}, &fence.StoreError{Op: "world", Outcome: fence.ErrNotApplied, Err: a.hint(err)}
	}
	record := "table " + a.table.sibling(a.table.name+worldSuffix).String()
	if w.ID, err = fence.ParseWorldID(strings.ReplaceAll(id, "-", "")); err != nil {
		return fence.World{}, &fence.CorruptError{What: record, Detail: err.Error()}
	}
	if w.Name != a.world {
		return fence.World{}, &fence.WorldError{Store: "the authority", Record: record,
			Want: fence.World{Name: a.world}, Found: w}
	}
	return w, nil
}

// errNoFloor means that the floor cannot be raised.
var errNoFloor = errors.New("the floor table has no row; insert one whose epoch is not below any in the table of tiles")

// Retire removes records of tiles released long ago; see fence.Authority. To find them it reads the table,
// all of it when fewer than limit are there. An error with ErrUnknownOutcome may come after some were
// removed; nothing needs to be done about that.
//
// Every process that uses the table must run a release that knows the floor: one that does not would
// claim retired tiles from epoch 1.
func (a *authority) Retire(ctx context.Context, releasedFor time.Duration, limit int) (int, error) {
	if err := verdict.ValidateRetire(releasedFor, limit); err != nil {
		return 0, err
	}
	var tiles []int64
	var floor int64
	fail := a.transact(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		tiles, floor, err = a.retirable(ctx, conn, releasedFor, limit)
		if err != nil || len(tiles) == 0 {
			return err
		}
		// The floor is raised durably before any removal begins. A claim that sees a removal sees the floor.
		if err = conn.QueryRow(ctx, a.sql.raiseFloor, floor).Scan(&floor); errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("%w: %w", errNoFloor, err)
		}
		return err
	})
	if fail != nil {
		return 0, &fence.StoreError{Op: "retire", Outcome: fence.ErrNotApplied, Err: a.hint(fail.cause)}
	}
	retired := 0
	for set := range slices.Chunk(tiles, retireSet) {
		fail := a.transact(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			n, err := a.remove(ctx, conn, set, floor, releasedFor)
			retired += n
			return err
		})
		if fail != nil {
			return retired, &fence.StoreError{Op: "retire", Outcome: fence.ErrUnknownOutcome, Err: a.hint(fail.cause)}
		}
	}
	return retired, nil
}

// retirable finds tiles whose rows may go, in order, and the highest of their epochs.
func (a *authority) retirable(
	ctx context.Context, conn *pgxpool.Conn, releasedFor time.Duration, limit int,
) (tiles []int64, highest int64, err error) {
	rows, err := conn.Query(ctx, a.sql.retirable, releasedFor.Microseconds(), limit)
	if err != nil {
		return nil, 0, err
	}
	var tile, epoch int64
	_, err = pgx.ForEachRow(rows, []any{&tile, &epoch}, func() error {
		tiles, highest = append(tiles, tile), max(highest, epoch)
		return nil
	})
	slices.Sort(tiles)
	return tiles, highest, err
}

// remove removes some rows in one transaction and one round trip. It takes their locks in the order of
// tiles, as all transactions of this package do that take several, and waits for none: claims would wait for it.
func (a *authority) remove(
	ctx context.Context, conn *pgxpool.Conn, tiles []int64, floor int64, releasedFor time.Duration,
) (int, error) {
	var batch pgx.Batch
	for _, tile := range tiles {
		batch.Queue(a.sql.retire, tile, floor, releasedFor.Microseconds())
	}
	results := conn.SendBatch(ctx, &batch)
	retired := 0
	for range tiles {
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close() // the first error says more
			return 0, err
		}
		retired += int(tag.RowsAffected())
	}
	return retired, results.Close()
}
