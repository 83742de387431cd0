package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
)

// sound is a history without a violation, of one tile in a simulated run of many faults, with a watcher that
// took every entry that survived.
func sound(t *testing.T) []history.Record {
	t.Helper()
	r := simulate(t, 1, Options{Tiles: 1, Duration: 30 * time.Second})
	return append(r.History.Records, watched(check.NewTile(r.History, r.History.Tiles()[0]))...)
}

// watched is what a bridge and a watcher would have recorded that missed nothing.
func watched(t *check.Tile) (records []history.Record) {
	at := t.FinalAt
	for _, e := range t.Lineage {
		at++
		rec := history.Record{At: at, Process: "relay", Client: "watcher", Kind: history.Frame, Tile: t.ID,
			Entry: &e.Entry}
		if e.Rebase {
			rec.Kind, rec.Entry, rec.Position = history.Reset, nil, e.Position
		}
		records = append(records, rec)
		if !e.Rebase {
			bridge := rec
			bridge.Client, bridge.Kind = "bridge", history.Published
			records = append(records, bridge)
		}
	}
	return records
}

// copyOf gives each test records of its own.
func copyOf(t *testing.T, records []history.Record) []history.Record {
	t.Helper()
	text, err := json.Marshal(records)
	require.NoError(t, err)
	var fresh []history.Record
	require.NoError(t, json.Unmarshal(text, &fresh))
	return fresh
}

func find(records []history.Record, from int, accept func(*history.Record) bool) int {
	i := slices.IndexFunc(records[from:], func(r history.Record) bool { return accept(&r) })
	if i < 0 {
		return -1
	}
	return from + i
}

// call finds a commit of a tick somewhere in the middle that survived, and the return that acknowledges it, confirmed
// if the commit asked for that. Its owner went on from there.
func call(records []history.Record) (commit, answer int) {
	for i := range records {
		commit = (len(records)/2 + i) % len(records)
		c := records[commit].Commit
		if c == nil || c.Events == 0 || c.Install || find(records, 0, func(r *history.Record) bool {
			return r.Kind == history.Frame && r.Entry.Position == c.Next
		}) < 0 {
			continue
		}
		answer = find(records, commit, func(r *history.Record) bool {
			return r.Kind == history.Return && r.Op == records[commit].Op
		})
		next := find(records, commit, func(r *history.Record) bool {
			return r.Client == records[commit].Client && r.Commit != nil && r.Commit.Events > 0 &&
				r.Commit.Prev == c.Next
		})
		if answer > 0 && next > answer && records[answer].Result.Outcome == history.OK {
			return commit, answer
		}
	}
	panic("no commit was acknowledged")
}

// refused finds a refusal as stale.
func refused(records []history.Record) *history.Result {
	i := find(records, 0, func(r *history.Record) bool {
		return r.Result != nil && r.Result.Reason == "stale" && r.Result.Current.Epoch > 0
	})
	return records[i].Result
}

// frames lists the watcher's frames.
func frames(records []history.Record) (at []int) {
	for i := range records {
		if records[i].Kind == history.Frame {
			at = append(at, i)
		}
	}
	return at
}

// paid is the ledger's record of an action that the tile has applied.
func paid(records []history.Record, p history.Payment) history.Record {
	last := records[find(records, 0, func(r *history.Record) bool { return r.Kind == history.Final })]
	p.Action = last.Final.Applied[0]
	last.Kind, last.Final, last.Payment = history.Paid, nil, &p
	return last
}

// corruptions break one promise each in a history that keeps them all.
var corruptions = []struct {
	check string
	how   string
	do    func(records []history.Record) []history.Record
}{
	{"one writer", "a batch is another process's", func(r []history.Record) []history.Record {
		commit, answer := call(r)
		r[commit].Process, r[answer].Process = "intruder", "intruder"
		return r
	}},
	{"no fork", "an entry appears that no client presented", func(r []history.Record) []history.Record {
		i := find(r, len(r)/2, func(r *history.Record) bool { return r.Kind == history.Saw })
		stranger := r[i]
		entry := *r[i].Entry
		entry.Position.Chain++
		stranger.Entry = &entry
		return append(r, stranger)
	}},
	{"replay complete", "the final state lacks an action", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Kind == history.Final })
		r[i].Final.Applied = slices.Delete(r[i].Final.Applied, 3, 4)
		return r
	}},
	{"idempotent commits", "an action is decided twice", func(r []history.Record) []history.Record {
		saw := func(r *history.Record) bool { return r.Kind == history.Saw && len(r.Entry.Actions) > 0 }
		first := find(r, 0, saw)
		second := find(r, first+1, saw)
		r[second].Entry.Actions = append(r[second].Entry.Actions, r[first].Entry.Actions[0])
		return r
	}},
	{"confirmed is kept", "a confirmed batch is another than the one that survived",
		func(r []history.Record) []history.Record {
			commit, answer := call(r)
			r[commit].Commit.Replicas = fence.AllReplicas
			r[commit].Commit.Next.Chain++
			r[answer].Result.Outcome, r[answer].Result.Position = history.OK, r[commit].Commit.Next
			return r
		}},
	{"owner keeps", "a batch is acknowledged and the owner goes on without it",
		func(r []history.Record) []history.Record {
			commit, answer := call(r)
			r[commit].Commit.Next.Chain++
			r[answer].Result.Position = r[commit].Commit.Next
			return r
		}},
	{"rejected writer stops", "a superseded owner presents another batch", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Life != nil && r.Life.Successor != nil })
		late := r[i]
		commit, _ := call(r)
		late.Kind, late.Life, late.Commit, late.Op = history.Commit, nil, r[commit].Commit, 1<<40
		return append(r, late)
	}},
	{"rejected writer learns", "a refusal names no contact", func(r []history.Record) []history.Record {
		refused(r).Current.Contact = ""
		return r
	}},
	{"answers follow the table", "a refusal has another reason", func(r []history.Record) []history.Record {
		refused(r).Reason = "replay"
		return r
	}},
	{"installed before served", "an install was not confirmed", func(r []history.Record) []history.Record {
		for i := range r {
			if r[i].Kind == history.Return && r[i].Result.Replicas > 0 && r[i].Result.Outcome == history.OK {
				r[i].Result.Outcome = history.Unconfirmed
			}
		}
		return r
	}},
	{"asks first", "an owner installs itself after it was refused", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Commit != nil && r.Commit.Install })
		refusal, answer := r[i], r[i]
		batch := *r[i].Commit
		batch.Install, batch.Payload = false, "x"
		refusal.Op, refusal.Commit = 1<<40, &batch
		answer.Op, answer.Kind, answer.Commit = 1<<40, history.Return, nil
		answer.Result = &history.Result{Outcome: history.Refused, Reason: "behind", Current: &history.Owner{}}
		return slices.Insert(r, i, refusal, answer)
	}},
	{"epochs are unique", "a claim is granted the epoch of another", func(r []history.Record) []history.Record {
		granted := func(r *history.Record) bool {
			return r.Result != nil && r.Result.Outcome == history.OK && r.Result.Grant != nil &&
				r.Result.Grant.Epoch > 1
		}
		i := find(r, 0, granted)
		claim := r[i]
		other := *r[i].Result.Grant
		other.ID = "another"
		claim.Op, claim.Client, claim.Result = 1<<40, "another", &history.Result{Outcome: history.OK, Grant: &other}
		begin := claim
		begin.Kind, begin.Result, begin.Claim = history.Claim, nil, &history.ClaimCall{ID: "another"}
		return append(r, begin, claim)
	}},
	{"commits linearizable", "a batch is acknowledged before the one it follows is presented",
		func(r []history.Record) []history.Record {
			commit, answer := call(r)
			for i := range r {
				if r[i].Commit != nil && r[i].Commit.Next == r[commit].Commit.Next && i != commit {
					r[i].At = r[len(r)-1].At + 1 // its retries come later
				}
			}
			r[commit].At, r[answer].At = 1, 2
			return r
		}},
	{"views ordered", "a watcher misses a frame", func(r []history.Record) []history.Record {
		at := frames(r)
		return slices.Delete(r, at[5], at[5]+1)
	}},
	{"views ordered", "a watcher takes a frame twice", func(r []history.Record) []history.Record {
		at := frames(r)
		return slices.Insert(r, at[5]+1, r[at[5]])
	}},
	{"views ordered", "a watcher starts over at a lower epoch", func(r []history.Record) []history.Record {
		at := frames(r)
		back := r[at[len(at)-1]]
		back.Kind, back.Position, back.Entry = history.Reset, r[at[0]].Entry.Position, nil
		return append(r, back)
	}},
	{"views ordered", "a bridge hands an entry over twice", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Kind == history.Published })
		return slices.Insert(r, i+1, r[i])
	}},
	{"converged", "a watcher holds something else", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Kind == history.Held })
		r[i].Position.Chain++
		return r
	}},
	{"converged", "the authority names another owner", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Kind == history.Final })
		r[i].Final.Row.Epoch++
		return r
	}},
	{"one outcome", "an action is answered otherwise than it was decided", func(r []history.Record) []history.Record {
		i := find(r, 0, func(r *history.Record) bool { return r.Result != nil && r.Result.Answer != "" })
		r[i].Result.Answer = stream.Rejected.String()
		return r
	}},
	{"answers are kept", "an action is answered that nobody has", func(r []history.Record) []history.Record {
		last := find(r, 0, func(r *history.Record) bool { return r.Kind == history.Final })
		r[last].Final.Kept = true
		i := find(r, 0, func(r *history.Record) bool { return r.Result != nil && r.Result.Answer != "" })
		sent := find(r, 0, func(s *history.Record) bool { return s.Intent != nil && s.Op == r[i].Op })
		r[sent].Intent.Action = "lost"
		return r
	}},
	{"paid once", "an action is applied, and its price given back", func(r []history.Record) []history.Record {
		return append(r, paid(r, history.Payment{Outcome: "rejected", Refunded: true}))
	}},
	{"paid once", "a player was answered otherwise", func(r []history.Record) []history.Record {
		return append(r, paid(r, history.Payment{Outcome: "applied", Told: "fizzled"}))
	}},
	{"paid once", "an action stays open", func(r []history.Record) []history.Record {
		return append(r, paid(r, history.Payment{}))
	}},
	{"handed over confirmed", "replicas lack what is handed over", func(r []history.Record) []history.Record {
		commit, answer := call(r)
		for i := range r {
			if r[i].Commit != nil && r[i].Process == r[commit].Process && r[i].Client == r[commit].Client {
				r[i].Commit.Replicas = 0
			}
		}
		handed := r[commit]
		handed.At, handed.Kind, handed.Op, handed.Commit = r[answer].At+1, history.Life, 0, nil
		handed.Life = &history.LifeEvent{Ended: true, Handed: true}
		return append(r, handed)
	}},
	{"final record", "no record says how it ended", func(r []history.Record) []history.Record {
		return slices.DeleteFunc(r, func(r history.Record) bool { return r.Kind == history.Final })
	}},
}

func TestChecksFindWhatIsBroken(t *testing.T) {
	records := sound(t)
	require.Empty(t, check.Run(history.Join(records), check.All()), "the history is sound before it is corrupted")
	for _, c := range corruptions {
		t.Run(c.check+"/"+c.how, func(t *testing.T) {
			var names []string
			for _, v := range check.Run(history.Join(c.do(copyOf(t, records))), check.All()) {
				names = append(names, v.Check)
			}
			assert.Contains(t, names, c.check)
		})
	}
}

// TestAHistoryThatIsTooHardFails: of claims without an answer each may have come before any other, or never, and no
// order of them explains what was read at the end. A check that runs out of time must say so.
func TestAHistoryThatIsTooHardFails(t *testing.T) {
	const tile = 7
	records := []history.Record{{At: 1000, Kind: history.Final, Tile: tile, Final: &history.FinalTile{}}}
	for i := range 64 {
		records = append(records, history.Record{At: int64(i), Process: "p", Kind: history.Promote, Op: uint64(i + 1),
			Tile:  tile,
			Claim: &history.ClaimCall{Contact: "a:1", ID: fmt.Sprintf("%032x", i+1), Expected: fence.Epoch(i % 8)}})
	}
	row := history.Grant{Epoch: 1000, Contact: "b:1", ID: fmt.Sprintf("%032x", 1000)}
	records = append(records, history.Record{At: 100, Process: "p", Kind: history.Lookup, Op: 100, Tile: tile},
		history.Record{At: 101, Process: "p", Kind: history.Return, Op: 100, Tile: tile,
			Result: &history.Result{Outcome: history.OK, Grant: &row}})
	found := check.RunWithin(history.Join(records), check.All(), 20*time.Millisecond)
	require.NotEmpty(t, found)
	require.Equal(t, "undecided", found[0].Check, "%v", found)
}

func TestMoneyThatIsLostIsFound(t *testing.T) {
	for found, b := range map[int]history.Balance{0: {Credited: 5, Held: 3, Spent: 2}, 1: {Credited: 5, Held: 3}} {
		h := &history.History{Records: []history.Record{{Kind: history.Books, Balance: &b}}}
		assert.Len(t, check.MoneyConserved(h), found)
		h.Records[0].Balance.Unexplained = 1
		assert.Len(t, check.MoneyConserved(h), 1)
	}
}

func TestTooLittleTrafficFails(t *testing.T) {
	h := history.Join(sound(t))
	assert.Empty(t, check.EnoughTraffic(h, 2, 2))
	assert.Len(t, check.EnoughTraffic(h, 1000, 1000), 2)
	assert.Len(t, check.EnoughTraffic(&history.History{}, 1, 0), 1)
}

func TestTravellersThatAreLostOrDoubledAreFound(t *testing.T) {
	for found, here := range map[int][]string{0: {"a"}, 1: {}, 2: {"b"}} {
		final := history.FinalTile{Born: []string{"a"}, Here: here, Begun: true, Coins: 3, Given: 3}
		h := &history.History{Records: []history.Record{{Kind: history.Final, Tile: 1, Final: &final}}}
		assert.Len(t, check.TravellersInOnePlace(h), found)
		final.Coins--
		assert.Len(t, check.TravellersInOnePlace(h), found+1, "a coin is lost")
	}
}
