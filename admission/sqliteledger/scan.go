package sqliteledger

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Scan implements admission.Store. It is one transaction, so it sees the ledger at one moment; writers wait for it.
func (s *Store) Scan(ctx context.Context, visit func(admission.Record) error) error {
	return s.write(ctx, "scan", "", func(tx *sqlitedb.Tx) error {
		err := tx.Rows(`SELECT owner, asset, balance, version, cooldown_until FROM accounts`, nil,
			func(scan func(...any) error) error {
				var a admission.Account
				var cooldown int64
				if err := scan(&a.Owner, &a.Asset, &a.Balance, &a.Version, &cooldown); err != nil {
					return err
				}
				a.CooldownUntil = date(cooldown)
				return visitIn(ctx, visit, a)
			})
		if err != nil {
			return err
		}
		err = tx.Rows(`SELECT credit_id, owner, asset, amount, credited_at FROM credits`, nil,
			func(scan func(...any) error) error {
				var c admission.Credit
				var at int64
				if err := scan(&c.ID, &c.Owner, &c.Asset, &c.Amount, &at); err != nil {
					return err
				}
				c.At = time.UnixMilli(at).UTC()
				return visitIn(ctx, visit, c)
			})
		if err != nil {
			return err
		}
		return tx.Rows(`SELECT `+artifactColumns+` FROM artifacts`, nil, func(scan func(...any) error) error {
			var row artifactRow
			if err := scan(row.columns()...); err != nil {
				return err
			}
			a, err := row.decode()
			if damage, ok := errors.AsType[*fence.CorruptError](err); ok {
				return visitIn(ctx, visit, damage)
			}
			return visitIn(ctx, visit, a)
		})
	})
}

// visitIn is visit, unless ctx has ended: a scan takes long.
func visitIn(ctx context.Context, visit func(admission.Record) error, r admission.Record) error {
	if ctx.Err() != nil {
		return &fence.StoreError{Op: "scan", Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	return visit(r)
}
