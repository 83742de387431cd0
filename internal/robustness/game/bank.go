package game

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
)

// What players have and pay.
const (
	Coin  = "coin"
	purse = 1_000_000 // more than a run takes
)

// Price is what an action costs, whatever its player offers.
func Price(_ context.Context, a admission.Action) (admission.Action, error) {
	a.Asset, a.Cost = Coin, 1+admission.Amount(len(a.ID)%3)
	return a, nil
}

// Bank is a ledger as an auditor sees it, with what its players were answered.
type Bank struct {
	ledger *admission.AdmissionLedger
	store  admission.Store

	mu   sync.Mutex
	told map[string]stream.Outcome // by action: what its player was answered
}

// NewBank gives each player more than a run takes.
func NewBank(ctx context.Context, store admission.Store, players ...string) (*Bank, error) {
	b := &Bank{store: store, told: map[string]stream.Outcome{}}
	var err error
	if b.ledger, err = admission.New(store, nil); err != nil {
		return nil, err
	}
	for _, name := range players {
		if err := b.ledger.Credit(ctx, name, Coin, purse, "purse-"+name); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Tell notes what a player was answered.
func (b *Bank) Tell(action string, o stream.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told[action] = o
}

// Settled returns nil when no action is open.
func (b *Bank) Settled(ctx context.Context) error {
	now, err := b.ledger.Now(ctx)
	if err != nil {
		return err
	}
	report, err := b.ledger.Audit(ctx, now.Add(time.Hour))
	if n := len(report.Pending); err == nil && n > 0 {
		err = fmt.Errorf("%d actions are open, the oldest is %s of tile %s, sent %d times", n,
			report.Pending[0].ActionID, report.Pending[0].Tile, report.Pending[0].Attempts)
	}
	return err
}

// Record records every payment and the books. Every action has its outcome by then.
func (b *Bank) Record(ctx context.Context, r *history.Recorder) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.store.Scan(ctx, func(record admission.Record) error {
		if a, ok := record.(admission.Artifact); ok {
			p := history.Payment{Action: a.ActionID, Cost: uint64(a.Cost), Refunded: a.Refunded,
				Outcome: named(a.Outcome), Told: named(b.told[a.ActionID])}
			if a.Reason != 0 {
				p.Reason = a.Reason.String()
			}
			r.Append(history.Record{Kind: history.Paid, Tile: a.Tile, Payment: &p})
		}
		return nil
	})
	if err != nil {
		return err
	}
	report, err := b.ledger.Audit(ctx, time.Time{})
	balance := history.Balance{Damaged: report.Damaged}
	for _, c := range report.Currencies {
		balance.Credited += uint64(c.Credited)
		balance.Held += uint64(c.Held)
		balance.Spent += uint64(c.Spent)
		balance.Unexplained += c.Unexplained
	}
	r.Append(history.Record{Kind: history.Books, Balance: &balance})
	return err
}

func named(o stream.Outcome) string {
	if o == 0 {
		return ""
	}
	return o.String()
}
