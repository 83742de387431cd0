package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

// luaMutants are edits of the function library, each of a text that must be in it exactly once.
var luaMutants = []struct {
	mutant   Mutant
	old, new string
	by       string
}{
	{Intact, "", "", ""},
	{NoEpochComparison, "if e < current then\n    code", "if false then\n    code", "answers follow the table"},
	{NoPositionCheck, "elseif last == args[4] then", "elseif true then", "no fork"},
	{NoChain, "elseif last == args[4] then", "elseif le == pe and ls == ps then", "no fork"},
	{NoDigest, "elseif args[3] ~= 'refresh' and last == args[5] then", "elseif false then",
		"idempotent commits"},
	{ExpiryIsEpochZero, "if args[3] ~= 'install' then return nil, refusal('noowner', o, last) end", "",
		"fails closed"},
}

// TestMutantsOfTheFunctionsAreCaught plays claimants against edited function libraries on a real server, and
// judges what they were answered by the checks. The libraries have names of their own: the cluster is shared.
func TestMutantsOfTheFunctionsAreCaught(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: stacktest.Redis(t),
		ClusterStateReloadInterval: 500 * time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	for i, m := range luaMutants {
		t.Run("mutant "+string(m.mutant), func(t *testing.T) {
			text := redisfence.Library()
			if m.old != "" {
				require.Equal(t, 1, strings.Count(text, m.old), "the edit must have one place: %s", m.old)
				text = strings.Replace(text, m.old, m.new, 1)
			}
			name := fmt.Sprintf("mutant%d%x", i, rand.Uint32())
			text = strings.ReplaceAll(strings.Replace(text, redisfence.LibraryName, name, 1), "'tilefence_",
				"'"+name+"_")
			require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
				return node.FunctionLoad(ctx, text).Err()
			}))
			t.Cleanup(func() {
				assert.NoError(t,
					client.ForEachMaster(context.WithoutCancel(t.Context()),
						func(ctx context.Context, node *redis.Client) error {
							return node.FunctionDelete(ctx, name).Err()
						}))
			})
			found := contest(t, client, name)
			if m.mutant == Intact {
				require.Empty(t, found)
				return
			}
			names := broken(Result{Violations: found})
			assert.Contains(t, names, m.by)
			t.Logf("caught by %q", names)
		})
	}
}

// contest lets claimants follow, overtake, repeat and contradict each other on a fresh tile, one call at a
// time, and returns what the checks of the store find.
func contest(t *testing.T, client *redis.ClusterClient, library string) []check.Violation {
	t.Helper()
	seed := seeds(t, 1)[0]
	rng := rand.New(rand.NewPCG(seed, 0))
	id := fence.TileID(rand.Uint64()>>8 | 1<<57)
	keys := fence.KeysOf(id)
	t.Cleanup(func() {
		assert.NoError(t, client.Del(context.WithoutCancel(t.Context()), keys.Owner, keys.Stream, keys.Snapshot).Err())
	})
	reader, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	log := redisstream.New(reader, client)
	records := &history.Memory{}
	recorder := history.NewRecorder("contest", records, nil)
	auditor := recorder.Auditor("auditor", log)
	functions := &functions{client: client, library: library}
	var players []*player
	for range 400 {
		if len(players) == 0 || rng.IntN(12) == 0 {
			p := &player{epoch: fence.Epoch(len(players) + 1), contact: fmt.Sprintf("p%d", len(players))}
			p.store = recorder.Store(p.contact, functions)
			if n := len(players); n > 0 {
				p.prev = players[n-1].prev
			}
			players = append(players, p)
		}
		if rng.IntN(20) == 0 {
			require.NoError(t, client.Del(t.Context(), keys.Owner).Err())
			require.NoError(t, auditor.Look(t.Context(), []fence.TileID{id}))
		}
		p := players[max(0, len(players)-1-rng.IntN(3))]
		p.play(t.Context(), rng, id)
		require.NoError(t, auditor.Look(t.Context(), []fence.TileID{id}))
	}
	recordContest(t, recorder, log, id)
	return check.Run(history.Join(records.Records()), []check.Check{
		{Name: "one writer", Judge: check.OneWriter}, {Name: "sequence climbs", Judge: check.SequenceClimbs},
		{Name: "no fork", Judge: check.NoFork}, {Name: "replay complete", Judge: check.ReplayComplete},
		{Name: "idempotent commits", Judge: check.IdempotentCommits}, {Name: "fails closed", Judge: check.FailClosed},
		{Name: "answers follow the table", Judge: check.AnswersFollowTable},
		{Name: "commits linearizable", Judge: check.CommitsLinearizable}})
}

func recordContest(t *testing.T, recorder *history.Recorder, log stream.Log, id fence.TileID) {
	t.Helper()
	chunks, err := log.Read(t.Context(), []stream.Cursor{{Tile: id, Limit: 1000}})
	require.NoError(t, err)
	last, err := log.Last(t.Context(), id)
	require.NoError(t, err)
	f := history.FinalTile{End: history.Position(last)}
	for i := range chunks[0].Entries {
		f.Entries = append(f.Entries, history.EntryOf(&chunks[0].Entries[i]))
	}
	require.NotEmpty(t, f.Entries)
	recorder.Final(id, f)
}

// player is a claimant under one epoch, with no more sense than a test needs.
type player struct {
	store   fence.Store
	epoch   fence.Epoch
	contact string
	prev    fence.Position
	last    fence.Commit // presented last
	serves  bool
	turn    int
}

func (p *player) play(ctx context.Context, rng *rand.Rand, id fence.TileID) {
	p.turn++
	c := fence.Commit{Tile: id, Epoch: p.epoch, Contact: p.contact, Prev: p.prev, Tick: fence.Tick(p.turn),
		Payload: fmt.Appendf(nil, "%s, turn %d", p.contact, p.turn), Install: !p.serves || rng.IntN(6) == 0}
	switch pick := rng.IntN(10); {
	case pick < 2 && p.last.Epoch > 0:
		c = p.last // again
	case pick == 2 && p.prev.Seq > 0:
		c.Prev.Chain++ // the same place in another history
	}
	p.last = c
	r, err := p.store.Commit(ctx, c)
	var refused *fence.RefusedError
	switch {
	case err == nil && r.Position.Seq >= p.prev.Seq:
		p.prev, p.serves = r.Position, true
	case errors.As(err, &refused) && !p.serves && refused.Current.Position.Epoch < p.epoch:
		p.prev = refused.Current.Position
	}
}

// functions is the commit function of a library under another name.
type functions struct {
	fence.Store
	client  *redis.ClusterClient
	library string
}

// Commit implements fence.Store.
func (f *functions) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	k, e, mode := fence.KeysOf(c.Tile), c.Entry(), "append"
	if c.Install {
		mode = "install"
	}
	reply, err := f.client.FCall(ctx, f.library+"_commit_v1", []string{k.Owner, k.Stream, k.Snapshot}, uint64(c.Epoch),
		c.Contact, mode, c.Prev.String(), e.Position.String(), uint64(c.Tick), e.Frame, 60000).Result()
	if err != nil {
		return fence.Receipt{}, err
	}
	answer, refused := reply.([]any)
	if !refused {
		return fence.Receipt{Position: e.Position, Duplicate: reply == "again"}, nil
	}
	text := func(i int) string { s, _ := answer[i].(string); return s }
	if code := text(0); code == "invalid" || code == "corrupt" {
		return fence.Receipt{}, &fence.ArgumentError{Field: code, Want: text(1)}
	}
	at, err := fence.ParsePosition(text(1))
	refusal := &fence.RefusedError{Tile: c.Tile, Epoch: c.Epoch, Current: fence.Owner{Contact: text(2), Position: at}}
	if text(2) != "" {
		refusal.Current.Epoch = at.Epoch
	}
	refusal.Reason = map[string]error{"stale": fence.ErrStale, "replay": fence.ErrReplay, "behind": fence.ErrBehind,
		"forked": fence.ErrForked, "noowner": fence.ErrNoOwner}[text(0)]
	return fence.Receipt{}, errors.Join(refusal, err)
}
