package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// tileRow is one tile as the authority and the coordination store have it.
type tileRow struct {
	Tile        fence.TileID    `json:"tile"`
	State       string          `json:"state"`           // owned, released, silent, unrecorded, never owned
	Owner       string          `json:"owner,omitempty"` // contact
	Epoch       fence.Epoch     `json:"epoch"`
	Since       int64           `json:"since_ms,omitempty"`
	Mints       int64           `json:"mints,omitempty"`
	Seq         fence.Seq       `json:"seq"`
	Chain       fence.Chain     `json:"chain"`
	Tick        fence.Tick      `json:"tick"`
	Entries     int             `json:"entries"`
	Memory      int64           `json:"memory_bytes"`
	Floor       fence.Seq       `json:"floor"`
	Held        stream.Consumer `json:"floor_held_by,omitempty"` // empty: the snapshot
	Trimmed     fence.Seq       `json:"trimmed"`                 // entries below it are gone
	Marks       []markRow       `json:"marks,omitempty"`
	Snapshot    fence.Seq       `json:"snapshot_seq"`
	SnapshotAt  int64           `json:"snapshot_ms,omitempty"`
	DeadLetters int             `json:"dead_letters"`
	Problem     string          `json:"problem,omitempty"`

	size int // bytes of the snapshot
}

// markRow is one consumer's watermark.
type markRow struct {
	Consumer stream.Consumer `json:"consumer"`
	Seq      fence.Seq       `json:"seq"`
	Behind   fence.Seq       `json:"behind"` // the tile's last sequence
	Moved    int64           `json:"moved_ms"`
}

func marksOf(s *stream.Stat) (rows []markRow) {
	for _, c := range slices.SortedFunc(maps.Keys(s.Marks), stream.CompareConsumers) {
		m := s.Marks[c]
		rows = append(rows, markRow{Consumer: c, Seq: m.Seq, Behind: max(s.Last.Seq, m.Seq) - m.Seq, Moved: m.Moved})
	}
	return rows
}

// rowOf puts both views of a tile together.
func rowOf(g fence.Grant, s *stream.Stat) tileRow {
	floor, held := s.Floor()
	r := tileRow{Tile: s.Tile, Owner: g.Contact, Epoch: g.Epoch, Mints: g.Mints, Seq: s.Last.Seq, Chain: s.Last.Chain,
		Tick: s.Owner.Tick, Entries: s.Entries, Memory: s.Memory, Floor: floor, Held: held, Snapshot: s.Snapshot.Seq,
		SnapshotAt: fence.Millis(s.Snapshot.Taken), DeadLetters: s.DeadLetters, Trimmed: s.Trimmed, Marks: marksOf(s),
		size: s.Snapshot.Size}
	if !g.Minted.IsZero() {
		r.Since = g.Minted.UnixMilli()
	}
	q, quarantined := fence.ParseQuarantine(g.Contact)
	switch {
	case quarantined:
		r.State, r.Owner = "quarantined", ""
	case g.Epoch == 0 && s.Owner.Present():
		r.State, r.Owner, r.Epoch = "unrecorded", s.Owner.Contact, s.Owner.Epoch
		r.Problem = "the owner hash names an owner that the authority does not know: was the authority restored?"
	case g.Epoch == 0:
		r.State = "never owned"
	case !g.Held():
		r.State = "released"
	case !s.Owner.Present():
		r.State = "silent"
	default:
		r.State = "owned"
	}
	switch {
	case s.Err != nil:
		r.Problem = s.Err.Error()
	case quarantined:
		r.Problem = q.String()
	case g.Epoch > 0 && s.Owner.Epoch > g.Epoch:
		r.Problem = fmt.Sprintf("the owner hash is at epoch %d: was the authority restored to an older state?",
			s.Owner.Epoch)
	case g.Held() && s.Owner.Present() && s.Owner.Epoch < g.Epoch:
		r.Problem = fmt.Sprintf("a take-over is under way: the owner hash still names %s, epoch %d", s.Owner.Contact,
			s.Owner.Epoch)
	}
	return r
}

// pageSize is how many tiles are asked for at once.
const pageSize = 500

func listTiles(ctx context.Context, t *tool, args []string) error {
	var rows []tileRow
	if len(args) > 0 {
		for _, id := range tilesOf(args) {
			row, err := t.row(ctx, id)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return t.printTiles(rows)
	}
	var grants []fence.Grant
	for g, err := range fence.Records(ctx, t.authority) {
		if err != nil {
			return err
		}
		grants = append(grants, g)
	}
	for page := range slices.Chunk(grants, pageSize) {
		described, err := t.rows(ctx, page)
		if err != nil {
			return err
		}
		rows = append(rows, described...)
	}
	return t.printTiles(rows)
}

// rows describes granted tiles.
func (t *tool) rows(ctx context.Context, grants []fence.Grant) ([]tileRow, error) {
	tiles := make([]fence.TileID, len(grants))
	for i := range grants {
		tiles[i] = grants[i].Tile
	}
	stats, err := t.log.Stat(ctx, tiles)
	if err != nil {
		return nil, err
	}
	rows := make([]tileRow, len(grants))
	for i := range grants {
		rows[i] = rowOf(grants[i], &stats[i])
	}
	return rows, nil
}

// row describes one tile, which may never have been owned.
func (t *tool) row(ctx context.Context, id fence.TileID) (tileRow, error) {
	g, err := t.authority.Lookup(ctx, id)
	if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
		return tileRow{}, err
	}
	g.Tile = id
	rows, err := t.rows(ctx, []fence.Grant{g})
	if err != nil {
		return tileRow{}, err
	}
	return rows[0], nil
}

func (t *tool) printTiles(rows []tileRow) error {
	err := printTable(t, "TILE STATE OWNER EPOCH SINCE MINTS SEQ ENTRIES MEMORY TRIMMED FLOOR HELD-BY DEAD", rows,
		func(r *tileRow) []any {
			return []any{r.Tile, r.State, r.Owner, r.Epoch, millis(r.Since), r.Mints, r.Seq, r.Entries, size(r.Memory),
				r.Trimmed, r.Floor, holder(r), r.DeadLetters}
		})
	for i := range rows {
		if rows[i].Problem != "" {
			t.errs.printf("tile %s: %s\n", rows[i].Tile, rows[i].Problem)
		}
	}
	return err
}

func holder(r *tileRow) string {
	switch {
	case r.Snapshot == 0:
		return ""
	case r.Held == "":
		return "snapshot"
	}
	return string(r.Held)
}

func showTile(ctx context.Context, t *tool, args []string) error {
	r, err := t.row(ctx, tileOf(args[0]))
	if err != nil {
		return err
	}
	if t.options.json {
		return t.printTiles([]tileRow{r})
	}
	t.out.printf("tile      %s, %s\n", r.Tile, r.State)
	t.out.printf("owner     %v at epoch %d, since %s; its epoch was minted %d times\n", dash(r.Owner), r.Epoch,
		moment(r.Since), r.Mints)
	t.out.printf("position  sequence %d, chain %s, tick %d\n", r.Seq, r.Chain, r.Tick)
	t.out.printf("stream    %d entries, %s, trimmed to %d, floor %d held by %v\n", r.Entries, size(r.Memory),
		r.Trimmed, r.Floor, dash(holder(&r)))
	t.out.printf("snapshot  sequence %d, %s, taken %s\n", r.Snapshot, size(int64(r.size)), moment(r.SnapshotAt))
	for _, m := range r.Marks {
		t.out.printf("mark      %-32s  sequence %d, %d behind, moved %s\n", m.Consumer, m.Seq, m.Behind,
			moment(m.Moved))
	}
	t.out.printf("letters   %d dead\n", r.DeadLetters)
	if r.Problem != "" {
		t.out.printf("problem   %s\n", r.Problem)
	}
	return nil
}
