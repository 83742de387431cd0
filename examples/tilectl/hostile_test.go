package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile/plan"
)

// hostile is what a store may say: it moves the cursor, makes lines and columns, and turns the direction of writing.
const hostile = "a\x1b[2J\nFORGED\r\tFORGED  b\u202ec\u2066d\u200be\u009bf\x7f\u2028\U000E0001\xff\xc3"

// harmless checks that nothing of an output is obeyed by a terminal, and that no line was made by a store.
func harmless(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%.2000q", text)
	for line := range strings.Lines(text) {
		require.False(t, strings.HasPrefix(line, "FORGED"), "%.2000q", text)
		require.Equal(t, strings.TrimSuffix(line, "\n"), escaped(strings.TrimSuffix(line, "\n"), "\t"))
	}
}

// liar is each back end of a deployment that other hands write to. Where a store has a text, it is say; if fails is
// set, each call fails with it.
type liar struct {
	*board
	say   string
	fails bool
}

// err is what a call fails with, if it does.
func (l *liar) err() error {
	if !l.fails {
		return nil
	}
	text := errors.New(l.say)
	return &fence.StoreError{Op: l.say, Outcome: fence.ErrNotApplied, Err: errors.Join(text, text)}
}

// The embedded interfaces of these are nil: what a new command calls besides must be added here.
type (
	lyingAuthority struct {
		fence.Authority
		*liar
		contact string
	}
	lyingStore struct {
		fence.Store
		*liar
	}
	lyingLog struct {
		log
		*liar
	}
	lyingCheckpoints struct {
		checkpoint.Store
		*liar
	}
	lyingLedger struct {
		admission.Store
		*liar
	}
	lyingPlans struct {
		plan.Store
		*liar
	}
	lyingMatch struct {
		matchStore
		*liar
	}
	lyingRepair struct{ *liar }
	lyingBroker struct{ *liar }
)

func (a lyingAuthority) grant() fence.Grant {
	return fence.Grant{Tile: first, Epoch: 1, Contact: a.contact, ID: fence.NewClaimID(), Minted: time.Now(), Mints: 1}
}

func (a lyingAuthority) Lookup(context.Context, fence.TileID) (fence.Grant, error) {
	return a.grant(), a.err()
}

func (a lyingAuthority) List(context.Context, fence.TileID, int) ([]fence.Grant, error) {
	return []fence.Grant{a.grant()}, a.err()
}

func (a lyingAuthority) Promote(context.Context, fence.Claim) (fence.Grant, error) {
	return a.grant(), a.err()
}
func (a lyingAuthority) Claim(context.Context, fence.Claim) (fence.Grant, error) {
	return a.grant(), a.err()
}
func (a lyingAuthority) Release(context.Context, fence.Grant) error { return a.err() }

func (s lyingStore) Rebase(context.Context, fence.Rebase) (fence.Receipt, error) {
	return fence.Receipt{}, s.err()
}

func (s lyingStore) Owner(context.Context, fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: first, Epoch: 2, Contact: s.say}, s.err()
}

func (l lyingLog) Stat(_ context.Context, tiles []fence.TileID) ([]stream.Stat, error) {
	stats := make([]stream.Stat, len(tiles))
	for i := range stats {
		at := fence.Position{Epoch: 2, Seq: 3}
		owner := fence.Owner{Tile: tiles[i], Epoch: 2, Contact: l.say, Position: at}
		stats[i] = stream.Stat{Tile: tiles[i], Owner: owner, HasSnapshot: true, Last: at,
			Snapshot: stream.SnapshotHead{Position: at},
			Marks:    map[stream.Consumer]stream.Mark{stream.Consumer(l.say): {Seq: 1}}, Err: errors.New(l.say)}
	}
	return stats, l.err()
}

func (l lyingLog) Read(_ context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	if cursors[0].After > 2 { // after the last entry
		return []stream.Chunk{{Err: errors.New(l.say)}}, nil
	}
	return []stream.Chunk{{Tile: first, Entries: l.entries(), Poison: l.poison()}}, l.err()
}

func (l *liar) poison() *stream.Poison {
	return &stream.Poison{Tile: first, Seq: 3, Reason: l.say, Letter: l.say, Fields: map[string]string{l.say: l.say}}
}

// entries is the history that play has made.
func (l *liar) entries() []fence.Entry {
	chunks, err := l.board.log.Read(l.Context(), []stream.Cursor{{Tile: first}})
	require.NoError(l, err)
	return chunks[0].Entries
}

func (l lyingLog) Last(context.Context, fence.TileID) (fence.Position, error) {
	return fence.Position{}, l.err()
}

func (l lyingLog) Snapshot(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	s, err := l.snapshot()
	return s, true, err
}

func (l *liar) snapshot() (fence.Snapshot, error) {
	blob := []byte(l.say)
	return fence.Snapshot{Contact: l.say, Blob: blob, Sum: fence.Checksum(blob)}, l.err()
}

func (l lyingLog) DeadLetters(context.Context, fence.TileID) ([]stream.Poison, error) {
	return []stream.Poison{*l.poison(), poisonOf(first, &l.entries()[0])}, l.err()
}

func (l lyingLog) RemoveDeadLetter(context.Context, fence.TileID, string) (bool, error) {
	return true, l.err()
}

func (c lyingCheckpoints) Get(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	s, err := c.snapshot()
	return s, true, err
}

func (c lyingCheckpoints) List(context.Context) iter.Seq2[checkpoint.Head, error] {
	return func(yield func(checkpoint.Head, error) bool) {
		yield(checkpoint.Head{Tile: first, Contact: c.say, Sum: c.say}, c.err())
	}
}

func (l lyingLedger) artifact() admission.Artifact {
	return admission.Artifact{ActionID: l.say, Actor: l.say, Asset: l.say, Tile: first, Cost: 1, Attempts: 1,
		Admitted: time.Now().Add(-time.Hour)}
}

func (l lyingLedger) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (l lyingLedger) Scan(_ context.Context, visit func(admission.Record) error) error {
	rich := admission.Account{Owner: l.say, Asset: l.say, Balance: admission.MaxAmount + 1}
	for _, r := range []admission.Record{rich, l.artifact(), &fence.CorruptError{What: l.say, Detail: l.say}} {
		if err := visit(r); err != nil {
			return err
		}
	}
	return l.err()
}

func (l lyingLedger) Lookup(context.Context, string) (admission.Artifact, error) {
	return l.artifact(), l.err()
}

func (l lyingLedger) Settle(_ context.Context, s admission.Settlement) (admission.Artifact, error) {
	a := l.artifact()
	a.Outcome, a.Resolved = s.Outcome, time.Now()
	return a, l.err()
}

func (p lyingPlans) Shards() int { return 1 }
func (p lyingPlans) Depth(context.Context, int) (plan.Depth, error) {
	return plan.Depth{Dead: 1}, p.err()
}
func (p lyingPlans) Replay(context.Context, int, string) error { return p.err() }
func (p lyingPlans) Drop(context.Context, int, string) error   { return p.err() }
func (p lyingPlans) Letters(context.Context, int) ([]plan.Letter, error) {
	return []plan.Letter{{Error: p.say, Request: plan.Request{ID: p.say, Tile: first, Entity: p.say,
		Requester: p.say, Words: p.say}}}, p.err()
}

func (m lyingMatch) Names(context.Context) (shards, pools []string, err error) {
	return []string{m.say + "/0"}, []string{m.say}, nil
}

func (m lyingMatch) Depth(context.Context, string) (match.Depth, error) {
	return match.Depth{Waiting: 1}, m.err()
}

func (m lyingMatch) List(context.Context, string, int) ([]match.Status, error) {
	t := match.Ticket{ID: m.say, Players: []match.Player{{ID: m.say, Role: m.say}},
		Attributes: map[string]string{m.say: m.say}}
	return slices.Repeat([]match.Status{{Ticket: t, State: match.Waiting,
		Why: match.Why{Reason: match.Reason(m.say), Roles: []string{m.say}}}}, 2), m.err()
}

func (m lyingMatch) Tiles(context.Context, string) ([]match.Load, error) {
	return []match.Load{{Offer: match.Offer{Tile: first, Contact: m.say}}}, m.err()
}

func (r lyingRepair) Examine(context.Context, fence.TileID, fence.Epoch, ...string) (*redisstream.Examination, error) {
	d := redisstream.Damage{Field: r.say, Stands: r.say, CanBe: r.say, Remedy: r.say}
	return &redisstream.Examination{Tile: first, Damage: []redisstream.Damage{d}}, r.err()
}

func (r lyingRepair) Repair(context.Context, *redisstream.Examination) error { return r.err() }

func (b lyingBroker) Observe(_ context.Context, o natsfanout.Observer) error {
	o.Frame(first, 1)
	return b.err()
}

func (b lyingBroker) Audience(_ context.Context, tiles []fence.TileID) ([]int, error) {
	return make([]int, len(tiles)), b.err()
}

func (b lyingBroker) Publish(_ context.Context, m []fanout.Message) (int, error) {
	return len(m), b.err()
}

// lyingNode fails each command of a Redis with the text.
type lyingNode struct{ *liar }

func (lyingNode) DialHook(next redis.DialHook) redis.DialHook { return next }
func (n lyingNode) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errors.New(n.say) }
}
func (lyingNode) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lyingTables is a DynamoDB that refuses each request with the text.
func (l *liar) lyingTables() *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "x#ValidationException", "message": l.say})
	}))
	l.Cleanup(s.Close)
	return s
}

// play commits a batch that decides an action of a hostile name twice.
func (l *liar) play() {
	l.Helper()
	r := stream.Resolution{ActionID: hostile, Outcome: stream.Applied}
	var at fence.Position
	for _, b := range []stream.Batch{{Claim: fence.NewClaimID()}, {Resolutions: []stream.Resolution{r, r}}} {
		payload, private, err := b.Encode()
		require.NoError(l, err)
		done, err := l.board.store.Commit(l.Context(), fence.Commit{Tile: first, Epoch: 1, Contact: "a:1", Prev: at,
			Payload: payload, Private: private, Install: at.IsZero()})
		require.NoError(l, err)
		at = done.Position
	}
}

// tool is tilectl, opened on these back ends.
func (l *liar) tool(quarantined bool) *tool {
	contact := l.say
	if quarantined {
		b, err := json.Marshal(map[string]string{"quarantine": "closed", "at": "5/1", "by": l.say, "why": l.say})
		require.NoError(l, err)
		contact = string(b)
	}
	ledger, err := admission.New(lyingLedger{liar: l}, nil)
	require.NoError(l, err)
	nodes := redis.NewClusterClient(&redis.ClusterOptions{MaxRedirects: -1})
	l.Cleanup(func() { _ = nodes.Close() })
	nodes.AddHook(lyingNode{l})
	inspector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.fails || r.Method == http.MethodPost {
			http.Error(w, l.say, http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"state": l.say, "problems": []string{l.say}, "tiles": []any{
			map[string]any{"tile": first, "state": l.say, "owner": l.say, "durability": l.say, "problem": l.say}}})
	}))
	l.Cleanup(inspector.Close)
	return &tool{authority: lyingAuthority{liar: l, contact: contact}, store: lyingStore{liar: l},
		log: lyingLog{liar: l}, keys: lyingRepair{l}, checkpoints: lyingCheckpoints{liar: l},
		publisher: lyingBroker{l}, broker: lyingBroker{l}, audience: lyingBroker{l}, plans: lyingPlans{liar: l},
		match: lyingMatch{liar: l}, nodes: nodes, ledger: ledger,
		inspector: &inspect.Client{URL: inspector.URL}}
}

// arguments are those that a command is run with.
func (l *liar) arguments(c *command) []string {
	switch {
	case c.name == "slots move":
		return []string{"127.0.0.1:1", "0"}
	case c.name == "ledger resolve":
		return []string{l.say, "applied"}
	case c.name == "verify trace":
		return l.files()
	case c.tiles == oneWord:
		return []string{l.say}
	case c.tiles == 1, c.tiles == tileAndMore:
		return []string{first.String()}
	}
	return nil // all
}

// files are a trace, and a log of decisions that says that the price of what the trace has applied was given back.
func (l *liar) files() (names []string) {
	events := []decision.Event{{Kind: decision.Began, Contact: l.say}, {Kind: decision.Settled, Action: hostile,
		Answer: decision.Answer{Outcome: decision.OK, Refunded: true}}, {Kind: decision.Closed}}
	for name, b := range map[string][]byte{"process": frames(events), "stream": framed(l.entries()),
		"x": []byte(l.say)} {
		names = append(names, filepath.Join(l.TempDir(), name))
		require.NoError(l, os.WriteFile(names[len(names)-1], b, 0o600))
	}
	return names
}

// TestWhatStoresSayIsEscaped runs each command of the table on stores that say hostile texts wherever they have one,
// and on stores that fail with them: nothing that a terminal would obey comes out, and no line that a store made. A
// command that reads from a store this test does not have ends it with a nil pointer.
func TestWhatStoresSayIsEscaped(t *testing.T) {
	huge := hostile + strings.Repeat("x", 1<<17)
	for i := range commands {
		c := &commands[i]
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			said := ""
			for _, fails := range []bool{false, true} {
				for _, flags := range []string{"", "-json", "-yes -force -apply -for 1ms -older 1ns", "-dry-run",
					"huge"} {
					l := &liar{board: newBoard(t), say: hostile, fails: fails}
					l.play()
					if flags == "huge" {
						flags, l.say = "", huge
					}
					said += l.run(c, flags)
				}
			}
			if c.name != "tables describe" { // which asks no store
				require.Contains(t, said, `[2J`, "the texts of the stores are in what it prints")
			}
		})
	}
}

// run runs a command and returns all that it has printed for people.
func (l *liar) run(c *command, flags string) string {
	l.Helper()
	var out, errs bytes.Buffer
	o, err := parse(strings.Fields(flags), &errs)
	require.NoError(l, err)
	o.dynamodb = l.lyingTables().URL
	ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
	defer cancel()
	tool := l.tool(strings.HasPrefix(c.name, "quarantine"))
	tool.options, tool.in, tool.raw = o, strings.NewReader("yes\n"), new(bytes.Buffer)
	tool.out, tool.errs = &printer{&out}, &printer{&errs}
	defer tool.close()
	err = c.run(ctx, tool, l.arguments(c))
	o.status(ctx, err, tool.errs)
	require.NoError(l, ctx.Err())
	harmless(l.T, out.String())
	harmless(l.T, errs.String())
	if len(l.say) > len(hostile) && c.name != "inspect state" { // which is JSON
		require.Less(l, out.Len()+errs.Len(), len(l.say), "no line is as long as a store likes")
	}
	for line := range strings.Lines(out.String()) {
		require.True(l, !o.json || json.Valid([]byte(line)), "%q", line)
	}
	return out.String() + errs.String()
}
