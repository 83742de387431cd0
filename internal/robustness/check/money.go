package check

import (
	"fmt"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// PaidOnce is what gateways and ledger promise of each action: it has one outcome, the one its player was answered; its
// price is kept if a tile decided it, and given back if none did and none will; and nothing is applied without a price.
//
// It is broken when an attempt that may have arrived counts as one that did not, when a process that is not the owner
// is believed, and when the search for the outcome of an old action takes too little for evidence.
//
// An action that was decided, answered and then lost with its owner and its master has its price spent all the same. On
// a tile whose class keeps what is answered, the ledger has only what survives.
func PaidOnce(t *Tile) {
	actions := t.decisions()
	known := map[string]bool{}
	for _, o := range t.Operations {
		if o.Kind == history.Submit {
			known[o.Intent.Action] = true
		}
	}
	audited := false
	for _, r := range t.Records {
		if r.Kind == history.Paid {
			audited, known[r.Payment.Action] = true, true
			t.paid(r, actions[r.Payment.Action])
		}
	}
	for _, id := range t.Final.Applied {
		if audited && !known[id] {
			t.breaks(t.FinalAt, "action %s is applied, and nobody paid for it", id)
		}
	}
}

func (t *Tile) paid(r *history.Record, d *decision) {
	p := r.Payment
	if d == nil {
		d = &decision{}
	}
	switch {
	case p.Outcome == "":
		t.breaks(r.At, "action %s is still open", p.Action)
	case p.Told != "" && p.Told != p.Outcome:
		t.breaks(r.At, "action %s is %s in the ledger, and its player was answered %s", p.Action, p.Outcome, p.Told)
	case p.Reason != "" && len(d.outcomes) > 0:
		t.breaks(r.At, "action %s was refused for its %s, and a tile decided it", p.Action, p.Reason)
	case p.Refunded && d.survived != "":
		t.breaks(r.At, "the price of action %s was given back, and the tile decided that it is %s", p.Action,
			d.survived)
	case p.Reason == "" && !p.Refunded:
		t.bought(r, d)
	}
}

// bought judges a price that is kept.
func (t *Tile) bought(r *history.Record, d *decision) {
	p := r.Payment
	switch {
	case !d.outcomes[p.Outcome]:
		t.breaks(r.At, "the price of action %s is kept as for one that is %s, which no batch decided", p.Action,
			p.Outcome)
	case d.survived == "" && t.Final.Kept && t.Unknown.IsZero():
		t.breaks(r.At, "action %s is %s in the ledger, and the history that survived does not have it", p.Action,
			p.Outcome)
	}
}

// MoneyConserved requires that what was credited is held or spent, and that every change of an account is explained.
func MoneyConserved(h *history.History) (found []Violation) {
	for i := range h.Records {
		r := &h.Records[i]
		if r.Kind != history.Books {
			continue
		}
		if b := r.Balance; b.Credited != b.Held+b.Spent || b.Unexplained != 0 || len(b.Damaged) > 0 {
			found = append(found, Violation{Check: "money conserved", At: r.At, Detail: fmt.Sprintf(
				"of %d credited %d is held and %d spent; %d changes of accounts are not explained; damaged: %v",
				b.Credited, b.Held, b.Spent, b.Unexplained, b.Damaged)})
		}
	}
	return found
}
