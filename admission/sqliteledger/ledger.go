package sqliteledger

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sqlitedb"
	"github.com/tilefence/tilefence/stream"
)

// Now implements admission.Store. All processes on a file are of one host, whose clock it is.
func (*store) Now(context.Context) (time.Time, error) {
	return time.Now().UTC().Truncate(time.Millisecond), nil
}

// Admit implements admission.Store.
func (s *store) Admit(ctx context.Context, a admission.Artifact) (got admission.Artifact, err error) {
	err = s.write(ctx, "admit", a.ActionID, func(tx *sqlitedb.Tx) error {
		changed, err := tx.Exec(`INSERT INTO artifacts (action_id, admission_id, fingerprint, actor, asset, cost,
			cooldown, tile, body, attempts, attempt_id, admitted_at, attempted_at)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, ?2, ?10, ?10) ON CONFLICT DO NOTHING`,
			a.ActionID, string(a.AdmissionID), a.Fingerprint[:], a.Actor, a.Asset, int64(a.Cost),
			a.Cooldown.Milliseconds(), a.Tile.String(), nonNil(a.Body), millis(a.Admitted))
		if err != nil {
			return err
		}
		if changed == 0 {
			got, err = lookup(tx, a.ActionID)
			return err
		}
		got = a
		paid, err := spend(tx, &a)
		if err != nil || paid {
			return err
		}
		return reject(tx, &got)
	})
	return got, err
}

// spend takes the cost if the account can pay it now.
func spend(tx *sqlitedb.Tx, a *admission.Artifact) (bool, error) {
	if a.Cost == 0 {
		// A free action needs no account.
		_, err := tx.Exec(
			`INSERT INTO accounts (owner, asset, balance, version) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING`,
			a.Actor, a.Asset)
		if err != nil {
			return false, err
		}
	}
	changed, err := tx.Exec(`UPDATE accounts SET balance = balance - ?1, version = version + 1,
		cooldown_until = CASE WHEN ?2 > 0 THEN ?3 + ?2 ELSE cooldown_until END
		WHERE owner = ?4 AND asset = ?5 AND balance >= ?1 AND cooldown_until <= ?3`,
		int64(a.Cost), a.Cooldown.Milliseconds(), millis(a.Admitted), a.Actor, a.Asset)
	return changed == 1, err
}

// reject makes the artifact just written a rejected one.
func reject(tx *sqlitedb.Tx, a *admission.Artifact) error {
	account, err := balance(tx, a.Actor, a.Asset)
	if err != nil {
		return err
	}
	a.Reason = admission.ReasonCooldown
	if account.Balance < a.Cost {
		a.Reason = admission.ReasonBalance
	}
	a.Outcome, a.Resolved = stream.Rejected, a.Admitted
	_, err = tx.Exec(`UPDATE artifacts SET outcome = ?, reason = ?, resolved_at = ? WHERE action_id = ?`,
		int64(a.Outcome), int64(a.Reason), millis(a.Resolved), a.ActionID)
	return err
}

// Attempt implements admission.Store.
func (s *store) Attempt(
	ctx context.Context, actionID string, attempt admission.AttemptID, at time.Time,
) (got admission.Artifact, err error) {
	err = s.write(ctx, "attempt", actionID, func(tx *sqlitedb.Tx) error {
		_, err := tx.Exec(`UPDATE artifacts SET attempts = attempts + 1, attempt_id = ?1, attempted_at = ?2
			WHERE action_id = ?3 AND outcome = 0 AND attempt_id <> ?1`, string(attempt), millis(at), actionID)
		if err != nil {
			return err
		}
		got, err = lookup(tx, actionID)
		return err
	})
	return got, err
}

// Withdraw implements admission.Store.
func (s *store) Withdraw(ctx context.Context, actionID string, attempt admission.AttemptID) error {
	return s.write(ctx, "withdraw", actionID, func(tx *sqlitedb.Tx) error {
		changed, err := tx.Exec(`UPDATE artifacts SET attempts = attempts - 1, attempt_id = ''
			WHERE action_id = ? AND outcome = 0 AND attempt_id = ?`, actionID, string(attempt))
		if err == nil && changed == 0 {
			_, err = lookup(tx, actionID)
		}
		return err
	})
}

// Settle implements admission.Store.
func (s *store) Settle(ctx context.Context, c admission.Settlement) (got admission.Artifact, err error) {
	err = s.write(ctx, c.Op(), c.ActionID, func(tx *sqlitedb.Tx) error {
		if got, err = lookup(tx, c.ActionID); err != nil || !got.Open() {
			return err
		}
		if c.Sole != "" && (got.Attempts != 1 || got.AttemptID != c.Sole) {
			return admission.ErrContested
		}
		if c.Refund {
			if err := refund(tx, &got); err != nil {
				return err
			}
		}
		got.Outcome, got.Resolved, got.Refunded = c.Outcome, c.At, c.Refund
		_, err := tx.Exec(`UPDATE artifacts SET outcome = ?, resolved_at = ?, refunded = ? WHERE action_id = ?`,
			int64(c.Outcome), millis(c.At), c.Refund, c.ActionID)
		return err
	})
	return got, err
}

// refund gives back what an action took.
func refund(tx *sqlitedb.Tx, a *admission.Artifact) error {
	// A later action may have set a cooldown of its own, which stands.
	changed, err := tx.Exec(`UPDATE accounts SET balance = balance + ?1, version = version + 1,
		cooldown_until = CASE WHEN cooldown_until = ?2 THEN 0 ELSE cooldown_until END
		WHERE owner = ?3 AND asset = ?4 AND balance <= ?5 - ?1`,
		int64(a.Cost), millis(a.CooldownUntil()), a.Actor, a.Asset, int64(admission.MaxAmount))
	if err == nil && changed == 0 {
		return admission.ErrBalanceLimit
	}
	return err
}

// Lookup implements admission.Store.
func (s *store) Lookup(ctx context.Context, actionID string) (got admission.Artifact, err error) {
	err = s.read(ctx, "lookup", actionID, func(tx *sqlitedb.Tx) error {
		got, err = lookup(tx, actionID)
		return err
	})
	return got, err
}

const artifactColumns = `action_id, admission_id, fingerprint, actor, asset, cost, cooldown, tile, body, outcome,
	reason, refunded, attempts, attempt_id, admitted_at, attempted_at, resolved_at`

// artifactRow is a row of artifactColumns.
type artifactRow struct {
	admission.Artifact
	fingerprint                             []byte
	tile                                    string
	cooldown, admitted, attempted, resolved int64
}

func (r *artifactRow) columns() []any {
	return []any{&r.ActionID, &r.AdmissionID, &r.fingerprint, &r.Actor, &r.Asset, &r.Cost, &r.cooldown, &r.tile,
		&r.Body, &r.Outcome, &r.Reason, &r.Refunded, &r.Attempts, &r.AttemptID, &r.admitted, &r.attempted, &r.resolved}
}

func (r *artifactRow) decode() (admission.Artifact, error) {
	a := r.Artifact
	var err error
	if a.Tile, err = fence.ParseTileID(r.tile); err != nil ||
		copy(a.Fingerprint[:], r.fingerprint) != len(a.Fingerprint) {
		return admission.Artifact{}, &fence.CorruptError{Tile: a.Tile, What: fmt.Sprintf("artifact %q", a.ActionID),
			Detail: "tile or fingerprint"}
	}
	a.Cooldown = time.Duration(r.cooldown) * time.Millisecond
	a.Admitted, a.Attempted, a.Resolved = date(r.admitted), date(r.attempted), date(r.resolved)
	return a, nil
}

func lookup(tx *sqlitedb.Tx, actionID string) (admission.Artifact, error) {
	var row artifactRow
	found, err := tx.Row(`SELECT `+artifactColumns+` FROM artifacts WHERE action_id = ?`, []any{actionID},
		row.columns()...)
	switch {
	case err != nil:
		return admission.Artifact{}, err
	case !found:
		return admission.Artifact{}, admission.ErrUnknownAction
	}
	return row.decode()
}

// Pending implements admission.Store; it does not lag.
func (s *store) Pending(
	ctx context.Context, from, before time.Time, limit int,
) (pending []admission.PendingAction, err error) {
	err = s.read(ctx, "pending", "", func(tx *sqlitedb.Tx) error {
		pending = nil
		return tx.Rows(`SELECT action_id, tile, attempted_at FROM artifacts
			WHERE outcome = 0 AND attempted_at >= ? AND attempted_at < ? ORDER BY attempted_at LIMIT ?`,
			[]any{millis(from), millis(before), limit}, func(scan func(...any) error) error {
				var p admission.PendingAction
				var tile string
				var at int64
				if err := scan(&p.ActionID, &tile, &at); err != nil {
					return err
				}
				p.Tile, _ = fence.ParseTileID(tile) // an action that is damaged is found when it is read
				p.Attempted = time.UnixMilli(at).UTC()
				pending = append(pending, p)
				return nil
			})
	})
	return pending, err
}

// Credit implements admission.Store.
func (s *store) Credit(ctx context.Context, c admission.Credit) error {
	return s.write(ctx, "credit", c.ID, func(tx *sqlitedb.Tx) error {
		changed, err := tx.Exec(`INSERT INTO credits (credit_id, owner, asset, amount, credited_at)
			VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, c.ID, c.Owner, c.Asset, int64(c.Amount), millis(c.At))
		if err != nil {
			return err
		}
		if changed == 0 {
			return sameCredit(tx, c)
		}
		changed, err = tx.Exec(`INSERT INTO accounts (owner, asset, balance, version) VALUES (?1, ?2, ?3, 1)
			ON CONFLICT DO UPDATE SET balance = balance + ?3, version = version + 1 WHERE balance <= ?4 - ?3`,
			c.Owner, c.Asset, int64(c.Amount), int64(admission.MaxAmount))
		if err == nil && changed == 0 {
			return admission.ErrBalanceLimit
		}
		return err
	})
}

func sameCredit(tx *sqlitedb.Tx, c admission.Credit) error {
	var had admission.Credit
	_, err := tx.Row(`SELECT owner, asset, amount FROM credits WHERE credit_id = ?`, []any{c.ID}, &had.Owner,
		&had.Asset, &had.Amount)
	if err != nil {
		return err
	}
	if had.Owner != c.Owner || had.Asset != c.Asset || had.Amount != c.Amount {
		return &admission.ReusedError{What: "credit", ID: c.ID}
	}
	return nil
}

// Balance implements admission.Store.
func (s *store) Balance(ctx context.Context, owner, asset string) (got admission.Account, err error) {
	err = s.read(ctx, "balance", owner, func(tx *sqlitedb.Tx) error {
		got, err = balance(tx, owner, asset)
		return err
	})
	return got, err
}

func balance(tx *sqlitedb.Tx, owner, asset string) (admission.Account, error) {
	a := admission.Account{Owner: owner, Asset: asset}
	var cooldown int64
	_, err := tx.Row(`SELECT balance, version, cooldown_until FROM accounts WHERE owner = ? AND asset = ?`,
		[]any{owner, asset}, &a.Balance, &a.Version, &cooldown)
	a.CooldownUntil = date(cooldown)
	return a, err
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func date(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
