package dynamocheckpoint_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
)

// journalEntry returns a valid entry of n bytes that follows prev.
func journalEntry(epoch fence.Epoch, prev fence.Position, n int) fence.Entry {
	return fence.NewEntry(fence.Entry{Tile: tile, Kind: fence.KindBatch,
		Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1},
		Prev:     prev, Tick: 1, Payload: snapshot(epoch, prev.Seq+1, n).Blob})
}

// journalHolds requires that the journal holds exactly these entries.
func journalHolds(t *testing.T, st *dynamocheckpoint.Store, want ...fence.Entry) {
	t.Helper()
	got, err := st.Tail(t.Context(), tile, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func isAppend(input any) bool {
	_, ok := input.(*dynamodb.TransactWriteItemsInput)
	return ok
}

// TestAppendAnswerLost loses the answers to appends: the SDK's retry gets the answer of the first try, a
// caller that gets no answer at all calls again, and each entry is there once.
func TestAppendAnswerLost(t *testing.T) {
	table := newTable(t)
	for _, lost := range []error{&requestError{io.ErrUnexpectedEOF}, errKilled} {
		table := table + "retried"
		if errors.Is(lost, errKilled) {
			table += "again"
		}
		var appends atomic.Int32
		st := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
			err := send()
			if isAppend(input) && appends.Add(1)%2 == 1 {
				require.NoError(t, err)
				return lost
			}
			return err
		})
		require.NoError(t, st.EnsureTable(t.Context()))
		require.NoError(t, st.Seal(t.Context(), tile, 1))
		var want []fence.Entry
		prev := fence.Position{}
		for _, n := range []int{10, 2500, 20} {
			e := journalEntry(1, prev, n)
			err := st.Append(t.Context(), tile, e)
			if err != nil {
				require.ErrorIs(t, err, fence.ErrUnknownOutcome)
				require.NoError(t, st.Append(t.Context(), tile, e))
			}
			want, prev = append(want, e), e.Position
		}
		assert.EqualValues(t, 6, appends.Load())
		journalHolds(t, st, want...)
		assert.Len(t, journalParts(t, table), 3+3)
	}
}

// TestAppendAgainAfterSeal loses the answer to an append, and has the journal sealed for a successor before
// the owner calls again. The entry is kept, and the successor's; the owner learns that it was replaced.
func TestAppendAgainAfterSeal(t *testing.T) {
	table := newTable(t)
	lost := false
	zombie := newStore(t, table, func(_ context.Context, input any, send func() error) error {
		err := send()
		if isAppend(input) && !lost {
			lost = true
			return errKilled
		}
		return err
	})
	heir := newStore(t, table, nil)
	require.NoError(t, zombie.Seal(t.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, 10)
	require.ErrorIs(t, zombie.Append(t.Context(), tile, e), fence.ErrUnknownOutcome)
	require.NoError(t, heir.Seal(t.Context(), tile, 2))
	require.ErrorIs(t, zombie.Append(t.Context(), tile, e), fence.ErrStale)
	journalHolds(t, heir, e)
}

// TestDelayedAppend delivers an append after the journal was sealed for a successor, during the call and long
// after it: nothing of it is written.
func TestDelayedAppend(t *testing.T) {
	table := newTable(t)
	heir := newSmall(t, table, nil)
	var delayed *dynamodb.TransactWriteItemsInput
	epoch := fence.Epoch(1)
	zombie := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
		if !isAppend(input) {
			return send()
		}
		epoch++
		require.NoError(t, heir.Seal(context.Background(), tile, epoch))
		if delayed == nil {
			delayed = input.(*dynamodb.TransactWriteItemsInput)
			return errKilled
		}
		return send()
	})
	require.NoError(t, zombie.Seal(t.Context(), tile, 1))
	require.ErrorIs(t, zombie.Append(t.Context(), tile, journalEntry(1, fence.Position{}, 2500)),
		fence.ErrUnknownOutcome)
	_, err := newClient(t, nil).TransactWriteItems(t.Context(), delayed)
	_, refused := asType[*types.TransactionCanceledException](err)
	require.True(t, refused, "%v", err)
	require.Empty(t, journalParts(t, table))

	require.NoError(t, zombie.Seal(t.Context(), tile, 2))
	err = zombie.Append(t.Context(), tile, journalEntry(2, fence.Position{}, 2500))
	refusal, ok := asType[*fence.RefusedError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, fence.RefusedError{Reason: fence.ErrStale, Tile: tile, Epoch: 2,
		Current: fence.Owner{Tile: tile, Epoch: 3}}, *refusal)
	require.Empty(t, journalParts(t, table))
}

// TestJournalBusy answers as DynamoDB does when two requests meet on one item, or capacity is short: appends
// and seals try again, and then say that nothing was written.
func TestJournalBusy(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	busy := 0
	st := newStore(t, table, func(_ context.Context, input any, send func() error) error {
		if busy == 0 {
			return send()
		}
		busy--
		if isAppend(input) {
			code := []string{"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}[busy%3]
			return &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{
				{Code: aws.String("None")}, {Code: aws.String(code)}}}
		}
		return &types.TransactionConflictException{}
	})
	busy = 3
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	busy = 4
	first := journalEntry(1, fence.Position{}, 10)
	require.NoError(t, st.Append(t.Context(), tile, first))
	second := journalEntry(1, first.Position, 10)
	busy = 1 << 20
	require.ErrorIs(t, st.Append(t.Context(), tile, second), fence.ErrNotApplied)
	require.ErrorIs(t, st.Seal(t.Context(), tile, 2), fence.ErrNotApplied)
	busy = 0
	journalHolds(t, st, first)
	require.NoError(t, st.Append(t.Context(), tile, second))

	// What cannot ever be carried out is said at once.
	hopeless := 0
	broken := newStore(t, table, func(_ context.Context, _ any, _ func() error) error {
		hopeless++
		return &types.TransactionCanceledException{
			CancellationReasons: []types.CancellationReason{{Code: aws.String("ValidationError")}}}
	})
	require.ErrorIs(t, broken.Append(t.Context(), tile, second), fence.ErrNotApplied)
	require.Equal(t, 1, hopeless)
}

// TestJournalThrottled has a table without capacity: every request is refused for a while, which the SDK
// waits out, or for good, which the error says.
func TestJournalThrottled(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	throttle := &types.ProvisionedThroughputExceededException{}
	st := newSmall(t, table, firstTry(throttle))
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, 2500)
	require.NoError(t, st.Append(t.Context(), tile, e))
	journalHolds(t, st, e)

	hopeless := newSmall(t, table, func(context.Context, any, func() error) error { return throttle })
	_, err := hopeless.Tail(t.Context(), tile, 0)
	for _, err := range []error{hopeless.Append(t.Context(), tile, e), hopeless.Seal(t.Context(), tile, 2),
		hopeless.Truncate(t.Context(), tile, 9), err} {
		require.ErrorIs(t, err, checkpoint.ErrThrottled)
	}
	require.NoError(t, st.Truncate(t.Context(), tile, 9))
	journalHolds(t, st)
}

// firstTry refuses the first try of every request.
func firstTry(err error) fault {
	var tried sync.Map
	return func(_ context.Context, input any, send func() error) error {
		if _, again := tried.LoadOrStore(input, true); again {
			return send()
		}
		return err
	}
}

// TestTailDuringAppend shows Tail what a query may see of a transaction that has passed its check and is not
// all there yet: the head's note without the entry, and the entry without a chunk. Tail waits for the rest.
func TestTailDuringAppend(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]struct {
		of     fence.Seq
		suffix string
	}{
		"last entry": {3, ""}, "first chunk": {2, "/0000"}, "last chunk": {2, "/0002"},
		"chunk at the end": {3, "/0001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := newTable(t)
			writer := newSmall(t, table, nil)
			require.NoError(t, writer.Seal(t.Context(), tile, 1))
			first := journalEntry(1, fence.Position{}, 10)
			second := journalEntry(1, first.Position, 2500)
			third := journalEntry(1, second.Position, 1500)
			for _, e := range []fence.Entry{first, second, third} {
				require.NoError(t, writer.Append(t.Context(), tile, e))
			}
			parts := journalParts(t, table)
			part := parts[slices.IndexFunc(parts, func(p string) bool {
				return strings.HasPrefix(p, entryKey(hidden.of)) && strings.HasSuffix(p, hidden.suffix)
			})]
			restore := hide(t, table, part)
			queries := 0
			reader := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
				if _, ok := input.(*dynamodb.QueryInput); ok {
					if queries++; queries == 3 {
						restore()
					}
				}
				return send()
			})
			journalHolds(t, reader, first, second, third)
			require.Equal(t, 3, queries)

			// What stays away is damage.
			hide(t, table, part)
			_, err := reader.Tail(t.Context(), tile, 0)
			require.ErrorIs(t, err, fence.ErrCorrupt)
			require.ErrorContains(t, err, "missing")
			tail, err := reader.Tail(t.Context(), tile, 3)
			require.NoError(t, err, "what was not asked for is not missed")
			require.Empty(t, tail)
		})
	}
}

// hide takes an item out of the table; restore puts it back.
func hide(t *testing.T, table, part string) (restore func()) {
	t.Helper()
	client := newClient(t, nil)
	out, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table,
		ReturnValues: types.ReturnValueAllOld,
		Key: map[string]types.AttributeValue{
			"tile": &types.AttributeValueMemberS{Value: tile.String()},
			"part": &types.AttributeValueMemberS{Value: part}}})
	require.NoError(t, err)
	require.NotEmpty(t, out.Attributes)
	return func() {
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: out.Attributes})
		require.NoError(t, err)
	}
}

// TestTruncateKilled kills a Truncate after any number of requests. What is left reads as a whole tail, and
// the next Truncate leaves nothing behind.
func TestTruncateKilled(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	for requests := range 12 {
		tile := tile + fence.TileID(requests)
		st := newSmall(t, table, nil)
		require.NoError(t, st.Seal(t.Context(), tile, 1))
		var want []fence.Entry
		prev := fence.Position{}
		for i := range 4 {
			e := journalEntry(1, prev, 1500*(i%2)+100)
			e.Tile = tile
			e = fence.NewEntry(e)
			require.NoError(t, st.Append(t.Context(), tile, e))
			want, prev = append(want, e), e.Position
		}
		var made atomic.Int32
		killed, err := dynamocheckpoint.New(newClient(t, killAt(func(any) bool { return int(made.Add(1)) > requests })),
			table, nil)
		require.NoError(t, err)
		killed.SetParallel(1)
		killed.SetChunkSize(1000)
		_ = killed.Truncate(t.Context(), tile, 3)
		got, err := st.Tail(t.Context(), tile, 0)
		require.NoError(t, err, "after %d requests", requests)
		for _, e := range got {
			require.Contains(t, want, e)
		}
		require.Equal(t, want[3], got[len(got)-1])
		require.NoError(t, st.Truncate(t.Context(), tile, 3))
		require.Len(t, partsOf(t, table, tile), 1+3, "the head, and the entry that stays, with two chunks")
	}
}

// TestDelayedAppendOfTheSameEpoch delivers an append long after it was made again and followed by others: the
// journal's end does not move back.
func TestDelayedAppendOfTheSameEpoch(t *testing.T) {
	table := newTable(t)
	var delayed *dynamodb.TransactWriteItemsInput
	st := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
		if isAppend(input) && delayed == nil {
			delayed = input.(*dynamodb.TransactWriteItemsInput)
			return errKilled
		}
		return send()
	})
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	first := journalEntry(1, fence.Position{}, 2500)
	require.ErrorIs(t, st.Append(t.Context(), tile, first), fence.ErrUnknownOutcome)
	require.NoError(t, st.Append(t.Context(), tile, first))
	second := journalEntry(1, first.Position, 10)
	require.NoError(t, st.Append(t.Context(), tile, second))
	_, err := newClient(t, nil).TransactWriteItems(t.Context(), delayed)
	_, refused := asType[*types.TransactionCanceledException](err)
	require.True(t, refused, "%v", err)
	head, err := st.JournalHead(t.Context(), tile)
	require.NoError(t, err)
	require.Equal(t, checkpoint.JournalEnd{Sealed: 1, End: second.Position}, head.JournalEnd)
	journalHolds(t, st, first, second)
}

// TestBaseKilled kills a Base between the snapshot and the journal's head: the journal goes on refusing what does not
// follow its end, and the next Base completes it.
func TestBaseKilled(t *testing.T) {
	table := newTable(t)
	st := newSmall(t, table, nil)
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	killed := newSmall(t, table, killAt(func(input any) bool { _, ok := input.(*dynamodb.UpdateItemInput); return ok }))
	base := snapshot(1, 50, 2500)
	require.ErrorIs(t, killed.Base(t.Context(), tile, base), fence.ErrUnknownOutcome)
	next := journalEntry(1, base.Position, 10)
	require.ErrorIs(t, st.Append(t.Context(), tile, next), fence.ErrBehind)
	holds(t, st, base)
	require.NoError(t, st.Base(t.Context(), tile, base))
	require.NoError(t, st.Append(t.Context(), tile, next))
	journalHolds(t, st, next)
}

// TestReplacedChunksCollected: the chunks of an entry that was replaced go with the next Truncate.
func TestReplacedChunksCollected(t *testing.T) {
	table := newTable(t)
	st := newSmall(t, table, nil)
	var last fence.Entry
	for i, n := range []int{4500, 10, 2500} {
		base := snapshot(fence.Epoch(i+1), 1, 10)
		require.NoError(t, st.Base(t.Context(), tile, base))
		last = journalEntry(base.Epoch, base.Position, n)
		require.NoError(t, st.Append(t.Context(), tile, last))
		journalHolds(t, st, last)
	}
	require.Len(t, journalParts(t, table), 1+5+3)
	require.NoError(t, st.Truncate(t.Context(), tile, 2))
	require.Empty(t, journalParts(t, table))
}

// TestTruncateWithoutJournal costs a tile that has none one read and no write.
func TestTruncateWithoutJournal(t *testing.T) {
	table := newTable(t)
	requests := 0
	st := newStore(t, table, func(_ context.Context, input any, send func() error) error {
		requests++
		require.IsType(t, &dynamodb.GetItemInput{}, input)
		return send()
	})
	require.NoError(t, st.Truncate(t.Context(), tile, 100))
	require.Equal(t, 1, requests)
	require.Empty(t, parts(t, table))
}

// TestJournalUnknownVersion sees that a journal of a later format is refused by everybody.
func TestJournalUnknownVersion(t *testing.T) {
	table := newTable(t)
	st := newStore(t, table, nil)
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, 10)
	require.NoError(t, st.Append(t.Context(), tile, e))
	for _, part := range []string{entryKey(1), "journal"} {
		_, err := newClient(t, nil).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: &table,
			Key: map[string]types.AttributeValue{
				"tile": &types.AttributeValueMemberS{Value: tile.String()},
				"part": &types.AttributeValueMemberS{Value: part}},
			UpdateExpression:          ptr("SET v = :v"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: "2"}},
		})
		require.NoError(t, err)
		_, err = st.Tail(t.Context(), tile, 0)
		require.ErrorIs(t, err, fence.ErrCorrupt)
		require.ErrorContains(t, err, "version 2")
	}
	require.ErrorIs(t, st.Append(t.Context(), tile, e), fence.ErrCorrupt)
	require.ErrorIs(t, st.Seal(t.Context(), tile, 2), fence.ErrCorrupt)
	require.ErrorIs(t, st.Truncate(t.Context(), tile, 2), fence.ErrCorrupt)
}

// TestJournalBesideCheckpoints: both live in one table and do not see each other.
func TestJournalBesideCheckpoints(t *testing.T) {
	table := newTable(t)
	st := newSmall(t, table, nil)
	require.NoError(t, st.Seal(t.Context(), tile, 1))
	e := journalEntry(1, fence.Position{}, 2500)
	require.NoError(t, st.Append(t.Context(), tile, e))
	s := snapshot(1, 1, 2500)
	require.NoError(t, st.Put(t.Context(), tile, s))
	require.NoError(t, st.Put(t.Context(), tile, snapshot(1, 2, 3500)))
	st.ForgetSweeps()
	n, err := st.Collect(t.Context(), tile)
	require.NoError(t, err)
	require.Zero(t, n)
	journalHolds(t, st, e)
	heads := 0
	for head, err := range st.List(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, fence.Seq(2), head.Seq)
		heads++
	}
	require.Equal(t, 1, heads)
	require.NoError(t, st.Truncate(t.Context(), tile, 1))
	holds(t, st, snapshot(1, 2, 3500))
}
