package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
)

// verifyRow is what was proved of one history, or the first promise that it breaks.
type verifyRow struct {
	Tile    fence.TileID `json:"tile"`
	From    string       `json:"from"` // the position that the first entry follows
	To      string       `json:"to"`
	Entries int          `json:"entries"`
	Events  int          `json:"events"`
	Owners  int          `json:"owners"`  // that began in it, each with its claim or a rebase
	Rebases int          `json:"rebases"` // what came before one is replaced by its state
	Actions int          `json:"actions"` // decided once since the last rebase
	Verdict string       `json:"verdict"`
}

// verifier reads one tile's history, an entry at a time, and knows nothing but the entries: it recomputes every chain
// and compares every position.
type verifier struct {
	row     verifyRow
	at      fence.Position // of the last entry
	seed    maphash.Seed
	claims  map[fence.ClaimID]fence.Epoch
	decided map[uint64]fence.Seq // by the hash of an action ID, since the last rebase

	refunded map[string]bool // actions that no tile may have applied, by the logs of gateways
	keep     bool            // the entries, for the decisions that led to them
	entries  []history.Entry
}

func newVerifier(tile fence.TileID) *verifier {
	return &verifier{row: verifyRow{Tile: tile}, seed: maphash.MakeSeed(), claims: map[fence.ClaimID]fence.Epoch{},
		decided: map[uint64]fence.Seq{}}
}

// add checks one entry. The error is the promise that it breaks.
func (v *verifier) add(e *fence.Entry) error {
	if err := e.Verify(); err != nil {
		return err
	}
	b, err := stream.DecodeBatch(e)
	if err != nil {
		return err
	}
	switch {
	case e.Tile != v.row.Tile:
		return fmt.Errorf("entry %s is of tile %s", e.Position, e.Tile)
	case e.Kind == fence.KindRebase:
		err = v.rebases(e)
	default:
		err = v.follows(e, b)
	}
	if err != nil {
		return err
	}
	for _, r := range b.Resolutions {
		id := maphash.String(v.seed, r.ActionID)
		if at := v.decided[id]; at != 0 {
			return fmt.Errorf("one outcome: action %q is decided at sequence %d and again at %d", r.ActionID, at, e.Seq)
		}
		v.decided[id] = e.Seq
		if r.Outcome == stream.Applied && v.refunded[r.ActionID] {
			return fmt.Errorf("a price that is given back buys nothing: action %q was refunded, and is applied at %s",
				r.ActionID, e.Position)
		}
	}
	if v.keep {
		v.entries = append(v.entries, history.EntryOf(e))
	}
	if v.row.Entries == 0 {
		v.row.From = e.Prev.String()
	}
	v.at = e.Position
	v.row.Entries++
	v.row.Events += len(b.Events)
	v.row.Actions = len(v.decided)
	return nil
}

// rebases checks a rebase. What was decided before may be decided again: the entry does not tell what its state holds.
func (v *verifier) rebases(e *fence.Entry) error {
	if e.Epoch <= v.at.Epoch || e.Seq <= v.at.Seq {
		return fmt.Errorf("epochs and sequences climb: the rebase at %s comes after %s", e.Position, v.at)
	}
	clear(v.decided)
	v.row.Rebases++
	v.row.Owners++
	return nil
}

// follows checks that a batch comes after the entry before it, and that an epoch begins with its claim.
func (v *verifier) follows(e *fence.Entry, b *stream.Batch) error {
	begins := b.Claim != fence.ClaimID{}
	switch {
	case v.row.Entries > 0 && e.Prev != v.at:
		return fmt.Errorf("no fork: entry %s follows %s, and the one before it is %s", e.Position, e.Prev, v.at)
	case e.Seq != e.Prev.Seq+1 || e.Epoch < e.Prev.Epoch:
		return fmt.Errorf("epochs climb and no sequence is missing: entry %s follows %s", e.Position, e.Prev)
	case e.Epoch > e.Prev.Epoch && !begins:
		return fmt.Errorf("one writer: epoch %d begins at %s without a claim", e.Epoch, e.Position)
	case begins && (v.claims[b.Claim] != 0 || e.Epoch == e.Prev.Epoch):
		return fmt.Errorf("one writer: a claim comes again at %s, or in the middle of its epoch", e.Position)
	case begins:
		v.claims[b.Claim] = e.Epoch
		v.row.Owners++
	}
	return nil
}

// verifyAttempts is how often a tile is read whose history does not hold together: a trim may have come between two
// readings.
const verifyAttempts = 3

// verify reads tiles as they stand.
func verify(ctx context.Context, t *tool, args []string) error {
	return t.verifyEach(args, func(name string, v *verifier) error {
		id, err := fence.ParseTileID(name)
		if err != nil {
			return err
		}
		for range verifyAttempts {
			*v = *newVerifier(id)
			if err = t.verifyTile(ctx, v); err == nil {
				break
			}
		}
		return err
	})
}

// verifyTile reads a tile's snapshot, stream, owner hash and record. A tile that is run meanwhile only moves on.
func (t *tool) verifyTile(ctx context.Context, v *verifier) error {
	snapshot, found, err := t.log.Snapshot(ctx, v.row.Tile)
	if err != nil {
		return err
	}
	joined := !found
	owner, err := t.entries(ctx, v.row.Tile, func(e *fence.Entry) error {
		joined = joined || e.Prev == snapshot.Position || e.Position == snapshot.Position ||
			e.Kind == fence.KindRebase && e.Seq > snapshot.Seq // a later snapshot came with it
		return v.add(e)
	})
	switch {
	case err != nil:
		return err
	case v.row.Entries == 0:
		return nil
	case !joined:
		return fmt.Errorf("recovery: the snapshot at %s is not part of the stream", snapshot.Position)
	case owner.Present() && owner.Position != v.at:
		return fmt.Errorf("the owner hash is at %s, and the stream ends at %s", owner.Position, v.at)
	}
	g, err := t.authority.Lookup(ctx, v.row.Tile)
	if err != nil && !errors.Is(err, fence.ErrNeverOwned) {
		return err
	}
	if g.Epoch < v.at.Epoch {
		return fmt.Errorf("epochs are the authority's: its record is of %d, the stream of %d; was it restored to an "+
			"older state?", g.Epoch, v.at.Epoch)
	}
	return nil
}

// entries calls f for each entry of a tile's stream after -from, and returns the owner hash as it was at its end.
func (t *tool) entries(ctx context.Context, id fence.TileID, f func(*fence.Entry) error) (fence.Owner, error) {
	for after := fence.Seq(t.options.from); ; {
		chunks, err := t.log.Read(ctx, []stream.Cursor{{Tile: id, After: after}})
		if err != nil {
			return fence.Owner{}, err
		}
		c := &chunks[0]
		for i := range c.Entries {
			if err := f(&c.Entries[i]); err != nil {
				return fence.Owner{}, err
			}
			after = c.Entries[i].Seq
		}
		switch {
		case c.Err != nil:
			return fence.Owner{}, c.Err
		case c.Poison != nil:
			return fence.Owner{}, fmt.Errorf("sequence %d cannot be read: %s", c.Poison.Seq, c.Poison.Reason)
		case len(c.Entries) == 0:
			return c.Owner, nil
		}
	}
}

// verifyTrace reads files that trace has written, and logs of decisions. It needs no back end.
func verifyTrace(_ context.Context, t *tool, args []string) error {
	d, args, err := openDecisions(args)
	if err != nil {
		return err
	}
	streams := map[fence.TileID][]history.Entry{}
	if len(args) > 0 || len(d.logs) == 0 {
		err = t.verifyEach(args, func(name string, v *verifier) error {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			v.refunded, v.keep = d.refunded, len(d.logs) > 0
			err = v.trace(bufio.NewReaderSize(f, 1<<20))
			streams[v.row.Tile] = v.entries
			return err
		})
	}
	if len(d.logs) == 0 || err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	return errors.Join(err, d.verify(t, streams))
}

// trace reads frames, each after its length as four bytes, big-endian.
func (v *verifier) trace(r io.Reader) error {
	var head [4]byte
	var frame []byte
	for {
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > fence.MaxFrame {
			return fmt.Errorf("after %s comes no frame: this is no trace, or it is damaged", v.at)
		}
		frame = append(frame[:0], make([]byte, n)...)
		if _, err := io.ReadFull(r, frame); err != nil {
			return fmt.Errorf("after %s the trace breaks off: %w", v.at, err)
		}
		e, err := fence.DecodeEntry(frame)
		if err != nil {
			return err
		}
		if v.row.Entries == 0 {
			v.row.Tile = e.Tile
		}
		if err := v.add(&e); err != nil {
			return err
		}
	}
}

func (t *tool) verifyEach(args []string, f func(string, *verifier) error) error {
	var rows []verifyRow
	began, entries, broken := time.Now(), 0, false
	for _, name := range args {
		v := newVerifier(0)
		err := f(name, v)
		if v.row.Verdict = "kept"; err != nil {
			v.row.Verdict, broken = err.Error(), true
		}
		v.row.To = v.at.String()
		rows = append(rows, v.row)
		entries += v.row.Entries
	}
	err := printTable(t, "TILE FROM TO ENTRIES EVENTS OWNERS REBASES ACTIONS VERDICT", rows, func(r *verifyRow) []any {
		return []any{r.Tile, r.From, r.To, r.Entries, r.Events, r.Owners, r.Rebases, r.Actions, r.Verdict}
	})
	if err != nil {
		return err
	}
	if !t.options.json {
		t.out.printf("%d entries in %v: each chain is its content's, and each entry follows the one before\n",
			entries, time.Since(began).Round(time.Millisecond))
	}
	if broken {
		return errDamaged
	}
	return nil
}

// trace writes a tile's stream, as it stands, to standard output, for verify trace to read anywhere.
func trace(ctx context.Context, t *tool, args []string) error {
	if err := t.redirected(); err != nil {
		return err
	}
	id := tileOf(args[0])
	w := bufio.NewWriter(t.raw)
	_, err := t.entries(ctx, id, func(e *fence.Entry) error {
		_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(e.Frame))), e.Frame...))
		return err
	})
	return errors.Join(err, w.Flush())
}
