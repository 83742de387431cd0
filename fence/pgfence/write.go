package pgfence

import (
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// writes are the statements of one call. Each names the tile's row by primary key, and waits for it no longer than
// lockWait if it is locked.
func (a *authority) writes(c *verdict.Call, lockWait time.Duration) []statement {
	tile, above, id, wait := int64(c.Tile), int64(c.Floor), c.ID.String(), milliseconds(lockWait)
	switch c.Kind {
	case verdict.ClaimNew:
		return []statement{
			{sql: a.sql.claimNew, args: []any{tile, max(above, a.floor.Load()), c.Contact, id, wait}},
			{sql: a.sql.raise, args: []any{tile, id}, raises: true},
		}
	case verdict.ClaimReleased:
		return []statement{{sql: a.sql.claimReleased, args: []any{tile, above, c.Contact, id, int64(c.Expected), wait}}}
	case verdict.Promote:
		return []statement{{sql: a.sql.promote, args: []any{tile, above, c.Contact, id, int64(c.Expected), wait}}}
	case verdict.Release:
		return []statement{{sql: a.sql.release, args: []any{tile, int64(c.Expected), id, wait}}}
	}
	return nil
}

// milliseconds is a duration as a setting of the server.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// columns are the arguments of a set's statements: one slice an argument, one element a call.
type columns struct {
	tiles, expected, above []int64
	contacts               []string
	ids                    []pgtype.UUID
}

// setOf is a transaction of several calls of one kind on different tiles, which are in the order of their
// numbers as the database has them.
func (a *authority) setOf(k verdict.Kind, members []*member, row func(fence.Grant)) *transaction {
	n := len(members)
	v := columns{
		tiles: make([]int64, 0, n), expected: make([]int64, 0, n), above: make([]int64, 0, n),
		contacts: make([]string, 0, n), ids: make([]pgtype.UUID, 0, n),
	}
	for _, m := range members {
		v.tiles = append(v.tiles, int64(m.Tile))
		v.expected = append(v.expected, int64(m.Expected))
		v.above = append(v.above, int64(m.Floor))
		v.contacts = append(v.contacts, m.Contact)
		v.ids = append(v.ids, pgtype.UUID{Bytes: m.ID, Valid: true})
	}
	t := &transaction{
		settings: &statement{sql: a.sql.settings, args: []any{a.planMode, milliseconds(a.lockWait)}},
		read:     statement{sql: a.sql.readSet, args: []any{v.tiles}},
		row:      row,
		primary:  k == verdict.Lookup,
	}
	switch k {
	case verdict.ClaimNew:
		floor := a.floor.Load()
		for i := range v.above {
			v.above[i] = max(v.above[i], floor)
		}
		lowest := slices.Min(v.above) + 1
		t.writes = []statement{
			{sql: a.sql.claimNewSet, args: []any{v.tiles, v.above, v.contacts, v.ids}},
			{sql: a.sql.raiseSet, args: []any{v.tiles, v.ids, lowest}, raises: true},
		}
	case verdict.ClaimReleased:
		t.writes = []statement{
			{sql: a.sql.claimReleasedSet, args: []any{v.tiles, v.above, v.contacts, v.ids, v.expected}},
		}
	case verdict.Promote:
		t.writes = []statement{{sql: a.sql.promoteSet, args: []any{v.tiles, v.above, v.contacts, v.ids, v.expected}}}
	case verdict.Release:
		t.writes = []statement{{sql: a.sql.releaseSet, args: []any{v.tiles, v.expected, v.ids}}}
	}
	return t
}

// learnFloor remembers the floor from a row that was raised above it. Later claims start there, which spares them
// a second write to their row. What it remembers is never above the floor, because it only rises.
func (a *authority) learnFloor(raised fence.Epoch) {
	for floor := int64(raised) - 1; ; {
		known := a.floor.Load()
		if known >= floor || a.floor.CompareAndSwap(known, floor) {
			return
		}
	}
}
