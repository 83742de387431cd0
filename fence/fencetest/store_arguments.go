package fencetest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// storeArguments: each write refuses what is malformed by the field's name, and changes nothing. What is malformed, the
// tests of the arguments' Validate methods say in full.
func storeArguments(s *scene) {
	c := s.found(2, 2)[1]
	batch, install, rebase := s.batch(2, c.Next()), s.install(3, c.Next()), s.rebase(3, 100, "state")
	batch.Tick, install.Contact, rebase.Seq = fence.MaxNumber+1, "", 0
	write := fence.SnapshotWrite{Tile: s.tile, Position: c.Next(), Tick: c.Tick,
		Blob: make([]byte, fence.MaxSnapshot+1)}
	s.untouched(func() {
		for field, err := range map[string]error{
			"tick":    errOf(s.Store.Commit(s.Context(), batch)),
			"contact": errOf(s.Store.Commit(s.Context(), install)),
			"seq":     errOf(s.Store.Rebase(s.Context(), rebase)),
			"blob":    s.Store.SaveSnapshot(s.Context(), write),
		} {
			requireArgument(s.T, err, field)
		}
	})
	s.commit(s.batch(2, c.Next()))
}

// boundsNumbers: the highest numbers are as good as any, and neighbours up there are told apart.
func boundsNumbers(s *scene) {
	const top = fence.MaxNumber
	r := s.rebase(top-1, top-2, "state")
	r.Tick = top - 1
	at := s.rebased(r)
	s.refuse(s.install(top-2, fence.Position{Epoch: top - 2, Seq: at.Seq, Chain: at.Chain}), fence.ErrStale)
	s.refuseRebase(s.rebase(top-1, top, "another"), fence.ErrStale)
	s.refuseRebase(s.rebase(top, top-2, "another"), fence.ErrBehind)
	s.refuse(s.batch(top-1, fence.Position{Epoch: top - 1, Seq: top - 1, Chain: 1}), fence.ErrBehind)

	c := s.install(top, at)
	c.Tick, c.At = top, time.UnixMilli(top)
	at = s.commit(c).Position
	require.Equal(s, fence.Position{Epoch: top, Seq: top - 1, Chain: at.Chain}, at)
	require.NoError(s, s.save(at, top, "state"))
	last := s.batch(top, at)
	last.Tick = top
	at = s.commit(last).Position
	require.EqualValues(s, top, at.Seq)
	s.repeat(last)
	// The sequence ends here; the tile's last state can still be saved.
	s.untouched(func() {
		_, err := s.Store.Commit(s.Context(), s.batch(top, at))
		requireArgument(s.T, err, "prev")
	})
	require.NoError(s, s.save(at, top, "the last"))
	s.DropOwner(s.tile)
	last.Install = true
	s.repeat(last)
}

// boundsBytes: the largest payload, snapshot and contact, and bytes of every kind.
func boundsBytes(s *scene) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	c := s.install(1, fence.Position{})
	c.Contact = string(all[1:])
	require.Len(s, c.Contact, fence.MaxContact)
	c.Payload = bytes.Repeat(all, fence.MaxPayload/len(all))
	last := s.commit(c).Position
	require.Equal(s, c.Contact, s.owner().Contact)

	c = s.batch(2, last)
	c.Install, c.Contact, c.Payload = true, "\x00", nil // events without bytes are the caller's affair
	last = s.commit(c).Position
	c.Install, c.Prev, c.Payload = false, last, []byte{}
	s.commit(c)

	blob := bytes.Repeat(all, fence.MaxSnapshot/len(all))
	require.NoError(s, s.save(c.Next(), c.Tick, string(blob)))
	s.requireSnapshot(fence.Snapshot{Position: c.Next(), Tick: c.Tick, Contact: "\x00", Blob: blob})
	r := s.rebase(3, 100, string(blob))
	r.Contact = string(all[1:])
	s.rebased(r)
}

// confirmReplicas: a write that asks for more replicas than there are is applied all the same, says so,
// and is recognised when it is presented again.
func confirmReplicas(s *scene) {
	const tooMany = 64
	short := func(call func() (fence.Receipt, error), want fence.Receipt) {
		s.Helper()
		r, err := call()
		require.Zero(s, r)
		require.ErrorIs(s, err, fence.ErrUnconfirmed)
		var unconfirmed *fence.UnconfirmedError
		require.ErrorAs(s, err, &unconfirmed)
		require.Less(s, unconfirmed.Receipt.Replicas, tooMany)
		want.Replicas = unconfirmed.Receipt.Replicas
		require.Equal(s, &fence.UnconfirmedError{Tile: s.tile, Receipt: want, Want: tooMany}, unconfirmed)
	}
	r := s.rebase(1, 1, "state")
	r.Replicas = tooMany
	short(func() (fence.Receipt, error) { return s.Store.Rebase(s.Context(), r) }, fence.Receipt{Position: r.Next()})
	c := s.batch(1, r.Next())
	c.Replicas = tooMany
	for _, duplicate := range []bool{false, true} {
		short(func() (fence.Receipt, error) { return s.Store.Commit(s.Context(), c) },
			fence.Receipt{Position: c.Next(), Duplicate: duplicate})
	}
	c.Replicas = fence.AllReplicas
	s.repeat(c)
	next := s.batch(1, c.Next())
	next.Replicas = fence.AllReplicas
	s.commit(next)
	tick := s.refresh(1, next.Next(), 50)
	tick.Replicas = fence.AllReplicas
	s.commit(tick)
	// A refusal is a refusal, however many were asked for.
	next.Replicas, next.Epoch, next.Install = tooMany, 2, true
	s.refuse(next, fence.ErrReplay)
}

// confirmReaders: Confirm succeeds for any caller if the position is in the stream, and fails otherwise.
func confirmReaders(s *scene) {
	commits := s.found(1, 3)
	last := commits[2].Next()
	confirmed := func(at fence.Position) {
		s.Helper()
		waittest.Until(s, func() bool { // a replica that other tests keep busy is late
			err := s.Store.Confirm(s.Context(), s.tile, at)
			require.True(s, err == nil || errors.Is(err, fence.ErrUnconfirmed), "%v", err)
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
	}
	s.untouched(func() {
		for _, c := range commits {
			confirmed(c.Next())
		}
		for what, at := range map[string]fence.Position{
			"nothing":         {},
			"another chain":   {Epoch: last.Epoch, Seq: last.Seq, Chain: last.Chain + 1},
			"another epoch":   {Epoch: last.Epoch + 1, Seq: last.Seq, Chain: last.Chain},
			"not yet written": {Epoch: last.Epoch, Seq: last.Seq + 1, Chain: last.Chain},
		} {
			err := s.Store.Confirm(s.Context(), s.tile, at)
			var unconfirmed *fence.UnconfirmedError
			require.ErrorAs(s, err, &unconfirmed, what)
			require.Equal(s, at, unconfirmed.Receipt.Position, what)
			require.NotEmpty(s, unconfirmed.Detail, what)
		}
	})
	s.commit(s.install(2, last))
	confirmed(last) // a later owner follows it
	r := s.rebase(3, 100, "state")
	s.rebased(r)
	confirmed(r.Next())
	requireArgument(s.T, s.Store.Confirm(s.Context(), 0, last), "tile")
}

func storeContextDone(s *scene) {
	last := s.found(1, 1)[0].Next()
	cause := errors.New("the test says so")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(cause)
	s.untouched(func() {
		for what, err := range map[string]error{
			"commit":  errOf(s.Store.Commit(ctx, s.batch(1, last))),
			"refresh": errOf(s.Store.Commit(ctx, s.refresh(1, last, 50))),
			"rebase":  errOf(s.Store.Rebase(ctx, s.rebase(2, 100, "state"))),
			"snapshot": s.Store.SaveSnapshot(ctx,
				fence.SnapshotWrite{Tile: s.tile, Position: last, Tick: 1}),
			"owner":   errOf(s.Store.Owner(ctx, s.tile)),
			"confirm": s.Store.Confirm(ctx, s.tile, last),
		} {
			var store *fence.StoreError
			require.ErrorAs(s, err, &store, what)
			require.Equal(s, s.tile, store.Tile, what)
			require.Equal(s, fence.ErrNotApplied, store.Outcome, what)
			require.NotEmpty(s, store.Op, what)
			require.ErrorIs(s, err, cause, what)
		}
	})
	// A malformed call is that, also under a context that is over.
	_, err := s.Store.Commit(ctx, fence.Commit{})
	requireArgument(s.T, err, "tile")
}
