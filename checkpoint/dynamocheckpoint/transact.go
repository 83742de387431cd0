package dynamocheckpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

var (
	// errBusy: a transaction was cancelled or a write refused because of another one on the same item, or for
	// want of capacity. Nothing was written.
	errBusy = errors.New("the item is busy")
	// errHopeless: a transaction was cancelled, and will be again. Nothing was written.
	errHopeless = errors.New("transaction impossible")
)

// Of requests that found an item busy: how often they are made, and the longest first pause, which doubles.
const (
	busyTries = 8
	busyPause = 10 * time.Millisecond
)

// unlessBusy makes a request until it does not find an item busy, with jittered pauses. The SDK does not
// repeat those by itself, as it does what was throttled altogether or lost on the way.
func (st *Store) unlessBusy(ctx context.Context, request func() error) error {
	limit := busyPause
	for try := 1; ; try++ {
		err := request()
		if _, conflict := errors.AsType[*types.TransactionConflictException](err); conflict {
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		if !errors.Is(err, errBusy) || try == busyTries {
			return err
		}
		if pause(ctx, rand.N(limit)+1) != nil {
			return err
		}
		limit *= 2
	}
}

// pause waits, or says why it did not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal is a transaction whose condition failed: the first item as it was, nil if there was none.
type refusal struct {
	item map[string]types.AttributeValue
}

// transact runs a transaction, of which only the first item has a condition. Its failure decides, whatever came of
// the others; short of that, a conflict or throttling of any item says nothing about the condition, and is errBusy.
//
// Each call has a token of its own, which the SDK makes up and keeps for its retries: a retry whose first
// try went through is answered as that was. A token kept for longer would answer yes to an owner that has
// meanwhile been replaced.
func (st *Store) transact(ctx context.Context, items []types.TransactWriteItem) (*refusal, error) {
	_, err := st.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return nil, err
	}
	busy := fmt.Errorf("%w: no reason given: %w", errBusy, err)
	for i, r := range cancelled.CancellationReasons {
		switch code := aws.ToString(r.Code); code {
		case "", "None":
		case "ConditionalCheckFailed":
			if i == 0 {
				return &refusal{item: r.Item}, nil
			}
		case "TransactionConflict":
			busy = fmt.Errorf("%w: %w", errBusy, err)
		case "ProvisionedThroughputExceeded", "ThrottlingError":
			busy = fmt.Errorf("%w: %w: %w", errBusy, checkpoint.ErrThrottled, err)
		default: // ValidationError, ItemCollectionSizeLimitExceeded, and what is invented later
			return nil, fmt.Errorf("%w: %s: %s", errHopeless, code, aws.ToString(r.Message))
		}
	}
	return nil, busy
}

// doubt is what a write that failed may have done: nothing, if it was refused for certain. The SDK shows only
// the last answer, so one that says "throttled" may hide a try that was carried out.
func doubt(err error) error {
	if errors.Is(err, errBusy) || errors.Is(err, errHopeless) {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}

// throttles are the codes with which DynamoDB refuses for want of capacity.
var throttles = map[string]bool{
	"ProvisionedThroughputExceededException": true, "ThrottlingException": true, "Throttling": true,
	"RequestLimitExceeded": true, "LimitExceededException": true,
}

// throttled adds checkpoint.ErrThrottled to an error that says so, for whoever counts.
func throttled(err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if ok && throttles[api.ErrorCode()] && !errors.Is(err, checkpoint.ErrThrottled) {
		return fmt.Errorf("%w: %w", checkpoint.ErrThrottled, err)
	}
	return err
}
