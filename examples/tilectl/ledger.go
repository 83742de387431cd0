package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// ledgerFile begins a -ledger that is a SQLite file.
const ledgerFile = "sqlite:"

func (t *tool) openLedger(ctx context.Context) error {
	var store admission.Store
	if path, ok := strings.CutPrefix(t.options.ledger, ledgerFile); ok {
		if _, err := os.Stat(path); err != nil { // SQLite would make an empty ledger
			return err
		}
		s, err := sqliteledger.Open(ctx, path)
		if err != nil {
			return err
		}
		t.closers = append(t.closers, func() { _ = s.Close() })
		store = s
	} else {
		client, err := t.dynamo(ctx, "the ledger")
		if err != nil {
			return err
		}
		if store, err = dynamoledger.New(client, t.options.ledger, nil); err != nil {
			return err
		}
	}
	if k, ok := store.(fence.WorldKeeper); ok {
		if err := t.enter(ctx, k); err != nil {
			return err
		}
	}
	var err error
	t.ledger, err = admission.New(store, nil)
	return err
}

// currencyRow is the balance sheet of one currency.
type currencyRow struct {
	admission.Currency
	Difference int64
	Verdict    string // conserved; or what it is not
}

// auditLedger shows whether every unit of every currency is accounted for.
func auditLedger(ctx context.Context, t *tool, _ []string) error {
	report, err := t.audit(ctx)
	if err != nil {
		return err
	}
	rows := []currencyRow{}
	wrong := len(report.Damaged) > 0
	for i := range report.Currencies {
		c := &report.Currencies[i]
		r := currencyRow{Currency: *c, Difference: c.Difference(), Verdict: "conserved"}
		switch {
		case c.Conserved():
		case c.Unexplained == 0:
			r.Verdict, wrong = "not conserved", true
		default:
			r.Verdict = "changing, or records have expired"
		}
		rows = append(rows, r)
	}
	err = printTable(t, "ASSET ACCOUNTS ACTIONS CREDITED HELD SPENT OPEN REFUNDED DIFFERENCE UNEXPLAINED VERDICT", rows,
		func(r *currencyRow) []any {
			return []any{r.Asset, r.Accounts, r.Actions, r.Credited, r.Held, r.Spent, r.Open, r.Refunded, r.Difference,
				r.Unexplained, r.Verdict}
		})
	for _, damage := range report.Damaged {
		t.errs.printf("tilectl: %s\n", damage)
	}
	if n := len(report.Pending); n > 0 {
		t.errs.printf("tilectl: %d actions were admitted more than %v ago and have no outcome: see ledger "+
			"pending\n", n, t.options.older)
	}
	if err == nil && wrong {
		err = errDamaged
	}
	return err
}

func (t *tool) audit(ctx context.Context) (admission.Report, error) {
	now, err := t.ledger.Now(ctx)
	if err != nil {
		return admission.Report{}, err
	}
	return t.ledger.Audit(ctx, now.Add(-t.options.older))
}

// pendingRow is a spend without an outcome.
type pendingRow struct {
	Action   string           `json:"action"`
	Actor    string           `json:"actor"`
	Asset    string           `json:"asset"`
	Cost     admission.Amount `json:"cost"`
	Tile     fence.TileID     `json:"tile"`
	Attempts int              `json:"attempts"` // that may have delivered it
	Admitted millis           `json:"admitted_ms"`
	Tried    millis           `json:"attempted_ms"`
	Now      string           `json:"now"`
}

// pending are the open actions, or those named, the oldest first.
func (t *tool) pending(ctx context.Context, names []string) (rows []pendingRow, err error) {
	report, err := t.audit(ctx)
	for _, a := range report.Pending {
		if len(names) == 0 || slices.Contains(names, a.ActionID) {
			rows = append(rows, pendingRow{Action: a.ActionID, Actor: a.Actor, Asset: a.Asset, Cost: a.Cost,
				Tile: a.Tile, Attempts: a.Attempts, Admitted: millis(a.Admitted.UnixMilli()),
				Tried: millis(a.Attempted.UnixMilli()), Now: "open"})
		}
	}
	return rows, err
}

func (t *tool) printPending(rows []pendingRow) error {
	return printTable(t, "ACTION ACTOR ASSET COST TILE ATTEMPTS ADMITTED ATTEMPTED NOW", rows,
		func(r *pendingRow) []any {
			return []any{r.Action, r.Actor, r.Asset, r.Cost, r.Tile, r.Attempts, r.Admitted, r.Tried, r.Now}
		})
}

func listPending(ctx context.Context, t *tool, args []string) error {
	rows, err := t.pending(ctx, args)
	if err != nil {
		return err
	}
	return t.printPending(rows)
}

// settlePending settles open actions as far as there is evidence in what their tiles have committed; the rest stays
// open.
func settlePending(ctx context.Context, t *tool, args []string) error {
	if t.options.remember != 0 {
		if err := t.openAuthority(ctx); err != nil {
			return err
		}
	}
	reconciler, err := admission.NewReconciler(t.authority, t.store, t.log,
		&admission.ReconcilerConfig{RememberFor: t.options.remember})
	if err != nil {
		return err
	}
	rows, err := t.pending(ctx, args)
	if err != nil {
		return err
	}
	tiles := map[fence.TileID][]*pendingRow{}
	for i := range rows {
		tiles[rows[i].Tile] = append(tiles[rows[i].Tile], &rows[i])
	}
	for _, id := range slices.Sorted(maps.Keys(tiles)) {
		err = errors.Join(err, t.settle(ctx, reconciler, id, tiles[id]))
	}
	return errors.Join(t.printPending(rows), err)
}

// settle settles the actions of one tile. What has no evidence is no error, what could not be read or written is.
func (t *tool) settle(
	ctx context.Context, r *admission.Reconciler, id fence.TileID, rows []*pendingRow,
) (failed error) {
	actions := make([]admission.Artifact, len(rows))
	for i, row := range rows {
		actions[i] = admission.Artifact{ActionID: row.Action, Tile: id, Admitted: time.UnixMilli(int64(row.Admitted))}
	}
	found, err := r.Find(ctx, t.ledger.Now, id, actions)
	for i, row := range rows {
		switch {
		case err != nil:
			row.Now = "open: " + err.Error()
		case found[i].Reason != nil:
			row.Now = "open: " + found[i].Reason.Error()
		case t.options.dryRun && found[i].Never:
			row.Now = "would be given back"
		case t.options.dryRun:
			row.Now = "would be " + found[i].Outcome.String()
		default:
			art, err := t.ledger.Settle(ctx, row.Action, found[i])
			switch {
			case err != nil:
				row.Now, failed = "open: "+err.Error(), errors.Join(failed, err)
			case art.Refunded:
				row.Now = art.Outcome.String() + ", given back"
			default:
				row.Now = art.Outcome.String()
			}
		}
	}
	return errors.Join(err, failed)
}

// resolvePending records the outcome that an operator has found out.
func resolvePending(ctx context.Context, t *tool, args []string) error {
	if len(args) != 2 {
		return &usageError{"ledger resolve takes an action and its outcome"}
	}
	outcome, err := stream.ParseOutcome(args[1])
	if err != nil {
		return &usageError{err.Error()}
	}
	art, err := t.ledger.Lookup(ctx, args[0])
	if err != nil {
		return err
	}
	if art.Open() {
		err := t.confirm("Action %s of %s, %d of %s admitted at %s, will be %s for ever; nothing is given back.",
			art.ActionID, art.Actor, art.Cost, art.Asset, art.Admitted.Format(time.DateTime), outcome)
		if err != nil {
			return err
		}
	}
	if art, err = t.ledger.Resolve(ctx, args[0], outcome); err != nil {
		return err
	}
	t.say("action %s is %s since %s\n", art.ActionID, art.Outcome,
		art.Resolved.Format(time.DateTime))
	return nil
}
