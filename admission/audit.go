package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Report is what an Audit has found.
type Report struct {
	Currencies []Currency // by asset
	// Pending are the open actions that were admitted before the audit's bound, the oldest first: a gateway that runs
	// sweeps finishes each within about RetryWindow, or cannot. Bodies are left out.
	Pending []Artifact
	// Damaged says of records what is wrong with them: they cannot be read, or contradict themselves.
	Damaged []string
}

// Currency is the balance sheet of one asset: what was credited is held, or was spent.
type Currency struct {
	Asset    string
	Accounts int
	Actions  int
	Credited Amount // by all credits
	Held     Amount // the sum of all balances
	Spent    Amount // by actions, and not given back
	Open     Amount // of Spent: by actions without an outcome
	Refunded Amount // spent and given back, so not part of Spent

	// Unexplained is how many changes of accounts no record explains, by the versions of the accounts. Records of
	// actions that were deleted after dynamoledger.Config.Retention count, and changes made while the audit ran.
	Unexplained int64
}

// Difference is what was credited and is neither held nor spent. Unless it is zero, units were lost, or, if negative,
// made of nothing; but with Unexplained changes it may be what those have spent.
func (c *Currency) Difference() int64 {
	return int64(c.Credited - c.Held - c.Spent) //nolint:gosec // the difference of sums that may have wrapped alike
}

// Conserved reports whether every unit is accounted for, and every change of an account explained.
func (c *Currency) Conserved() bool { return c.Difference() == 0 && c.Unexplained == 0 }

// Sound reports whether every currency is conserved and no record is damaged.
func (r *Report) Sound() bool {
	return len(r.Damaged) == 0 && !slices.ContainsFunc(r.Currencies, func(c Currency) bool { return !c.Conserved() })
}

// Audit reads the whole ledger and draws up the balance of each currency. Open actions that were admitted before
// that time are Pending. It changes nothing. While gateways work, DynamoDB shows it accounts and actions of different
// moments: then a difference that is not there in a second audit is none.
//
// Errors: a *fence.StoreError.
func (l *AdmissionLedger) Audit(ctx context.Context, before time.Time) (Report, error) {
	var r Report
	currencies := map[string]*Currency{}
	of := func(asset string) *Currency {
		if currencies[asset] == nil {
			currencies[asset] = &Currency{Asset: asset}
		}
		return currencies[asset]
	}
	err := l.store.Scan(ctx, func(record Record) error {
		switch v := record.(type) {
		case Account:
			c := of(v.Asset)
			c.Accounts++
			c.Held += v.Balance
			c.Unexplained += int64(v.Version) //nolint:gosec // a count
			if v.Balance > MaxAmount {
				r.Damaged = append(r.Damaged, fmt.Sprintf("account %q, %q: balance above the limit", v.Owner, v.Asset))
			}
		case Credit:
			c := of(v.Asset)
			c.Credited += v.Amount
			c.Unexplained--
		case Artifact:
			r.action(of(v.Asset), v, before)
		case *fence.CorruptError:
			r.Damaged = append(r.Damaged, v.Error())
		}
		return nil
	})
	for _, asset := range slices.Sorted(maps.Keys(currencies)) {
		r.Currencies = append(r.Currencies, *currencies[asset])
	}
	slices.SortFunc(r.Pending, func(a, b Artifact) int {
		return cmp.Or(a.Admitted.Compare(b.Admitted), cmp.Compare(a.ActionID, b.ActionID))
	})
	return r, err
}

// action enters an action into the balance of its currency.
func (r *Report) action(c *Currency, a Artifact, before time.Time) {
	c.Actions++
	c.Spent += a.Spent()
	switch {
	case a.Reason != 0: // nothing was spent
	case a.Refunded:
		c.Refunded += a.Cost
		c.Unexplained -= 2
	default:
		c.Unexplained--
	}
	if a.Refunded && !abandonable(a.Outcome) || a.Reason != 0 && a.Outcome != stream.Rejected {
		r.Damaged = append(r.Damaged, fmt.Sprintf("action %q: outcome %s does not agree with its refund or reason",
			a.ActionID, a.Outcome))
	}
	if a.Open() {
		c.Open += a.Spent()
		if a.Admitted.Before(before) {
			a.Body = nil
			r.Pending = append(r.Pending, a)
		}
	}
}
