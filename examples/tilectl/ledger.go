package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// ledgerFile begins a -ledger that is a SQLite file.
const ledgerFile = "sqlite:"

func (t *tool) openLedger(ctx context.Context) error {
	var store admission.Store
	if path, ok := strings.CutPrefix(t.options.ledger, ledgerFile); ok {
		if _, err := os.Stat(path); err != nil { // SQLite would make an empty ledger
			return err
		}
		s, err := sqliteledger.Open(ctx, path, nil)
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
		fmt.Fprintln(t.errs, "tilectl:", damage)
	}
	if n := len(report.Pending); n > 0 {
		fmt.Fprintf(t.errs, "tilectl: %d actions have no outcome and no attempt for %v: see ledger pending\n", n,
			t.options.older)
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

// pending are the open actions, or those named, in the order of their last attempts.
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

// settlePending gives open actions the outcomes that their tiles' streams have. What a stream does not have stays open.
func settlePending(ctx context.Context, t *tool, args []string) error {
	rows, err := t.pending(ctx, args)
	if err != nil {
		return err
	}
	evidence := map[fence.TileID]map[string]stream.Outcome{}
	for i := range rows {
		r := &rows[i]
		if _, read := evidence[r.Tile]; !read {
			found, unread := tile.Outcomes(ctx, t.log, r.Tile)
			if unread != nil {
				r.Now, err = "open: "+unread.Error(), errors.Join(err, unread)
				continue
			}
			evidence[r.Tile] = found
		}
		outcome, known := evidence[r.Tile][r.Action]
		switch {
		case !known:
			r.Now = "open: its tile's stream does not have it"
		case t.options.dryRun:
			r.Now = "would be " + outcome.String()
		default:
			art, failed := t.ledger.Resolve(ctx, r.Action, outcome)
			if failed != nil {
				r.Now, err = "open: "+failed.Error(), errors.Join(err, failed)
				continue
			}
			r.Now = art.Outcome.String()
		}
	}
	return errors.Join(t.printPending(rows), err)
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
	if art.Open() && !t.options.yes {
		err := t.confirm(fmt.Sprintf("Action %s of %s, %d of %s admitted at %s, will be %s for ever; "+
			"nothing is given back. Type yes to continue: ", art.ActionID, art.Actor, art.Cost, art.Asset,
			art.Admitted.Format(time.DateTime), outcome))
		if err != nil {
			return err
		}
	}
	if art, err = t.ledger.Resolve(ctx, args[0], outcome); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "action %s is %s since %s\n", art.ActionID, art.Outcome, art.Resolved.Format(time.DateTime))
	return nil
}
