package dynamoledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// errAgain: what was read has changed meanwhile, and nothing was written.
var errAgain = errors.New("the account changed meanwhile")

// call describes an operation for its errors.
type call struct {
	op, id string
	writes bool
}

// persist makes a request, and again while what it read changes meanwhile.
func (s *Store) persist(ctx context.Context, c call, request func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return s.failed(c, fence.ErrNotApplied, context.Cause(ctx))
		}
		err := request(ctx)
		switch {
		case err == nil || isAnswer(err):
			return err
		case !errors.Is(err, errAgain):
			outcome := fence.ErrNotApplied
			if c.writes {
				outcome = dynamotx.Outcome(err)
			}
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return s.failed(c, outcome, err)
		case attempt == s.cfg.MaxAttempts:
			return s.failed(c, fence.ErrNotApplied, err)
		}
	}
}

func (s *Store) failed(c call, outcome, err error) error {
	s.cfg.Logger.Warn("ledger table failed", "op", c.op, "id", c.id, "outcome", outcome, "error", err)
	return &fence.StoreError{Op: fmt.Sprintf("%s %q", c.op, c.id), Outcome: outcome, Err: err}
}

// isAnswer tells what the ledger has to say from what went wrong.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		admission.ErrUnknownAction, admission.ErrContested, admission.ErrReused, admission.ErrBalanceLimit,
		fence.ErrCorrupt,
	}, func(known error) bool { return errors.Is(err, known) })
}
