package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// TestErrorClasses: each error matches its class, and no other.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	classes := []error{fence.ErrStale, fence.ErrReplay, fence.ErrBehind, fence.ErrForked, fence.ErrNoOwner,
		fence.ErrRegress,
		fence.ErrUncommitted, fence.ErrChecksum, fence.ErrInvalidArgument, fence.ErrUnconfirmed, fence.ErrNotApplied,
		fence.ErrUnknownOutcome, fence.ErrCorrupt, fence.ErrLost, fence.ErrNeverOwned, fence.ErrFunctions,
		fence.ErrSetting}
	for err, want := range map[error][]error{
		&fence.RefusedError{Reason: fence.ErrStale}:                            {fence.ErrStale},
		&fence.RefusedError{Reason: fence.ErrChecksum}:                         {fence.ErrChecksum},
		&fence.ArgumentError{Field: "tile"}:                                    {fence.ErrInvalidArgument},
		&fence.UnconfirmedError{Want: 1}:                                       {fence.ErrUnconfirmed},
		&fence.StoreError{Outcome: fence.ErrNotApplied, Err: context.Canceled}: {fence.ErrNotApplied},
		&fence.StoreError{Outcome: fence.ErrUnknownOutcome, Err: &fence.FunctionsError{}}: {fence.ErrUnknownOutcome,
			fence.ErrFunctions},
		&fence.CorruptError{What: "snapshot"}: {fence.ErrCorrupt},
		&fence.LostError{}:                    {fence.ErrLost},
		&fence.FunctionsError{}:               {fence.ErrFunctions},
		&fence.SettingError{}:                 {fence.ErrSetting},
	} {
		require.NotEmpty(t, err.Error())
		wrapped := fmt.Errorf("somewhere: %w", err)
		for _, class := range classes {
			require.Equal(t, slices.Contains(want, class), errors.Is(wrapped, class), "%v is %v", err, class)
		}
	}
	require.ErrorIs(t, &fence.StoreError{Outcome: fence.ErrNotApplied, Err: context.Canceled}, context.Canceled)
}

// TestErrorsSayWhereToGo: the text of a refusal names the owner, if there is one.
func TestErrorsSayWhereToGo(t *testing.T) {
	t.Parallel()
	refused := &fence.RefusedError{Reason: fence.ErrStale, Tile: 0x85283473fffffff, Epoch: 3,
		Current: fence.Owner{Epoch: 4, Contact: "b:7000", Position: fence.Position{Epoch: 4, Seq: 9}}}
	require.EqualError(t, refused, "tile 85283473fffffff: write under epoch 3 refused: epoch is stale (owner: epoch 4 at b:7000, position 4/9/0000000000000000)")
	refused.Current = fence.Owner{}
	require.EqualError(t, refused, "tile 85283473fffffff: write under epoch 3 refused: epoch is stale")

	lost := &fence.LostError{Tile: 0x85283473fffffff, Current: fence.Grant{Epoch: 4, Contact: "b:7000"}}
	require.EqualError(t, lost, "tile 85283473fffffff: claim lost to b:7000 at epoch 4")
	lost.Current.Contact = ""
	require.EqualError(t, lost, "tile 85283473fffffff: claim lost: released at epoch 4, held by no process")

	unasked := &fence.StoreError{Op: "claim", Tile: 0x85283473fffffff, Outcome: fence.ErrNotApplied,
		Err: context.Canceled}
	require.EqualError(t, unasked, "tile 85283473fffffff: claim: not applied: context canceled")
	unasked.Op, unasked.Tile = "list", 0
	require.EqualError(t, unasked, "list: not applied: context canceled")
}
