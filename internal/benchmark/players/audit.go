package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/admission"
)

// audit compares what the players were told with the ledger: every card has the one outcome that its player
// was told, however often it was sent, and each balance is the welcome less what was kept. It returns how
// many cards there were.
func (f *fleet) audit(ctx context.Context, store admission.Store) (cards int, err error) {
	ledger, err := admission.New(store, nil)
	if err != nil {
		return 0, err
	}
	for _, b := range f.bots {
		want := admission.Amount(welcomeGift)
		for _, c := range b.cards {
			art, err := ledger.Lookup(ctx, c.id)
			switch {
			case c.told == 0 && errors.Is(err, admission.ErrUnknownAction):
				continue // it never got there
			case err != nil:
				return cards, fmt.Errorf("audit: card %s of %s, answered with %s: %w", c.id, b.actor, c.told, err)
			case c.told != 0 && art.Outcome != c.told:
				return cards, fmt.Errorf("audit: card %s: told %s, in the ledger %s", c.id, c.told, art.Outcome)
			}
			if art.Reason == 0 && !art.Refunded {
				want -= art.Cost
			}
			cards++
		}
		account, err := ledger.Balance(ctx, b.actor, energy)
		if err != nil {
			return cards, fmt.Errorf("audit: %s: %w", b.actor, err)
		}
		if account.Balance != want {
			return cards, fmt.Errorf("audit: %s has %d energy, want %d", b.actor, account.Balance, want)
		}
	}
	return cards, nil
}
