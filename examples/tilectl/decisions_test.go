package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/cputime"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/tile"
)

// told is what two processes have logged of a tile: the first owns it until the second takes it over.
type told struct {
	processes [2][]decision.Event
	stream    []fence.Entry
}

// tell has two owners, one after the other, play a tile and log what they decide.
func (b *board) tell(id fence.TileID) (w told) {
	b.Helper()
	var stops []func()
	var paths []string
	for i, contact := range []string{"10.0.0.1:7000", "10.0.0.2:7000"} {
		path := filepath.Join(b.TempDir(), "log")
		paths = append(paths, path)
		log, err := decision.Create(path)
		require.NoError(b, err)
		s := log.Server(contact)
		seams := tile.Seams{Authority: s.Authority(b.authority), Store: s.Store(b.store), Log: b.log}
		p, err := tile.New(id, contact, seams, &register{},
			&tile.Config{TickInterval: 5 * time.Millisecond, TakeOver: true, SnapshotEvery: 1 << 30})
		require.NoError(b, err)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.Run(ctx) // the first is superseded
		}()
		for n := range 30 {
			_, err := p.Submit(b.Context(), tile.Intent{Tile: id, ActionID: fmt.Sprint(i, n), Body: []byte("word")})
			require.NoError(b, err)
		}
		stops = append(stops, func() { stop(); <-ended; require.NoError(b, log.Close()) })
	}
	w.stream = b.traced(id)
	for i, stop := range stops {
		stop()
		f, err := decision.Open(paths[i])
		require.NoError(b, err)
		keep := func(e *decision.Event) { w.processes[i] = append(w.processes[i], *e) }
		require.NoError(b, f.Each(0, func(e *decision.Event) {
			if e.Kind == decision.Began {
				keep(e)
			}
		}))
		require.NoError(b, f.Each(id, keep))
		w.processes[i] = append(w.processes[i], decision.Event{Kind: decision.Closed})
	}
	return w
}

// frames is a file of events.
func frames(events []decision.Event) []byte {
	b := []byte(decision.Magic)
	for i := range events {
		b = events[i].AppendFrame(b)
	}
	return b
}

// verdict is what verify trace says of it, in JSON, and whether anything is broken.
func (w *told) verdict(t *testing.T) (string, error) {
	t.Helper()
	var names []string
	write := func(name string, b []byte) {
		names = append(names, filepath.Join(t.TempDir(), name))
		require.NoError(t, os.WriteFile(names[len(names)-1], b, 0o600))
	}
	for i, events := range w.processes {
		write(fmt.Sprint("process-", i), frames(events))
	}
	if w.stream != nil {
		write("stream", framed(w.stream))
	}
	out, _, err := newBoard(t).tilectl(t.Context(), "-json verify trace "+strings.Join(names, " "))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], err
}

// find is the last event of a process that is as asked for.
func (w *told) find(t *testing.T, process int, is func(*decision.Event) bool) *decision.Event {
	t.Helper()
	events := w.processes[process]
	for i := len(events) - 1; i >= 0; i-- {
		if is(&events[i]) {
			return &events[i]
		}
	}
	require.Fail(t, "there is no such event")
	return nil
}

// add lets a process have decided something more, at its end or after it.
func (w *told) add(process int, after *decision.Event, e decision.Event) {
	e.Called, e.Took, e.Tile = after.Called+after.Took+1, 1, third
	events := w.processes[process]
	w.processes[process] = slices.Insert(events, len(events)-1, e)
}

// unaware lets the first process have been told nothing after a time.
func (w *told) unaware(after int64) {
	w.processes[0] = slices.DeleteFunc(w.processes[0], func(e decision.Event) bool { return e.Called > after })
}

// Each mutation of what two processes say is found by the promise that it breaks.
func TestVerifyDecisions(t *testing.T) {
	whole := newBoard(t).tell(third)
	isCommit := func(e *decision.Event) bool { return e.Kind == decision.Commit && !e.Refresh && !e.Install }
	isConfirmed := func(e *decision.Event) bool { return isCommit(e) && e.Replicas != 0 }
	isGrant := func(e *decision.Event) bool { return e.Kind == decision.Claim || e.Kind == decision.Promote }
	for name, c := range map[string]struct {
		change func(*testing.T, *told)
		breaks string
	}{
		"as it was":          {func(*testing.T, *told) {}, ""},
		"without the stream": {func(_ *testing.T, w *told) { w.stream = nil }, ""},
		"one process of two": {func(_ *testing.T, w *told) { w.processes[0] = w.processes[0][:1] }, ""},
		"a killed process": {func(_ *testing.T, w *told) {
			w.processes[1] = w.processes[1][:len(w.processes[1])-10]
		}, ""},
		"dropped events": {func(_ *testing.T, w *told) {
			w.processes[1][4] = decision.Event{Kind: decision.Dropped, Count: 3}
			w.processes[1] = slices.Delete(w.processes[1], 5, 7)
		}, ""},
		"committed under a stale epoch": {func(t *testing.T, w *told) {
			w.unaware(w.find(t, 1, isGrant).Called)
			e := *w.find(t, 0, isConfirmed)
			e.Prev, e.Next.Seq, e.Next.Chain = e.Next, e.Next.Seq+1, 5
			e.At = e.Next
			w.add(0, w.find(t, 1, isCommit), e)
		}, "confirmed is kept"},
		"a confirmed batch is missing": {func(t *testing.T, w *told) {
			lost := w.find(t, 1, isConfirmed).Next
			at := slices.IndexFunc(w.stream, func(e fence.Entry) bool { return e.Position == lost })
			w.stream = w.stream[:at]
		}, "confirmed is kept"},
		"a batch is committed twice": {func(t *testing.T, w *told) {
			w.stream = nil
			e := *w.find(t, 1, isCommit)
			e.Prev, e.Next.Seq, e.Next.Chain = e.Next, e.Next.Seq+1, 5
			e.At = e.Next
			w.add(1, &e, e)
		}, "idempotent commits"},
		"two writers of one batch": {func(t *testing.T, w *told) {
			w.unaware(w.find(t, 1, isGrant).Called)
			e := *w.find(t, 1, isCommit)
			e.Contact, e.Install, e.Outcome = "10.0.0.1:7000", true, decision.Unconfirmed
			w.add(0, w.find(t, 1, isCommit), e)
		}, "one writer"},
		"an epoch is granted twice": {func(t *testing.T, w *told) {
			e := *w.find(t, 0, isGrant)
			e.ID, e.Grant.ID, e.Grant.Epoch = fence.ClaimID{9}, fence.ClaimID{9}, w.find(t, 1, isGrant).Grant.Epoch
			w.add(0, w.find(t, 1, isGrant), e)
		}, "epochs are unique"},
		"an epoch regresses": {func(t *testing.T, w *told) {
			first, second := w.find(t, 0, isGrant), w.find(t, 1, isGrant)
			first.Grant.Epoch, second.Grant.Epoch = second.Grant.Epoch+1, first.Grant.Epoch+1
			second.Called += int64(time.Hour) // more than clocks may differ by
		}, "epochs climb"},
		"an owner goes on when it was told": {func(t *testing.T, w *told) {
			e, successor, last := *w.find(t, 0, isCommit), w.find(t, 1, isGrant), w.find(t, 1, isCommit)
			added := func() *decision.Event { return &w.processes[0][len(w.processes[0])-2] }
			e.Replicas, e.Prev, e.Next.Seq, e.Next.Chain = 0, e.Next, e.Next.Seq+1, 5
			e.Answer = decision.Answer{Outcome: decision.Refused, Reason: 1, Current: fence.Owner{Tile: third,
				Epoch: last.Epoch, Contact: last.Contact, Position: last.At, Tick: last.Tick}}
			w.add(0, last, e)
			w.add(0, added(), decision.Event{Kind: decision.Lookup,
				Answer: decision.Answer{Outcome: decision.OK, Grant: successor.Grant}})
			e.Prev, e.Next.Seq = e.Next, e.Next.Seq+1
			e.Answer = decision.Answer{Outcome: decision.Unknown}
			w.add(0, added(), e)
		}, "rejected writer stops"},
		"a tick before the install is confirmed": {func(t *testing.T, w *told) {
			w.find(t, 1, func(e *decision.Event) bool { return e.Install }).Outcome = decision.Unconfirmed
		}, "installed before served"},
		"an answer that the store could not give": {func(t *testing.T, w *told) {
			e := w.find(t, 1, isCommit)
			e.Outcome, e.Reason, e.At = decision.Refused, 1, fence.Position{}
			e.Current = fence.Owner{Tile: third, Epoch: e.Epoch, Contact: "10.0.0.2:7000", Position: e.Prev}
		}, "rejected writer learns"},
	} {
		t.Run(name, func(t *testing.T) {
			w := told{stream: slices.Clone(whole.stream)}
			for i := range w.processes {
				w.processes[i] = slices.Clone(whole.processes[i])
			}
			c.change(t, &w)
			line, err := w.verdict(t)
			var row decidedRow
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			if c.breaks == "" {
				require.NoError(t, err, line)
				require.Equal(t, "kept", row.Verdict)
				return
			}
			require.ErrorIs(t, err, errDamaged)
			require.True(t, strings.HasPrefix(row.Verdict, c.breaks+": "), row.Verdict)
		})
	}
}

// TestVerifyRefunds: an action whose price was given back is in no stream as applied.
func TestVerifyRefunds(t *testing.T) {
	w := newBoard(t).tell(third)
	events := &w.processes[1]
	for action, applied := range map[string]bool{"0 7": true, "never came": false} {
		*events = slices.Insert((*events)[:1:1], 1, decision.Event{Kind: decision.Settled, Action: action,
			Answer: decision.Answer{Outcome: decision.OK, Refunded: true}})
		var names []string
		for name, b := range map[string][]byte{"process": frames(*events), "stream": framed(w.stream)} {
			names = append(names, filepath.Join(t.TempDir(), name))
			require.NoError(t, os.WriteFile(names[len(names)-1], b, 0o600))
		}
		out, _, err := newBoard(t).tilectl(t.Context(), "verify trace "+strings.Join(names, " "))
		require.Equal(t, applied, err != nil, out)
		require.Equal(t, applied, strings.Contains(out, `buys nothing: action "0 7" was refunded`), out)
	}
}

// TestVerifyMatches: a match plays on one tile, whoever has asked for it and however often.
func TestVerifyMatches(t *testing.T) {
	for other, broken := range map[fence.TileID]bool{third: false, third + 1: true} {
		w := newBoard(t).tell(third)
		for i, id := range []fence.TileID{third, other} {
			w.processes[i] = slices.Insert(w.processes[i][:1:1], 1, decision.Event{Kind: decision.Assigned,
				Action: "m1", Count: uint64(id), Answer: decision.Answer{Outcome: decision.OK}})
		}
		var names []string
		for i, b := range [][]byte{frames(w.processes[0]), frames(w.processes[1]), framed(w.stream)} {
			names = append(names, filepath.Join(t.TempDir(), fmt.Sprint(i)))
			require.NoError(t, os.WriteFile(names[i], b, 0o600))
		}
		out, _, err := newBoard(t).tilectl(t.Context(), "verify trace "+strings.Join(names, " "))
		require.Equal(t, broken, err != nil, out)
		require.Equal(t, broken, strings.Contains(out, `plays once: match "m1" was assigned to tile`), out)
	}
}

// BenchmarkVerifyDecisions is how fast the decisions of one owner of each tile are judged: batches of which every tenth
// is confirmed.
func BenchmarkVerifyDecisions(b *testing.B) {
	for _, tiles := range []int{10, 1000} {
		b.Run(fmt.Sprintf("tiles=%d", tiles), func(b *testing.B) {
			const decisions = 1_000_000
			path := filepath.Join(b.TempDir(), "log")
			writeDecisions(b, path, tiles, decisions)
			d, _, err := openDecisions([]string{path})
			require.NoError(b, err)
			t := &tool{options: &options{json: true, skew: time.Second}, out: &printer{io.Discard}}
			for b.Loop() {
				require.NoError(b, d.verify(t, nil))
			}
			b.ReportMetric(decisions*float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// TestVerifyManyDecisions judges as many as the environment says: TILEFENCE_DECISIONS=10000000.
func TestVerifyManyDecisions(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TILEFENCE_DECISIONS"))
	if err != nil {
		n = 20_000
	}
	path := filepath.Join(t.TempDir(), "log")
	writeDecisions(t, path, 100, n)
	board, began, before := newBoard(t), time.Now(), cputime.Used()
	out, _, err := board.tilectl(t.Context(), "verify trace "+path)
	require.NoError(t, err, out)
	t.Logf("%d decisions in %v, %v of CPU time", n, time.Since(began).Round(time.Millisecond), cputime.Used()-before)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 100+3, "head, tiles, sum and what never happened")
	t.Log(lines[101])
}

// writeDecisions writes a log of as many decisions, of tiles that have one owner each.
func writeDecisions(tb testing.TB, path string, tiles, decisions int) {
	tb.Helper()
	f, err := os.Create(path)
	require.NoError(tb, err)
	w := bufio.NewWriterSize(f, 1<<20)
	frame := []byte(decision.Magic)
	now := time.Now().UnixNano()
	put := func(e decision.Event) {
		now += 1000
		e.Called, e.Took = now, 500
		frame = e.AppendFrame(frame)
		_, _ = w.Write(frame) // Flush has its error
		frame = frame[:0]
	}
	put(decision.Event{Kind: decision.Began, Contact: "10.0.0.1:7000"})
	at := make([]fence.Position, tiles)
	for n := range decisions {
		i := n % tiles
		id, seq := fence.TileID(i+1), fence.Seq(n/tiles)
		e := decision.Event{Kind: decision.Commit, Tile: id, Epoch: 1, Prev: at[i], Tick: fence.Tick(seq), Bytes: 80,
			Next: fence.Position{Epoch: 1, Seq: seq, Chain: fence.Chain(n)}, State: uint64(n), Install: seq == 1,
			Answer: decision.Answer{Outcome: decision.OK}}
		if seq%10 == 1 {
			e.Replicas = fence.AllReplicas
		}
		if seq == 0 {
			claim := fence.ClaimID{byte(i), byte(i >> 8), 1}
			e = decision.Event{Kind: decision.Claim, Tile: id, ID: claim, Answer: decision.Answer{Outcome: decision.OK,
				Grant: fence.Grant{Epoch: 1, Contact: "10.0.0.1:7000", ID: claim}}}
		} else {
			at[i] = e.Next
		}
		put(e)
	}
	put(decision.Event{Kind: decision.Closed})
	require.NoError(tb, errors.Join(w.Flush(), f.Close()))
}
