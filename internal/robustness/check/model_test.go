package check

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestModelIsTheSpecification runs random commits and rebases on memfence.State, which is the specification,
// and on the model that histories are checked against, which knows no payloads. They must always agree.
func TestModelIsTheSpecification(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	answers := map[string]int{}
	for range 3000 {
		state, model := &memfence.State{}, tileState{}
		var known []fence.Position
		for range 30 {
			if rng.IntN(8) == 0 { // expired
				state.Owner, model.owner, model.contact = fence.Owner{}, 0, ""
			}
			o := history.Operation{Returned: 1}
			var receipt fence.Receipt
			var err error
			if rng.IntN(6) == 0 {
				receipt, err = rebaseBoth(rng, state, &o)
			} else {
				receipt, err = commitBoth(rng, state, known, &o)
			}
			o.Result = resultOf(state, receipt, err)
			answers[string(o.Kind)+" "+string(o.Result.Outcome)+" "+o.Result.Reason]++
			next, ok := model.step(&o)
			require.True(t, ok, "seed %d: %+v of %+v is answered %+v", seed, o.Commit, model, o.Result)
			if o.Kind == history.Commit && o.Result.Outcome == history.Refused {
				require.Equal(t, o.Result.Reason, tableReason(o.Commit, o.Result.Current))
			}
			model = next
			known = append(known, state.Last())
		}
	}
	t.Log(answers)
	require.GreaterOrEqual(t, len(answers), 9, "every answer has to come up")
}

func commitBoth(
	rng *rand.Rand, s *memfence.State, known []fence.Position, o *history.Operation,
) (fence.Receipt, error) {
	c := fence.Commit{Tile: 1, Epoch: max(1, s.Last().Epoch+fence.Epoch(rng.IntN(4))-1), Contact: "a", Prev: s.Last(),
		Tick: fence.Tick(rng.IntN(2)), Install: rng.IntN(2) == 0}
	if rng.IntN(3) > 0 {
		c.Payload = []byte{'a' + byte(rng.IntN(2))}
	}
	if len(known) > 0 && rng.IntN(3) == 0 {
		c.Prev = known[rng.IntN(len(known))]
	}
	if rng.IntN(10) == 0 {
		c.Prev.Chain++
	}
	if rng.IntN(10) == 0 {
		c.Prev.Seq++
	}
	c.Epoch = max(c.Epoch, c.Prev.Epoch)
	o.Kind = history.Commit
	o.Commit = &history.CommitCall{Epoch: c.Epoch, Contact: c.Contact, Prev: history.Position(c.Prev),
		Next: history.Position(c.Next()), Tick: c.Tick, Install: c.Install, Payload: string(c.Payload)}
	return s.Commit(&c)
}

func rebaseBoth(rng *rand.Rand, s *memfence.State, o *history.Operation) (fence.Receipt, error) {
	r := fence.Rebase{Tile: 1, Epoch: max(1, s.Last().Epoch+fence.Epoch(rng.IntN(3))), Contact: "b",
		Seq: max(1, s.Last().Seq+fence.Seq(rng.IntN(3))), Blob: []byte{byte(rng.IntN(2))}}
	if at := s.Last(); rng.IntN(3) == 0 {
		at.Seq *= fence.Seq(rng.IntN(2))
		r.Replaces = &at
	}
	o.Kind = history.Rebase
	o.Rebase = &history.RebaseCall{Epoch: r.Epoch, Contact: r.Contact, Next: history.Position(r.Next()),
		Replaces: (*history.Position)(r.Replaces)}
	return s.Rebase(&r, time.UnixMilli(1))
}

func resultOf(s *memfence.State, receipt fence.Receipt, err error) history.Result {
	if err == nil {
		return history.Result{Outcome: history.OK, Position: history.Position(receipt.Position),
			Duplicate: receipt.Duplicate}
	}
	r := history.Result{Outcome: history.Refused,
		Current: &history.Owner{Epoch: s.Owner.Epoch, Contact: s.Owner.Contact, Position: history.Position(s.Last())}}
	for reason, name := range map[error]string{fence.ErrStale: "stale", fence.ErrReplay: "replay",
		fence.ErrBehind: "behind",
		fence.ErrForked: "forked", fence.ErrNoOwner: "noowner"} {
		if errors.Is(err, reason) {
			r.Reason = name
		}
	}
	return r
}
