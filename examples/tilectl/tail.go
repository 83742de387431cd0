package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
)

// entryRow is one committed batch.
type entryRow struct {
	Seq      fence.Seq           `json:"seq"`
	Epoch    fence.Epoch         `json:"epoch"`
	Chain    fence.Chain         `json:"chain"`
	Tick     fence.Tick          `json:"tick"`
	At       int64               `json:"at_ms"` // by the owner's clock
	Kind     string              `json:"kind"`  // batch, install or rebase
	Events   int                 `json:"events"`
	Bytes    int                 `json:"bytes"`
	Outcomes []stream.Resolution `json:"outcomes,omitempty"`
	Claim    string              `json:"claim,omitempty"` // of an install
	Problem  string              `json:"problem,omitempty"`
}

// pollEvery is how often a quiet tile is read.
const pollEvery = 100 * time.Millisecond

// tail prints a tile's batches until ctx ends.
func tail(ctx context.Context, t *tool, args []string) error {
	id := tileOf(args[0])
	after := fence.Seq(t.options.from)
	if after == 0 {
		last, err := t.log.Last(ctx, id)
		if err != nil {
			return err
		}
		after = last.Seq
	}
	if !t.options.json {
		t.out.printf("%-12s  %10s  %6s  %-16s  %8s  %-7s  %6s  %8s\n", "COMMITTED", "SEQ", "EPOCH", "CHAIN",
			"TICK", "KIND", "EVENTS", "BYTES")
	}
	var previous fence.Position
	for {
		chunks, err := t.log.Read(ctx, []stream.Cursor{{Tile: id, After: after}})
		if err == nil {
			err = chunks[0].Err
		}
		select {
		case <-ctx.Done():
			return nil // cancelled, perhaps during a read
		default:
		}
		if err != nil {
			return err
		}
		for i := range chunks[0].Entries {
			e := &chunks[0].Entries[i]
			t.printEntry(e, previous)
			after, previous = e.Seq, e.Position
		}
		if p := chunks[0].Poison; p != nil && p.Seq > fence.FarSeq {
			return p.Damage()
		} else if p != nil {
			t.errs.printf("tile %s: sequence %d cannot be read: %s\n", id, p.Seq, p.Reason)
			after, previous = p.Seq, fence.Position{}
		}
		if len(chunks[0].Entries) > 0 {
			continue
		}
		if !wait.For(ctx, pollEvery) {
			return nil
		}
	}
}

func (t *tool) printEntry(e *fence.Entry, previous fence.Position) {
	r := entryRow{Seq: e.Seq, Epoch: e.Epoch, Chain: e.Chain, Tick: e.Tick, At: fence.Millis(e.At),
		Kind: e.Kind.String(), Bytes: len(e.Frame)}
	var problems []error
	if err := e.Verify(); err != nil {
		problems = append(problems, err)
	}
	b, err := stream.DecodeBatch(e)
	switch {
	case err != nil:
		problems = append(problems, err)
	case b.Claim != fence.ClaimID{}:
		r.Kind, r.Claim = "install", b.Claim.String()
	default:
		r.Events, r.Outcomes = len(b.Events), b.Resolutions
	}
	if !previous.IsZero() && e.Kind != fence.KindRebase && e.Prev != previous {
		problems = append(problems, fmt.Errorf("follows %s, not the entry before it", e.Prev))
	}
	if err := errors.Join(problems...); err != nil {
		r.Problem = err.Error()
	}
	if t.options.json {
		_ = json.NewEncoder(t.out.stream()).Encode(&r) // the reader may have gone
		return
	}
	t.out.printf("%-12s  %10d  %6d  %s  %8d  %-7s  %6d  %8d\n",
		time.UnixMilli(r.At).UTC().Format("15:04:05.000"), r.Seq, r.Epoch, r.Chain, r.Tick, r.Kind, r.Events,
		r.Bytes)
	if r.Problem != "" {
		t.out.printf("              ! %s\n", r.Problem)
	}
}
