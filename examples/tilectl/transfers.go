package main

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// transferRow is an entity at a tile's border, or what the tile has committed of its channel with another.
type transferRow struct {
	State  string       `json:"state"` // under way, parked, refused or channel
	Peer   fence.TileID `json:"peer"`
	ID     string       `json:"id,omitempty"`
	Entity string       `json:"entity,omitempty"`
	Actor  string       `json:"actor,omitempty"`
	Since  fence.Tick   `json:"since_tick,omitempty"` // the tick at which it left
	Ticks  fence.Tick   `json:"ticks"`                // that have passed since, as far as they are committed
	Bytes  int          `json:"bytes"`
	Reason string       `json:"reason,omitempty"`

	Settled string `json:"settled,omitempty"` // of a channel: the last departure that is settled
	Decided string `json:"decided,omitempty"` // the last arrival that is decided
}

// showTransfers lists what a tile has committed of the entities that cross its border.
func showTransfers(ctx context.Context, t *tool, args []string) error {
	id := tileOf(args[0])
	r, err := stream.Recover(ctx, t.log, id)
	if err != nil {
		return err
	}
	if r.Position.IsZero() {
		return fmt.Errorf("the coordination store knows nothing of tile %s: a tile that was collected has nothing "+
			"under way", id)
	}
	channels, err := tile.Channels(id, &r.Snapshot, r.Entries)
	if err != nil {
		return err
	}
	stats, err := t.log.Stat(ctx, []fence.TileID{id})
	if err != nil {
		return err
	}
	now := max(r.Snapshot.Tick, stats[0].Owner.Tick)
	if n := len(r.Entries); n > 0 {
		now = max(now, r.Entries[n-1].Tick)
	}
	var rows, marks []transferRow
	for i := range channels {
		c := &channels[i]
		for j := range c.UnderWay {
			rows = append(rows, transferRowOf("under way", c.Peer, &c.UnderWay[j], now, ""))
		}
		for j := range c.Parked {
			p := &c.Parked[j]
			rows = append(rows, transferRowOf("parked", c.Peer, &p.Transfer, now, p.Reason))
		}
		for _, f := range c.Refused {
			rows = append(rows, transferRow{State: "refused", Peer: c.Peer, ID: f.ID.String(), Reason: f.Reason})
		}
		marks = append(marks, transferRow{State: "channel", Peer: c.Peer, Settled: named(c.Settled),
			Decided: named(c.Mark)})
	}
	if t.options.json {
		rows = append(rows, marks...)
	}
	err = printTable(t, "STATE PEER ID ENTITY ACTOR SINCE-TICK TICKS SIZE REASON", rows, func(r *transferRow) []any {
		return []any{r.State, r.Peer, r.ID, r.Entity, r.Actor, r.Since, r.Ticks, size(int64(r.Bytes)), r.Reason}
	})
	for _, m := range marks {
		t.say("with %s: departures are settled to %v, arrivals are decided to %v\n", m.Peer, dash(m.Settled),
			dash(m.Decided))
	}
	return err
}

func transferRowOf(state string, peer fence.TileID, tr *stream.Transfer, now fence.Tick, reason string) transferRow {
	return transferRow{State: state, Peer: peer, ID: tr.ID.String(), Entity: tr.Entity, Actor: tr.Actor, Since: tr.Tick,
		Ticks: max(now, tr.Tick) - tr.Tick, Bytes: len(tr.Payload), Reason: reason}
}

// named is a transfer's ID; empty: there is none.
func named(id stream.TransferID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
