package players

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/admission"
)

// Audit compares the outcomes that the players got with the ledger: every card has the one outcome that its player got,
// however often it was sent, and each balance of the asset is the welcome less what was kept. It returns how many cards
// there were.
func (f *Fleet) Audit(
	ctx context.Context, store admission.Store, asset string, welcome admission.Amount,
) (cards int, err error) {
	ledger, err := admission.New(store, nil)
	if err != nil {
		return 0, err
	}
	for _, b := range f.bots {
		want := welcome
		for _, c := range b.cards {
			art, err := ledger.Lookup(ctx, c.id)
			switch {
			case c.outcome == 0 && errors.Is(err, admission.ErrUnknownAction):
				continue // it never got there
			case err != nil:
				return cards, fmt.Errorf("audit: card %s of %s, answered with %s: %w", c.id, b.actor, c.outcome, err)
			case c.outcome != 0 && art.Outcome != c.outcome:
				return cards, fmt.Errorf("audit: card %s: got %s, in the ledger %s", c.id, c.outcome, art.Outcome)
			}
			if art.Reason == 0 && !art.Refunded {
				want -= art.Cost
			}
			cards++
		}
		account, err := ledger.Balance(ctx, b.actor, asset)
		if err != nil {
			return cards, fmt.Errorf("audit: %s: %w", b.actor, err)
		}
		if account.Balance != want {
			return cards, fmt.Errorf("audit: %s has %d %s, want %d", b.actor, account.Balance, asset, want)
		}
	}
	return cards, nil
}
