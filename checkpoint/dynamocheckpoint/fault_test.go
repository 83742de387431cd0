package dynamocheckpoint_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

var errKilled = errors.New("killed")

func asType[E error](err error) (E, bool) { return errors.AsType[E](err) }

// killAt returns a fault after which the process is dead: the first request that matches is not sent, and
// neither is any later one.
func killAt(match func(input any) bool) fault {
	var dead atomic.Bool
	return func(_ context.Context, input any, send func() error) error {
		if dead.Load() || match(input) {
			dead.Store(true)
			return errKilled
		}
		return send()
	}
}

// TestKilledBeforeManifest kills a writer between chunks and manifest: the old checkpoint stays readable
// and the next writer collects the orphans.
func TestKilledBeforeManifest(t *testing.T) {
	table := newTable(t)
	for name, c := range map[string]struct{ old, next int }{
		"chunked to chunked": {3500, 2500},
		"chunked to inline":  {3500, 100},
		"inline to chunked":  {100, 2500},
	} {
		t.Run(name, func(t *testing.T) {
			table := table + strings.ReplaceAll(name, " ", "")
			st := newSmall(t, table, nil)
			require.NoError(t, st.EnsureTable(t.Context()))
			old := snapshot(1, 10, c.old)
			require.NoError(t, st.Put(t.Context(), tile, old))
			before := parts(t, table)

			killed := newSmall(t, table, killAt(isManifest))
			err := killed.Put(t.Context(), tile, snapshot(1, 11, 4500))
			require.ErrorIs(t, err, errKilled)
			require.ErrorIs(t, err, fence.ErrUnknownOutcome)
			require.Len(t, parts(t, table), len(before)+5, "orphans")
			holds(t, st, old)

			// An attempt that could still succeed is left alone.
			n, err := st.Collect(t.Context(), tile)
			require.NoError(t, err)
			require.Zero(t, n)

			successor := newSmall(t, table, nil)
			next := snapshot(1, 12, c.next)
			require.NoError(t, successor.Put(t.Context(), tile, next))
			holds(t, st, next)
			assert.Len(t, parts(t, table), items(c.next), "%v", parts(t, table))
		})
	}
}

// items is how many items a snapshot of n bytes takes in chunks of 1,000.
func items(n int) int {
	if n <= 1000 {
		return 1
	}
	return 1 + (n+999)/1000
}

// TestKilledBetweenChunks kills a writer after some of the chunks, with nothing stored before.
func TestKilledBetweenChunks(t *testing.T) {
	table := newTable(t)
	killed := newSmall(t, table, killAt(func(input any) bool { return strings.HasSuffix(partOf(input), "/0003") }))
	err := killed.Put(t.Context(), tile, snapshot(1, 11, 9500))
	require.ErrorIs(t, err, errKilled)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	_, found, err := killed.Get(t.Context(), tile)
	require.Error(t, err)
	require.False(t, found)

	st := newSmall(t, table, nil)
	_, found, err = st.Get(t.Context(), tile)
	require.NoError(t, err)
	require.False(t, found)
	s := snapshot(1, 11, 9500)
	require.NoError(t, st.Put(t.Context(), tile, s))
	holds(t, st, s)
	assert.Len(t, parts(t, table), items(9500))
}

// TestRetryTakesItsChunks sees that a Store which tries the same snapshot again overwrites its own chunks.
func TestRetryTakesItsChunks(t *testing.T) {
	table := newTable(t)
	failures := 3
	st := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
		if isManifest(input) && failures > 0 {
			failures--
			return errKilled
		}
		return send()
	})
	s := snapshot(1, 10, 4500)
	for range 3 {
		require.ErrorIs(t, st.Put(t.Context(), tile, s), errKilled)
		require.Len(t, parts(t, table), 5)
	}
	require.NoError(t, st.Put(t.Context(), tile, s))
	holds(t, st, s)
	assert.Len(t, parts(t, table), 6)
}

// TestLostAnswer loses the answer to every write once, so that the SDK's retry meets its own success.
func TestLostAnswer(t *testing.T) {
	for _, n := range []int{100, 4500} {
		table := newTable(t)
		var lost, tries atomic.Int32
		st := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
			err := send()
			if isManifest(input) && tries.Add(1)%2 == 1 {
				require.NoError(t, err)
				lost.Add(1)
				return &requestError{io.ErrUnexpectedEOF}
			}
			return err
		})
		for seq := range fence.Seq(3) {
			s := snapshot(1, 10+seq, n)
			require.NoError(t, st.Put(t.Context(), tile, s))
			holds(t, st, s)
		}
		assert.EqualValues(t, 3, lost.Load())
		assert.EqualValues(t, 6, tries.Load())
		assert.Len(t, parts(t, table), items(n))
	}
}

// requestError is a connection that broke: the SDK retries it.
type requestError struct{ error }

func (e *requestError) ConnectionError() bool { return true }
func (e *requestError) Unwrap() error         { return e.error }

// TestThrottled answers the first tries of every request with what a table without capacity answers.
func TestThrottled(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	throttle := &types.ProvisionedThroughputExceededException{Message: ptr("slow down")}
	st := newSmall(t, table, firstTry(throttle))
	for i, size := range []int{100, 2500} {
		s := snapshot(1, fence.Seq(1+i), size)
		require.NoError(t, st.Put(t.Context(), tile, s))
		holds(t, st, s)
	}

	// Throttled for good: the error says so, and what is stored stays.
	hopeless := newSmall(t, table, func(context.Context, any, func() error) error { return throttle })
	for i, size := range []int{100, 2500} {
		err := hopeless.Put(t.Context(), tile, snapshot(1, fence.Seq(3+i), size))
		_, ok := asType[*types.ProvisionedThroughputExceededException](err)
		assert.True(t, ok, "%v", err)
		_, ok = asType[*fence.StoreError](err)
		assert.True(t, ok, "%v", err)
	}
	holds(t, newSmall(t, table, nil), snapshot(1, 2, 2500))
}

// TestDelayedManifest lets a manifest arrive long after its writer has given up, while others write and
// collect: if it is accepted, its chunks must be there.
func TestDelayedManifest(t *testing.T) {
	for name, c := range map[string]struct {
		epoch    fence.Epoch // of the delayed snapshot; the other writer's is at 1/20
		seq      fence.Seq
		accepted bool
	}{
		"older": {1, 19, false}, "equal": {1, 20, false}, "regress": {2, 15, false},
		"newer": {1, 21, true}, "promoted": {2, 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable(t)
			st := newSmall(t, table, nil)
			require.NoError(t, st.Put(t.Context(), tile, snapshot(1, 10, 3500)))

			var delayed *dynamodb.PutItemInput
			slow := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
				if isManifest(input) {
					delayed = input.(*dynamodb.PutItemInput)
					return errKilled
				}
				return send()
			})
			late := snapshot(c.epoch, c.seq, 4500)
			require.ErrorIs(t, slow.Put(t.Context(), tile, late), fence.ErrUnknownOutcome)

			other := snapshot(1, 20, 2500)
			require.NoError(t, st.Put(t.Context(), tile, other))
			st.ForgetSweeps()
			_, err := st.Collect(t.Context(), tile)
			require.NoError(t, err)

			_, err = newClient(t, nil).PutItem(t.Context(), delayed)
			want := other
			if c.accepted {
				require.NoError(t, err)
				want = late
			} else {
				_, refused := asType[*types.ConditionalCheckFailedException](err)
				require.True(t, refused, "%v", err)
			}
			holds(t, st, want)
			_, err = st.Collect(t.Context(), tile)
			require.NoError(t, err)
			holds(t, st, want)
			assert.Len(t, parts(t, table), items(len(want.Blob)))
		})
	}
}

// TestOvertaken lets another writer store a newer snapshot between the chunks and the manifest of this
// one. The refusal says what is stored, and nothing of this one is left.
func TestOvertaken(t *testing.T) {
	table := newTable(t)
	other := newSmall(t, table, nil)
	newer := snapshot(1, 12, 3500)
	overtaken := false
	st := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
		if isManifest(input) && !overtaken {
			overtaken = true
			require.NoError(t, other.Put(t.Context(), tile, newer))
		}
		return send()
	})
	err := st.Put(t.Context(), tile, snapshot(1, 11, 4500))
	older, ok := asType[*checkpoint.OlderError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, newer.Position, older.Stored)
	assert.True(t, older.Covers())
	holds(t, st, newer)
	assert.Len(t, parts(t, table), items(3500))
}

// TestReadDuringReplacement replaces the checkpoint while a reader is between manifest and chunks, twice.
func TestReadDuringReplacement(t *testing.T) {
	table := newTable(t)
	writer := newSmall(t, table, nil)
	require.NoError(t, writer.Put(t.Context(), tile, snapshot(1, 10, 3500)))
	seq := fence.Seq(10)
	reader := newSmall(t, table, func(_ context.Context, input any, send func() error) error {
		get, ok := input.(*dynamodb.GetItemInput)
		if ok && get.Key["part"].(*types.AttributeValueMemberS).Value == "manifest" && seq < 12 {
			err := send()
			seq++
			require.NoError(t, writer.Put(t.Context(), tile, snapshot(1, seq, 2500)))
			return err
		}
		return send()
	})
	holds(t, reader, snapshot(1, 12, 2500))
}

// TestChunkMissing sees that a chunk which is gone for good is reported as damage.
func TestChunkMissing(t *testing.T) {
	table := newTable(t)
	st := newSmall(t, table, nil)
	require.NoError(t, st.Put(t.Context(), tile, snapshot(1, 10, 3500)))
	chunk := parts(t, table)[2]
	_, err := newClient(t, nil).DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table,
		Key: map[string]types.AttributeValue{
			"tile": &types.AttributeValueMemberS{Value: tile.String()},
			"part": &types.AttributeValueMemberS{Value: chunk},
		}})
	require.NoError(t, err)
	_, _, err = st.Get(t.Context(), tile)
	require.ErrorIs(t, err, fence.ErrCorrupt)
	require.ErrorContains(t, err, "chunk 2 of 4 is missing")
	s := snapshot(1, 11, 3500)
	require.NoError(t, st.Put(t.Context(), tile, s))
	holds(t, st, s)
}

// TestInlineLeavesNothing walks through sizes on both sides of the limit and counts items after each.
func TestInlineLeavesNothing(t *testing.T) {
	table := newTable(t)
	st := newSmall(t, table, nil)
	for i, n := range []int{10, 20, 1001, 30, 40, 5000, 5001, 4000, 1000} {
		s := snapshot(2, fence.Seq(i+1), n)
		require.NoError(t, st.Put(t.Context(), tile, s))
		holds(t, st, s)
		p := parts(t, table)
		require.Len(t, p, items(n), "%v", p)
		require.True(t, slices.Contains(p, "manifest"))
	}
}
