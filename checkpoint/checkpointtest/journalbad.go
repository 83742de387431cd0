package checkpointtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// testJournalArguments: what is malformed, the tests of checkpoint.ValidateEntry say in full.
func testJournalArguments(t *testing.T, h JournalHarness) {
	ctx := t.Context()
	seal(t, h.Journal, tile, 1)
	bare := entry(tile, 1, fence.Position{}, []byte("x"))
	bare.Frame = nil
	_, tailErr := h.Journal.Tail(ctx, tile, fence.MaxNumber+1)
	_, headErr := h.Journal.JournalHead(ctx, 0)
	for what, err := range map[string]error{
		"append of what is not encoded":   h.Journal.Append(ctx, tile, bare),
		"append to no tile":               h.Journal.Append(ctx, 0, entry(tile, 1, fence.Position{}, nil)),
		"append to another tile":          h.Journal.Append(ctx, tile, entry(tile+1, 1, fence.Position{}, nil)),
		"seal for no epoch":               h.Journal.Seal(ctx, tile, 0),
		"base of no tile":                 h.Journal.Base(ctx, 0, text(1, 1)),
		"truncate to more than there are": h.Journal.Truncate(ctx, tile, fence.MaxNumber+1),
		"tail":                            tailErr,
		"head":                            headErr,
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
	}
	tailIs(t, h.Journal, tile, 0)
}

func testCorruptEntry(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	whole := entryAt(tile, 1, 5, fence.Position{Epoch: 1, Seq: 4, Chain: 3}, []byte("batch"))
	for name, at := range map[string]int{"prev chain": 25, "payload": len(whole.Frame) - len(whole.Private) - 1,
		"private": len(whole.Frame) - 1} {
		bad := whole
		bad.Frame = slices.Clone(whole.Frame)
		bad.Frame[at] ^= 1
		var corrupt *fence.CorruptError
		require.ErrorAs(t, h.Journal.Append(t.Context(), tile, bad), &corrupt, name)
		assert.Equal(t, bad.Position, corrupt.At)
	}
	tailIs(t, h.Journal, tile, 0)
}

func testDamagedEntry(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	all := run(t, h.Journal, tile, 1, fence.Position{}, 3)
	big := entry(tile, 1, all[2].Position, noise(500<<10))
	appended(t, h.Journal, tile, big)
	for _, e := range []fence.Entry{all[1], big} {
		h.Damage(t, tile, e.Seq)
		got, err := h.Other.Tail(t.Context(), tile, e.Seq-1)
		var corrupt *fence.CorruptError
		require.ErrorAs(t, err, &corrupt)
		assert.Equal(t, tile, corrupt.Tile)
		assert.Equal(t, e.Position, corrupt.At)
		assert.Empty(t, got)
	}
	_, err := h.Journal.Tail(t.Context(), tile, all[1].Seq)
	require.ErrorIs(t, err, fence.ErrCorrupt, "the last entry is damaged, too")
	require.NoError(t, h.Journal.Truncate(t.Context(), tile, big.Seq))
	tailIs(t, h.Journal, tile, 0)
}

func testJournalAliasing(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	payload := noise(100)
	e := entry(tile, 1, fence.Position{}, slices.Clone(payload))
	appended(t, h.Journal, tile, e)
	e.Payload[0] ^= 1
	for range 2 {
		got, err := h.Journal.Tail(t.Context(), tile, 0)
		require.NoError(t, err)
		require.Equal(t, payload, got[0].Payload)
		got[0].Payload[1] ^= 1
	}
}

func testJournalCancelled(t *testing.T, h JournalHarness) {
	seal(t, h.Journal, tile, 1)
	all := run(t, h.Journal, tile, 1, fence.Position{}, 2)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, tailErr := h.Journal.Tail(ctx, tile, 0)
	_, headErr := h.Journal.JournalHead(ctx, tile)
	for what, err := range map[string]error{
		"seal":     h.Journal.Seal(ctx, tile, 9),
		"append":   h.Journal.Append(ctx, tile, entry(tile, 1, all[1].Position, nil)),
		"base":     h.Journal.Base(ctx, tile, text(1, 100)),
		"truncate": h.Journal.Truncate(ctx, tile, 2),
		"tail":     tailErr,
		"head":     headErr,
	} {
		var store *fence.StoreError
		require.ErrorAs(t, err, &store, what)
		assert.Equal(t, tile, store.Tile, what)
		require.ErrorIs(t, err, fence.ErrNotApplied, what)
		require.ErrorIs(t, err, why, what)
	}
	tailIs(t, h.Journal, tile, 0, all...)
	seal(t, h.Journal, tile, 1)
}
