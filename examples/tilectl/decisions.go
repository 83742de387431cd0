package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// decidedRow is what processes have decided about a tile, and what was proved of it, or the first promise broken.
type decidedRow struct {
	Tile       fence.TileID `json:"tile"`
	Since      string       `json:"since"` // where the history begins that is proved; empty: at the tile's beginning
	To         string       `json:"to"`
	Decisions  int          `json:"decisions"`
	Granted    int          `json:"granted"` // epochs, by a claim or a promotion
	Installs   int          `json:"installs"`
	Commits    int          `json:"commits"`    // answered: batches that the store has
	Confirmed  int          `json:"confirmed"`  // of these and of rebases, by every replica asked for
	Reappended int          `json:"reappended"` // batches written again, or under an owner hash that was gone
	Rebases    int          `json:"rebases"`
	Refused    int          `json:"refused"`
	Unknown    int          `json:"unknown"` // calls of the store without an answer
	Foreign    int          `json:"foreign"` // entries of the stream that no log has
	Verdict    string       `json:"verdict"`

	broken *check.Violation // the first
}

// decisions are the logs of processes, what their gateways say of money, and where their matches play.
type decisions struct {
	logs     []*decision.File
	refunded map[string]bool   // actions whose price was given back: no tile has applied one
	plays    map[string]uint64 // tiles by match
	twice    string            // a match that was assigned to two tiles
}

// openDecisions reads those of the files that are logs of decisions, and returns the names of the others.
func openDecisions(names []string) (*decisions, []string, error) {
	d := &decisions{refunded: map[string]bool{}, plays: map[string]uint64{}}
	var others []string
	for _, name := range names {
		is, err := isDecisions(name)
		if err != nil {
			return nil, nil, err
		}
		if !is {
			others = append(others, name)
			continue
		}
		f, err := decision.Open(name)
		if err != nil {
			return nil, nil, err
		}
		d.logs = append(d.logs, f)
		err = f.Each(0, func(e *decision.Event) {
			if e.Refunded {
				d.refunded[e.Action] = true
			}
			if e.Kind == decision.Assigned {
				d.assigned(e)
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return d, others, nil
}

// assigned notes where a match plays: on one tile, whichever servers have asked, and however often.
func (d *decisions) assigned(e *decision.Event) {
	if before, known := d.plays[e.Action]; known && before != e.Count && d.twice == "" {
		d.twice = fmt.Sprintf("match %q was assigned to tile %s and to tile %s", e.Action, fence.TileID(before),
			fence.TileID(e.Count))
	}
	d.plays[e.Action] = e.Count
}

func isDecisions(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 64)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return decision.Is(head[:n]), nil
}

// verify judges every tile of the logs, with the streams that were read, as many at once as there are processors.
func (d *decisions) verify(t *tool, streams map[fence.TileID][]history.Entry) error {
	began := time.Now()
	tiles, events, gaps := map[fence.TileID]bool{}, 0, false
	for _, f := range d.logs {
		f.Tiles(func(id fence.TileID) { tiles[id] = true })
		events, gaps = events+f.Events, gaps || f.Dropped > 0
	}
	ids := slices.Sorted(maps.Keys(tiles))
	rows := make([]decidedRow, len(ids))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, id := range ids {
		g.Go(func() (err error) {
			rows[i], err = d.judge(id, streams[id], t.options.skew, gaps)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err := printTable(t, "TILE SINCE TO DECISIONS GRANTED INSTALLS COMMITS CONFIRMED REAPPENDED REBASES REFUSED "+
		"UNKNOWN FOREIGN VERDICT", rows, func(r *decidedRow) []any {
		return []any{r.Tile, r.Since, r.To, r.Decisions, r.Granted, r.Installs, r.Commits, r.Confirmed, r.Reappended,
			r.Rebases, r.Refused, r.Unknown, r.Foreign, r.Verdict}
	})
	if err != nil {
		return err
	}
	first := firstBroken(rows)
	if !t.options.json {
		d.summarize(t.out, rows, events, time.Since(began))
		if first != nil {
			t.out.printf("the first promise broken, at %s: %s: tile %s: %s\n",
				time.Unix(0, first.At).UTC().Format(time.RFC3339Nano), first.Check, first.Tile, first.Detail)
		}
		if d.twice != "" {
			t.out.printf("plays once: %s\n", d.twice)
		}
	}
	if first != nil || d.twice != "" {
		return errDamaged
	}
	return nil
}

func firstBroken(rows []decidedRow) (first *check.Violation) {
	for i := range rows {
		if b := rows[i].broken; b != nil && (first == nil || b.At < first.At) {
			first = b
		}
	}
	return first
}

// summarize says what was read, what is missing of it, and so what was proved.
func (d *decisions) summarize(w *printer, rows []decidedRow, events int, took time.Duration) {
	w.printf("%d decisions of %d processes about %d tiles, judged in %v: %.0f a second\n", events, len(d.logs),
		len(rows), took.Round(time.Millisecond), float64(events)/took.Seconds())
	for _, f := range d.logs {
		if f.Dropped > 0 {
			w.printf("%s: %d decisions were dropped: what an owner does from step to step is not judged\n",
				f.Name, f.Dropped)
		}
		if !f.Closed {
			w.printf("%s: its process did not end by itself: up to its last 0.2 s are missing\n", f.Name)
		}
	}
	var never []string
	for _, rule := range []struct {
		name string
		of   func(*decidedRow) int
	}{
		{"installed", func(r *decidedRow) int { return r.Installs }},
		{"confirmed", func(r *decidedRow) int { return r.Confirmed }},
		{"re-appended", func(r *decidedRow) int { return r.Reappended }},
		{"rebased", func(r *decidedRow) int { return r.Rebases }},
		{"refused", func(r *decidedRow) int { return r.Refused }},
	} {
		if !slices.ContainsFunc(rows, func(r decidedRow) bool { return rule.of(&r) > 0 }) {
			never = append(never, rule.name)
		}
	}
	if never != nil {
		w.printf("never: %s; these logs prove nothing about that\n", strings.Join(never, ", "))
	}
}

// judge judges one tile.
func (d *decisions) judge(id fence.TileID, stream []history.Entry, skew time.Duration, gaps bool) (decidedRow, error) {
	r := decidedRow{Tile: id, Verdict: "kept"}
	h, err := history.Decided(id, d.logs, stream)
	if err != nil {
		return r, err
	}
	t, found := check.Decided(h, id, skew, gaps)
	if r.To = t.Final.End.String(); !t.Since.IsZero() {
		r.Since = t.Since.String()
	}
	r.Decisions, r.Foreign = len(t.Operations), t.Foreign()
	for _, o := range t.Operations {
		r.count(o)
	}
	if len(found) > 0 {
		r.broken = &found[0]
		r.Verdict = found[0].Check + ": " + found[0].Detail
	}
	return r, nil
}

func (r *decidedRow) count(o *history.Operation) {
	ok := o.Result.Outcome == history.OK
	add := func(to *int, when bool) {
		if when {
			*to++
		}
	}
	switch o.Kind {
	case history.Claim, history.Promote:
		add(&r.Granted, ok)
	case history.Commit:
		own := o.Commit.Prev.Epoch == o.Commit.Epoch
		add(&r.Installs, ok && o.Commit.Install && !own)
		add(&r.Reappended, ok && o.Commit.Install && own && !o.Commit.Refresh())
		add(&r.Commits, o.Applied() && !o.Commit.Refresh())
		add(&r.Confirmed, ok && o.Commit.Replicas != 0)
		add(&r.Unknown, o.Open())
	case history.Rebase:
		add(&r.Rebases, ok)
		add(&r.Confirmed, ok && o.Rebase.Replicas != 0)
		add(&r.Unknown, o.Open())
	}
	add(&r.Refused, o.Result.Outcome == history.Refused)
}
