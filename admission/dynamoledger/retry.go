package dynamoledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
)

var (
	// errAgain: nothing went wrong, but what was read has changed meanwhile. Nothing was written.
	errAgain = errors.New("the account changed meanwhile")
	// errConflict: the transaction was cancelled, for no reason of ours. Nothing was written.
	errConflict = errors.New("transaction cancelled")
	// errHopeless: the transaction was cancelled, and will be again. Nothing was written.
	errHopeless = errors.New("transaction impossible")
	// errDamaged: an item is not as this package writes it.
	errDamaged = errors.New("damaged item")
)

// call describes an operation for its errors.
type call struct {
	op, id string
	writes bool
}

// persist makes a request until it is answered. request must be the same every time it is called: what
// it answers the second time is then what it would have answered, had the first answer not been lost.
func (s *Store) persist(ctx context.Context, c call, request func(context.Context) error) error {
	doubt := false // whether an earlier request may have been carried out
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return s.failed(c, doubt, context.Cause(ctx))
		}
		err := request(ctx)
		if err == nil || isAnswer(err) {
			return err
		}
		again, sure := classify(err)
		doubt = doubt || !sure
		if !again || attempt == s.cfg.MaxAttempts || ctx.Err() != nil {
			return s.failed(c, doubt, err)
		}
		pause := s.pause(attempt)
		s.cfg.Retried(RetryInfo{Op: c.op, Attempt: attempt, Pause: pause, Err: err})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return s.failed(c, doubt, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (s *Store) failed(c call, doubt bool, err error) error {
	outcome := fence.ErrNotApplied
	if c.writes && doubt {
		outcome = fence.ErrUnknownOutcome
	}
	s.cfg.Logger.Warn("ledger table failed", "op", c.op, "id", c.id, "outcome", outcome, "error", err)
	return &fence.StoreError{Op: fmt.Sprintf("%s %q", c.op, c.id), Outcome: outcome, Err: err}
}

// pause is a random part of an exponentially growing time, so that those who collided part ways.
func (s *Store) pause(attempt int) time.Duration {
	limit := min(s.cfg.BackoffMax, s.cfg.BackoffBase<<min(attempt, 16))
	return time.Duration(rand.Int64N(int64(limit) + 1))
}

// isAnswer tells what the ledger has to say from what went wrong.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		admission.ErrUnknownAction, admission.ErrContested, admission.ErrReused, admission.ErrBalanceLimit,
	}, func(known error) bool { return errors.Is(err, known) })
}

// worthRetrying are the service's errors that pass.
var worthRetrying = []string{
	"InternalServerError", "LimitExceededException", "ProvisionedThroughputExceededException",
	"ReplicatedWriteConflictException", "RequestLimitExceeded", "ServiceUnavailable", "ThrottlingException",
	"Throttling", "TransactionConflictException", "TransactionInProgressException",
}

// classify says whether the request is worth making again, and whether it is sure that it did nothing.
//
// The SDK retries by itself and shows the last answer only, so an error that says "throttled" may hide an
// earlier request that was carried out. Sure is what would have stopped every one of them.
func classify(err error) (again, sure bool) {
	if errors.Is(err, errAgain) || errors.Is(err, errConflict) {
		return true, true
	}
	if errors.Is(err, errHopeless) || errors.Is(err, errDamaged) {
		return false, true
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return true, false // the connection broke, or the context ended on the way
	}
	switch code := api.ErrorCode(); {
	case slices.Contains(worthRetrying, code) || api.ErrorFault() == smithy.FaultServer:
		return true, false
	case code == "ValidationException" || code == "ResourceNotFoundException":
		return false, true
	}
	return false, false
}

// reason is why one item of a transaction cancelled it.
type reason struct {
	failed bool // its condition
	item   item // as it was, if failed and there was one
}

// transact runs a transaction. A nil slice means that it was carried out; otherwise conditions failed, and
// the slice says which. The condition of the first item decides everything in every transaction of this
// package (an ID that is taken is taken), so when it failed the other reasons do not matter; else a
// conflict or throttling of any item makes the whole answer void.
func (s *Store) transact(ctx context.Context, token *string, items ...types.TransactWriteItem) ([]reason, error) {
	_, err := s.client.TransactWriteItems(ctx,
		&dynamodb.TransactWriteItemsInput{ClientRequestToken: token, TransactItems: items})
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return nil, err
	}
	reasons := make([]reason, len(items))
	var void error
	for i, r := range cancelled.CancellationReasons {
		if i >= len(items) {
			return nil, fmt.Errorf("%w: %d reasons for %d items: %w", errHopeless, len(cancelled.CancellationReasons),
				len(items), err)
		}
		switch code := value(r.Code); code {
		case "", "None":
		case "ConditionalCheckFailed":
			reasons[i] = reason{failed: true, item: r.Item}
		case "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError":
			void = fmt.Errorf("%w: item %d: %s", errConflict, i, code)
		default: // ValidationError, ItemCollectionSizeLimitExceeded, and what is invented later
			return nil, fmt.Errorf("%w: item %d: %s: %s", errHopeless, i, code, value(r.Message))
		}
	}
	switch {
	case reasons[0].failed:
		return reasons, nil
	case void != nil:
		return nil, void
	case !slices.ContainsFunc(reasons, func(r reason) bool { return r.failed }):
		return nil, fmt.Errorf("%w: no reason given: %w", errConflict, err)
	}
	return reasons, nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
