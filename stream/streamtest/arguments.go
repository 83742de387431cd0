package streamtest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

// arguments: each method refuses what is malformed, and changes nothing.
func arguments(s *scene) {
	s.commit(1, 1)
	ctx, log := s.Context(), s.Log
	_, _, snapshot := log.Snapshot(ctx, 0)
	trim := func(r stream.TrimRequest) error { return errOf(log.Trim(ctx, r)) }
	for what, err := range map[string]error{
		"read":                errOf(log.Read(ctx, []stream.Cursor{{}})),
		"read of a second":    errOf(log.Read(ctx, []stream.Cursor{{Tile: s.tile}, {}})),
		"snapshot":            snapshot,
		"last":                errOf(log.Last(ctx, 0)),
		"mark":                s.markErr(ctx, 0, relay, 1),
		"mark of a stranger":  s.markErr(ctx, s.tile, "stranger", 1),
		"mark of no name":     s.markErr(ctx, s.tile, "", 1),
		"mark of a group":     s.markErr(ctx, s.tile, stream.ConsumerGroup, 1),
		"mark of all relays":  s.markErr(ctx, s.tile, stream.RelayFloor, 1),
		"mark of a bad relay": s.markErr(ctx, s.tile, stream.RelayMember("a.at"), 1),
		"mark too high":       s.markErr(ctx, s.tile, relay, fence.MaxNumber+1),
		"marks":               errOf(log.Marks(ctx, []fence.TileID{0})),
		"trim":                trim(stream.TrimRequest{Lease: lease}),
		"trim without lease":  trim(stream.TrimRequest{Tile: s.tile}),
		"trim, short lease":   trim(stream.TrimRequest{Tile: s.tile, Lease: time.Second - 1}),
		"trim, negative":      trim(stream.TrimRequest{Tile: s.tile, Lease: -lease}),
		"trim, small bound":   trim(stream.TrimRequest{Tile: s.tile, Lease: lease, MaxBytes: 1}),
		"stat":                errOf(log.(stream.Inspector).Stat(ctx, []fence.TileID{0})),
		"remove dead letter":  errOf(log.RemoveDeadLetter(ctx, 0, "1-0")),
		"dead letter":         log.DeadLetter(ctx, stream.Poison{Seq: 1}),
		"reading dead letter": errOf(log.DeadLetters(ctx, 0)),
	} {
		require.ErrorIs(s, err, fence.ErrInvalidArgument, what)
	}
	require.Empty(s, s.marks())
}

// contextDone: under a context that has ended each call says so, and that nothing was applied.
func contextDone(s *scene) {
	s.commit(1, 1)
	cause := errors.New("the test says so")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(cause)
	log := s.Log
	_, _, snapshot := log.Snapshot(ctx, s.tile)
	for what, err := range map[string]error{
		"read":         errOf(log.Read(ctx, []stream.Cursor{{Tile: s.tile}})),
		"snapshot":     snapshot,
		"last":         errOf(log.Last(ctx, s.tile)),
		"mark":         s.markErr(ctx, s.tile, relay, 1),
		"marks":        errOf(log.Marks(ctx, []fence.TileID{s.tile})),
		"trim":         errOf(log.Trim(ctx, stream.TrimRequest{Tile: s.tile, Lease: lease})),
		"dead letter":  log.DeadLetter(ctx, stream.Poison{Tile: s.tile}),
		"remove":       errOf(log.RemoveDeadLetter(ctx, s.tile, "1-0")),
		"dead letters": errOf(log.DeadLetters(ctx, s.tile)),
		"recover":      errOf(stream.Recover(ctx, log, s.tile)),
	} {
		var store *fence.StoreError
		require.ErrorAs(s, err, &store, what)
		require.Equal(s, fence.ErrNotApplied, store.Outcome, what)
		require.Equal(s, s.tile, store.Tile, what)
		require.NotEmpty(s, store.Op, what)
		require.ErrorIs(s, err, cause, what)
	}
	require.Empty(s, s.marks())
	letters, err := log.DeadLetters(s.Context(), s.tile)
	require.NoError(s, err)
	require.Empty(s, letters)
}
