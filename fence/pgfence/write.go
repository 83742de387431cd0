package pgfence

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// writes are the statements of one call. Each names the tile's row by primary key.
func (a *Authority) writes(c *verdict.Call) []statement {
	tile, above, id := int64(c.Tile), int64(c.Floor), c.ID.String()
	switch c.Kind {
	case verdict.ClaimNew:
		return []statement{
			{a.sql.claimNew, []any{tile, max(above, a.floor.Load()), c.Contact, id}},
			{a.sql.raise, []any{tile, id}},
		}
	case verdict.ClaimReleased:
		return []statement{{a.sql.claimReleased, []any{tile, above, c.Contact, id, int64(c.Expected)}}}
	case verdict.Promote:
		return []statement{{a.sql.promote, []any{tile, above, c.Contact, id, int64(c.Expected)}}}
	case verdict.Release:
		return []statement{{a.sql.release, []any{tile, int64(c.Expected), id}}}
	}
	return nil
}

// columns are the arguments of a set's statements: one slice an argument, one element a call.
type columns struct {
	tiles, expected, above []int64
	contacts               []string
	ids                    []pgtype.UUID
}

// setOf is a transaction of several calls of one kind on different tiles, which are in the order of their
// numbers as the database has them.
func (a *Authority) setOf(k verdict.Kind, members []*member, row func(fence.Grant)) *transaction {
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
		settings: &statement{a.sql.settings, []any{a.planMode}},
		read:     statement{a.sql.readSet, []any{v.tiles}},
		row:      row,
	}
	switch k {
	case verdict.ClaimNew:
		floor := a.floor.Load()
		for i := range v.above {
			v.above[i] = max(v.above[i], floor)
		}
		lowest := slices.Min(v.above) + 1
		t.writes = []statement{
			{a.sql.claimNewSet, []any{v.tiles, v.above, v.contacts, v.ids}},
			{a.sql.raiseSet, []any{v.tiles, v.ids, lowest}},
		}
	case verdict.ClaimReleased:
		t.writes = []statement{{a.sql.claimReleasedSet, []any{v.tiles, v.above, v.contacts, v.ids, v.expected}}}
	case verdict.Promote:
		t.writes = []statement{{a.sql.promoteSet, []any{v.tiles, v.above, v.contacts, v.ids, v.expected}}}
	case verdict.Release:
		t.writes = []statement{{a.sql.releaseSet, []any{v.tiles, v.expected, v.ids}}}
	}
	return t
}

// learnFloor remembers the floor from a first claim's grant that is above what the call asked for. Later
// claims start there, which spares them a second write to their row. Nothing depends on it.
func (a *Authority) learnFloor(c *verdict.Call, row fence.Grant) {
	won := c.Kind == verdict.ClaimNew && row.ID == c.ID
	if !won || row.Mints > 1 || row.Epoch <= c.Floor+1 || row.Epoch > fence.MaxRetired+1 {
		return
	}
	for floor := int64(row.Epoch) - 1; ; {
		known := a.floor.Load()
		if known >= floor || a.floor.CompareAndSwap(known, floor) {
			return
		}
	}
}
