package main

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// quarantineRow is one tile that is quarantined.
type quarantineRow struct {
	Tile   fence.TileID     `json:"tile"`
	Epoch  fence.Epoch      `json:"epoch"`
	Since  int64            `json:"since_ms"`
	State  string           `json:"state"` // closed or lifted
	By     string           `json:"by"`
	Event  string           `json:"event"` // sequence/index, or snapshot
	Skip   []fence.EventRef `json:"skip,omitempty"`
	Reason string           `json:"reason"`
}

// quarantined are the grants that are quarantines: of the tiles named, each of which must be one, or of all.
func (t *tool) quarantined(ctx context.Context, args []string) (held []fence.Grant, err error) {
	for _, id := range tilesOf(args) {
		g, err := t.authority.Lookup(ctx, id)
		if err != nil {
			return nil, err
		}
		if _, ok := fence.ParseQuarantine(g.Contact); !ok {
			return nil, fmt.Errorf("tile %s is not quarantined", id)
		}
		held = append(held, g)
	}
	if len(args) > 0 {
		return held, nil
	}
	for g, err := range fence.Records(ctx, t.authority) {
		if err != nil {
			return nil, err
		}
		if _, ok := fence.ParseQuarantine(g.Contact); ok {
			held = append(held, g)
		}
	}
	return held, nil
}

func listQuarantines(ctx context.Context, t *tool, args []string) error {
	grants, err := t.quarantined(ctx, args)
	if err != nil {
		return err
	}
	var rows []quarantineRow
	for _, g := range grants {
		q, _ := fence.ParseQuarantine(g.Contact)
		r := quarantineRow{Tile: g.Tile, Epoch: g.Epoch, Since: g.Minted.UnixMilli(), State: "closed", By: q.By,
			Event: "snapshot", Skip: q.Skip, Reason: q.Reason}
		if q.Lifted {
			r.State = "lifted"
		}
		if q.At != (fence.EventRef{}) {
			r.Event = q.At.String()
		}
		rows = append(rows, r)
	}
	return printTable(t, "TILE STATE EPOCH SINCE BY EVENT LEFT-OUT REASON", rows, func(r *quarantineRow) []any {
		return []any{r.Tile, r.State, r.Epoch, millis(r.Since), r.By, r.Event, fmt.Sprint(r.Skip), r.Reason}
	})
}

// releaseQuarantines lets tile servers claim tiles again, as they are.
func releaseQuarantines(ctx context.Context, t *tool, args []string) error {
	grants, err := t.quarantined(ctx, args)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if err := t.authority.Release(ctx, g); err != nil {
			return err
		}
		t.say("tile %s is released; tile servers claim it within 30 s, and fold all of its history\n",
			g.Tile)
	}
	return nil
}

// skipEvent has the next owner leave out what could not be folded.
func skipEvent(ctx context.Context, t *tool, args []string) error {
	grants, err := t.quarantined(ctx, args)
	if err != nil {
		return err
	}
	g := grants[0]
	q, _ := fence.ParseQuarantine(g.Contact)
	switch {
	case q.At == fence.EventRef{}:
		return fmt.Errorf("tile %s: it is the snapshot that cannot be folded, no event: use tilectl checkpoint restore",
			g.Tile)
	case q.Lifted:
		return fmt.Errorf("tile %s: its next owner leaves out %v already", g.Tile, q.Skip)
	}
	t.say("tile %s: %s\n", g.Tile, q)
	if q.At.Index == 0 {
		t.say("no single event of that batch is to blame: all of them will be left out\n")
	}
	crossed, err := t.crossed(ctx, g.Tile, func(at fence.Seq) bool { return at == q.At.Seq })
	if err != nil {
		return err
	}
	if len(crossed) > 0 {
		t.say("the batch has crossings, which stay; an event that belongs to one of them is what is left out:\n")
		t.sayCrossed(crossed, "in both tiles if it is taken there", "lost if its event is left out")
	}
	if err := t.confirm("What it did is lost, the outcomes of actions stand."); err != nil {
		return err
	}
	q.Lifted, q.Skip, q.By = true, append(q.Skip, q.At), operator
	contact, err := q.Contact()
	if err != nil {
		return err
	}
	_, err = t.authority.Promote(ctx, fence.Claim{Tile: g.Tile, Contact: contact, ID: fence.NewClaimID(),
		Expected: g.Epoch})
	if err == nil {
		t.say("the tile server that claims the tile, within 30 s, leaves out %v\n", q.Skip)
	}
	return err
}

// rewind puts a quarantined tile back to the snapshot that the coordination store has.
func rewind(ctx context.Context, t *tool, args []string) error {
	grants, err := t.quarantined(ctx, args)
	if err != nil {
		return err
	}
	g := grants[0]
	if q, _ := fence.ParseQuarantine(g.Contact); q.At == (fence.EventRef{}) {
		return fmt.Errorf("tile %s: that snapshot cannot be folded: use tilectl checkpoint restore", g.Tile)
	}
	s, found, err := t.log.Snapshot(ctx, g.Tile)
	if err == nil && found {
		err = s.Verify(g.Tile)
	}
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("tile %s has no snapshot yet: use tilectl quarantine skip", g.Tile)
	}
	crossed, err := t.crossed(ctx, g.Tile, func(at fence.Seq) bool { return at > s.Seq })
	if err != nil {
		return err
	}
	if len(crossed) > 0 {
		t.say("entities have crossed the tile's border since; see tilectl transfers of the other tiles\n")
		t.sayCrossed(crossed, "here again, and in both tiles if it was taken there",
			"lost unless it is under way there still")
	}
	if err := t.confirm("What the tile has done after tick %d is lost.", s.Tick); err != nil {
		return err
	}
	return t.restore(ctx, g.Tile, &s)
}

// crossed are the batches of a tile with something that crosses its border, at the sequences chosen.
func (t *tool) crossed(ctx context.Context, id fence.TileID, chosen func(fence.Seq) bool) (all []*stream.Batch,
	err error) {
	r, err := stream.Recover(ctx, t.log, id)
	if err != nil {
		return nil, err
	}
	for i := range r.Entries {
		if !chosen(r.Entries[i].Seq) {
			continue
		}
		b, err := stream.DecodeBatch(&r.Entries[i])
		if err != nil {
			return nil, err
		}
		if len(b.Departures)+len(b.Decisions)+len(b.Settlements) > 0 {
			all = append(all, b)
		}
	}
	return all, nil
}

// sayCrossed says what an operator's decision makes of entities that have crossed a tile's border.
func (t *tool) sayCrossed(all []*stream.Batch, departed, arrived string) {
	for _, b := range all {
		for i := range b.Departures {
			t.say("  %q has left for tile %s: it is %s\n", b.Departures[i].Entity, b.Departures[i].To, departed)
		}
		for i := range b.Decisions {
			if d := &b.Decisions[i]; !d.Mark.IsZero() {
				t.say("  of tile %s all up to transfer %s was decided, and %d refused: what was taken is %s\n", d.From,
					d.Mark, len(d.Refused), arrived)
			}
		}
		for i := range b.Settlements {
			t.say("  of what has left for tile %s all up to transfer %s was settled: what came back with it is lost\n",
				b.Settlements[i].To, b.Settlements[i].UpTo)
		}
	}
}
