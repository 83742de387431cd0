package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// How long a test waits for asynchronous effects, and how often it polls.
const (
	waitFor = 10 * time.Second
	poll    = time.Millisecond
)

// board is a deployment in memory, with tilectl opened on it.
type board struct {
	*testing.T
	authority fence.Authority
	store     *memfence.Store
	log       *memstream.Log
	durable   checkpoint.Backend
	fanout    *memfanout.Broker
	publisher fanout.Publisher // nil: to fanout
	answers   string           // typed by the operator
}

func newBoard(t *testing.T) *board {
	b := &board{T: t, authority: memfence.NewAuthority(), store: memfence.New(), durable: memcheckpoint.New(),
		fanout: memfanout.New()}
	b.log = memstream.New(b.store)
	return b
}

// own commits n batches to a tile under a new epoch.
func (b *board) own(id fence.TileID, contact string, n int) (fence.Grant, fence.Position) {
	b.Helper()
	g, err := b.authority.Claim(b.Context(), fence.Claim{Tile: id, Contact: contact, ID: fence.NewClaimID()})
	require.NoError(b, err)
	var at fence.Position
	for i := range n {
		payload, private, err := (&stream.Batch{Events: [][]byte{[]byte("event")},
			Resolutions: []stream.Resolution{{ActionID: "a1", Outcome: stream.Applied}}}).Encode()
		require.NoError(b, err)
		r, err := b.store.Commit(b.Context(),
			fence.Commit{Tile: id, Epoch: g.Epoch, Contact: contact, Prev: at, Tick: fence.Tick(i + 1),
				At: time.UnixMilli(1_700_000_000_000), Payload: payload, Private: private, Install: i == 0})
		require.NoError(b, err)
		at = r.Position
	}
	return g, at
}

// tilectl runs a command and returns what it printed.
func (b *board) tilectl(ctx context.Context, line string) (out, errs string, err error) {
	b.Helper()
	var o, e bytes.Buffer
	options, err := parse(strings.Fields(line), &e)
	require.NoError(b, err)
	c, rest, err := find(options.args)
	require.NoError(b, err)
	rest, err = c.arguments(rest)
	require.NoError(b, err)
	if b.publisher == nil {
		b.publisher = b.fanout
	}
	t := &tool{options: options, in: strings.NewReader(b.answers), out: &printer{&o}, raw: &o, errs: &printer{&e},
		publisher: b.publisher,
		authority: b.authority, store: b.store, log: b.log, checkpoints: b.durable}
	err = c.run(ctx, t, rest)
	return o.String(), e.String(), err
}

const first, second, third fence.TileID = 0x85283083fffffff, 0x85283087fffffff, 0x8528308bfffffff

func TestTiles(t *testing.T) {
	b := newBoard(t)
	b.own(first, "10.0.0.1:7000", 3)
	g, at := b.own(second, "10.0.0.2:7000", 5)
	require.NoError(t, b.store.SaveSnapshot(t.Context(),
		fence.SnapshotWrite{Tile: second, Position: at, Tick: 5, Blob: []byte("state")}))
	require.NoError(t, stream.MarkOne(t.Context(), b.log,
		stream.MarkWrite{Tile: second, Consumer: stream.BridgeAcked, Seq: 3}))
	trimmed, err := b.log.Trim(t.Context(), stream.TrimRequest{Tile: second, Lease: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 2, trimmed.Removed)
	require.NoError(t, stream.MarkOne(t.Context(), b.log,
		stream.MarkWrite{Tile: second, Consumer: stream.BridgeAcked, Seq: 4}))
	require.NoError(t, stream.MarkOne(t.Context(), b.log,
		stream.MarkWrite{Tile: second, Consumer: stream.RelayMember("slow"), Seq: 4}))
	require.NoError(t, b.authority.Release(t.Context(), g))
	b.own(third, "10.0.0.3:7000", 0)

	out, errs, err := b.tilectl(t.Context(), "tiles")
	require.NoError(t, err)
	require.Empty(t, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	require.Regexp(t, `^85283083fffffff +owned +10\.0\.0\.1:7000 +1 .* 3 +3 `, lines[1])
	require.Regexp(t, `^85283087fffffff +released +- +1 .* 5 +3 +\d+ B +3 +4 +bridge +0$`, lines[2])
	require.Regexp(t, `^8528308bfffffff +silent +10\.0\.0\.3:7000 `, lines[3])

	out, _, err = b.tilectl(t.Context(), "-json tiles 85283087fffffff")
	require.NoError(t, err)
	var row tileRow
	require.NoError(t, json.Unmarshal([]byte(out), &row))
	require.Equal(t, stream.BridgeAcked, row.Held)
	require.Equal(t, at.Chain, row.Chain)
	require.InDelta(t, time.Now().UnixMilli(), row.Since, 60_000)
	require.EqualValues(t, 1, row.Mints)
	require.EqualValues(t, 3, row.Trimmed)
	require.Len(t, row.Marks, 2)
	require.Equal(t, stream.RelayMember("slow"), row.Marks[1].Consumer)
	require.EqualValues(t, 1, row.Marks[1].Behind)

	out, _, err = b.tilectl(t.Context(), "tile 85283087fffffff")
	require.NoError(t, err)
	require.Regexp(t, `mark +bridge +sequence 4, 1 behind`, out)
	require.Regexp(t, `mark +relay:slow +sequence 4, 1 behind`, out)
	require.Contains(t, out, "trimmed to 3, floor 4 held by bridge")
	out, _, err = b.tilectl(t.Context(), "tile 8528308ffffffff")
	require.NoError(t, err)
	require.Contains(t, out, "never owned")
}

// TestTilesSaysWhatIsWrong: the authority and the owner hash disagree.
func TestTilesSaysWhatIsWrong(t *testing.T) {
	b := newBoard(t)
	_, at := b.own(first, "10.0.0.1:7000", 1)
	_, err := b.store.Commit(t.Context(), fence.Commit{Tile: first, Epoch: 7, Contact: "10.0.0.9:7000", Prev: at,
		Install: true})
	require.NoError(t, err)
	_, errs, err := b.tilectl(t.Context(), "tiles")
	require.NoError(t, err)
	require.Contains(t, errs, "the owner hash is at epoch 7: was the authority restored to an older state?")
	b.authority = memfence.NewAuthority()
	out, errs, err := b.tilectl(t.Context(), "tiles 85283083fffffff")
	require.NoError(t, err)
	require.Contains(t, out, "unrecorded")
	require.Contains(t, errs, "was the authority restored?")
}

func TestTail(t *testing.T) {
	b := newBoard(t)
	b.own(first, "10.0.0.1:7000", 3)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	out, _, err := b.tilectl(ctx, "-json tail 85283083fffffff -from 1")
	require.NoError(t, err)
	var rows []entryRow
	for line := range strings.Lines(out) {
		var r entryRow
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Empty(t, r.Problem)
		rows = append(rows, r)
	}
	require.Len(t, rows, 2)
	require.Equal(t, fence.Seq(2), rows[0].Seq)
	require.Equal(t, []stream.Resolution{{ActionID: "a1", Outcome: stream.Applied}}, rows[1].Outcomes)
}

// TestRestore: a tile is restored to its checkpoint, and its next owner starts there.
func TestRestore(t *testing.T) {
	b := newBoard(t)
	seams := tile.Seams{Authority: b.authority, Store: b.store, Log: b.log}
	play := func(contact string, actions ...string) []string {
		rules := &register{}
		p, err := tile.New(first, contact, seams, rules,
			&tile.Config{TickInterval: 5 * time.Millisecond, TakeOver: true})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		for _, a := range actions {
			_, err := p.Submit(t.Context(), tile.Intent{Tile: first, ActionID: a, Body: []byte(a)})
			require.NoError(t, err)
		}
		waittest.Until(t, func() bool { return p.Status().State == tile.Serving }, 10*time.Second, time.Millisecond)
		stop()
		require.NoError(t, <-ended)
		return rules.seen
	}
	require.Equal(t, []string{"a", "b"}, play("10.0.0.1:7000", "a", "b"))
	snap, found, err := b.log.Snapshot(t.Context(), first)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, b.durable.Put(t.Context(), first, snap))
	require.Equal(t, []string{"a", "b", "c"}, play("10.0.0.1:7000", "c"))
	before, err := b.log.Last(t.Context(), first)
	require.NoError(t, err)

	out, _, err := b.tilectl(t.Context(), "checkpoint restore 85283083fffffff -force")
	require.NoError(t, err)
	require.Contains(t, out, "is restored to tick")
	require.Equal(t, []string{"a", "b"}, play("10.0.0.2:7000"))
	after, err := b.log.Last(t.Context(), first)
	require.NoError(t, err)
	require.Greater(t, after.Seq, before.Seq)
	require.Greater(t, after.Epoch, before.Epoch)

	grant, err := b.authority.Lookup(t.Context(), first)
	require.NoError(t, err)
	require.False(t, grant.Held())
}

func TestRestoreAsksBeforeItTakes(t *testing.T) {
	b := newBoard(t)
	_, at := b.own(first, "10.0.0.1:7000", 2)
	blob := []byte("state")
	require.NoError(t, b.durable.Put(t.Context(), first,
		fence.Snapshot{Position: at, Tick: 2, Contact: "10.0.0.1:7000", Sum: fence.Checksum(blob), Blob: blob}))
	_, _, err := b.tilectl(t.Context(), "checkpoint restore 85283083fffffff")
	require.ErrorContains(t, err, "owned by 10.0.0.1:7000")
	owner, err := b.store.Owner(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, at, owner.Position)
	_, _, err = b.tilectl(t.Context(), "checkpoint restore 85283087fffffff")
	require.ErrorContains(t, err, "has no checkpoint")
	out, _, err := b.tilectl(t.Context(), "checkpoint verify")
	require.NoError(t, err)
	require.Contains(t, out, "intact")
	out, _, err = b.tilectl(t.Context(), "checkpoint show -blob 85283083fffffff")
	require.NoError(t, err)
	require.Equal(t, "state", out)
}

func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "say what to do",
		"dance":                       `no command "dance"`,
		"checkpoint dance":            `no command "checkpoint dance"`,
		"tile":                        "takes 1 tiles, not 0",
		"tile 85283083FFFFFFF":        "lower-case hexadecimal",
		"tiles -redis= ":              "-redis is missing",
		"checkpoint list -dynamodb= ": "-dynamodb is missing",
		"tiles -what":                 "not defined: -what",
		"deadletters":                 "takes 1 tiles, not 0",
		"deadletters replay":          "takes a tile",
		"deadletters drop all":        "lower-case hexadecimal",
		"-timeout x tiles":            "invalid value",
	} {
		var out, errs bytes.Buffer
		require.Equal(t, statusUsage, run(t.Context(), strings.Fields(line), nil, &out, &errs), line)
		require.Contains(t, errs.String(), want, line)
		require.Empty(t, out.String())
	}
	var errs bytes.Buffer
	require.Equal(t, statusOK, run(t.Context(), []string{"-h"}, nil, &errs, &errs))
	for _, c := range commands {
		require.Contains(t, errs.String(), c.says)
	}
}

// register is a game that remembers its events.
type register struct{ seen []string }

func (r *register) Restore(b []byte) error {
	r.seen = nil
	if len(b) > 0 {
		return json.Unmarshal(b, &r.seen)
	}
	return nil
}

func (r *register) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for _, in := range intents {
		events, out = append(events, in.Body), append(out, stream.Applied)
	}
	return events, out
}

func (r *register) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		r.seen = append(r.seen, string(e))
	}
	return nil
}

func (r *register) Snapshot() ([]byte, error) { return json.Marshal(r.seen) }
