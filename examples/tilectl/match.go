package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
)

// matchStore is what tilectl reads of matchmaking.
type matchStore interface {
	match.Store
	match.Seats
	// Names lists the shards of all queues, and the pools of seats.
	Names(ctx context.Context) (shards, pools []string, err error)
}

// listedTickets is how many tickets of a shard are listed.
const listedTickets = 100

// queueRow is one queue, over all its shards.
type queueRow struct {
	Queue  string `json:"queue"`
	Shards int    `json:"shards"`
	match.Depth
	Waits float64   `json:"longest_wait_s"` // of the ticket that waits longest
	Why   match.Why `json:"why"`            // it does
}

// listQueues shows the queues, or those named.
func listQueues(ctx context.Context, t *tool, args []string) error {
	shards, _, err := t.match.Names(ctx)
	if err != nil {
		return err
	}
	rows := []queueRow{}
	for _, shard := range shards {
		queue, _, _ := strings.Cut(shard, "/")
		if len(args) > 0 && !slices.Contains(args, queue) {
			continue
		}
		i := slices.IndexFunc(rows, func(r queueRow) bool { return r.Queue == queue })
		if i < 0 {
			rows, i = append(rows, queueRow{Queue: queue}), len(rows)
		}
		d, err := t.match.Depth(ctx, shard)
		if err != nil {
			return err
		}
		longest, err := t.match.List(ctx, shard, 1)
		if err != nil {
			return err
		}
		r := &rows[i]
		r.Depth, r.Shards = r.Add(d), r.Shards+1
		for _, s := range longest {
			if w := s.Waited.Seconds(); w >= r.Waits {
				r.Waits, r.Why = w, s.Why
			}
		}
	}
	for _, queue := range args {
		if !slices.ContainsFunc(rows, func(r queueRow) bool { return r.Queue == queue }) {
			return fmt.Errorf("queue %q has never had a ticket", queue)
		}
	}
	const head = "QUEUE SHARDS WAITING CLAIMED MATCHED SEATED CANCELLED TIMED-OUT MATCHES PENDING WORKERS LONGEST WHY"
	return printTable(t, head, rows, func(r *queueRow) []any {
		longest, why := "", ""
		if r.Waiting+r.Claimed > 0 {
			longest, why = span(r.Waits), r.Why.String()
		}
		return []any{r.Queue, r.Shards, r.Waiting, r.Claimed, r.Matched, r.Seated, r.Cancelled, r.TimedOut, r.Matches,
			r.Pending, r.Workers, longest, why}
	})
}

// ticketRow is one ticket that waits.
type ticketRow struct {
	Shard    string       `json:"shard"`
	Ticket   match.Ticket `json:"ticket"`
	State    string       `json:"state"`
	Waited   float64      `json:"waited_s"`
	Enqueued int64        `json:"enqueued_ms"`
	Deadline int64        `json:"deadline_ms"`
	Why      match.Why    `json:"why"`
	Because  string       `json:"because"` // Why, as a sentence
}

// listTickets shows the tickets of a queue that wait, and why they wait.
func listTickets(ctx context.Context, t *tool, args []string) error {
	shards, _, err := t.match.Names(ctx)
	if err != nil {
		return err
	}
	rows := []ticketRow{}
	known := false
	for _, shard := range shards {
		if queue, _, _ := strings.Cut(shard, "/"); queue != args[0] {
			continue
		}
		known = true
		list, err := t.match.List(ctx, shard, listedTickets)
		if err != nil {
			return err
		}
		for _, s := range list {
			rows = append(rows, ticketRow{Shard: shard, Ticket: s.Ticket, State: s.State.String(),
				Waited: s.Waited.Seconds(), Enqueued: s.Enqueued.UnixMilli(), Deadline: s.Deadline.UnixMilli(),
				Why: s.Why, Because: s.Why.String()})
		}
		if len(list) == listedTickets && !t.options.json {
			t.errs.printf("shard %s: only the %d tickets that wait longest are listed\n", shard, listedTickets)
		}
	}
	if !known {
		return fmt.Errorf("queue %q has never had a ticket", args[0])
	}
	slices.SortStableFunc(rows, func(a, b ticketRow) int { return int(a.Enqueued - b.Enqueued) })
	return printTable(t, "TICKET PLAYERS RATING STATE WAITED DEADLINE WHY", rows, func(r *ticketRow) []any {
		players := fmt.Sprint(len(r.Ticket.Players))
		if b := r.Ticket.Backfill; b != nil {
			players = fmt.Sprintf("%d for tile %s", b.Open, b.Tile)
		}
		return []any{r.Ticket.ID, players, r.Ticket.Rating, r.State, span(r.Waited), millis(r.Deadline), r.Because}
	})
}

// seatsRow is one tile of a pool.
type seatsRow struct {
	Pool    string       `json:"pool"`
	Tile    fence.TileID `json:"tile"`
	Epoch   fence.Epoch  `json:"epoch"`
	Contact string       `json:"contact"`
	Seats   int          `json:"seats"`
	Used    int          `json:"used"`
	Serving bool         `json:"serving"`
}

// listSeats shows the tiles of all pools, or of those named.
func listSeats(ctx context.Context, t *tool, args []string) error {
	_, pools, err := t.match.Names(ctx)
	if err != nil {
		return err
	}
	rows := []seatsRow{}
	for _, pool := range pools {
		if len(args) > 0 && !slices.Contains(args, pool) {
			continue
		}
		tiles, err := t.match.Tiles(ctx, pool)
		if err != nil {
			return err
		}
		for _, l := range tiles {
			rows = append(rows, seatsRow{pool, l.Tile, l.Epoch, l.Contact, l.Seats, l.Used, l.Serving})
		}
	}
	return printTable(t, "POOL TILE OFFER CONTACT EPOCH SEATS USED", rows, func(r *seatsRow) []any {
		offer := "serving"
		if !r.Serving {
			offer = "expired"
		}
		return []any{r.Pool, r.Tile, offer, r.Contact, r.Epoch, r.Seats, r.Used}
	})
}

// wait is a wait for people.
func span(seconds float64) string {
	return (time.Duration(seconds*10) * time.Second / 10).String()
}
