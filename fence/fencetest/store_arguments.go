package fencetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// tooHigh is the first number that is refused: Redis compares numbers as doubles.
const tooHigh = fence.MaxNumber + 1

func argumentsOfCommit(s *scene) {
	last := s.found(2, 2)[1].Next()
	for _, test := range []struct {
		name, field string
		edit        func(*fence.Commit)
	}{
		{"no tile", "tile", func(c *fence.Commit) { c.Tile = 0 }},
		{"no epoch", "epoch", func(c *fence.Commit) { c.Epoch = 0 }},
		{"epoch too high", "epoch", func(c *fence.Commit) { c.Epoch = tooHigh }},
		{"no contact", "contact", func(c *fence.Commit) { c.Contact = "" }},
		{"long contact", "contact", func(c *fence.Commit) { c.Contact = strings.Repeat("x", fence.MaxContact+1) }},
		{"prev of a higher epoch", "prev", func(c *fence.Commit) { c.Prev.Epoch = c.Epoch + 1 }},
		{"no sequence left", "prev", func(c *fence.Commit) { c.Prev.Seq = fence.MaxNumber }},
		{"prev too high", "prev", func(c *fence.Commit) { c.Prev.Seq = 1<<64 - 1 }},
		{"tick too high", "tick", func(c *fence.Commit) { c.Tick = tooHigh }},
		{"time before 1970", "at", func(c *fence.Commit) { c.At = time.UnixMilli(-1) }},
		{"time too high", "at", func(c *fence.Commit) { c.At = time.UnixMilli(tooHigh) }},
		{"large payload", "payload", func(c *fence.Commit) { c.Payload = make([]byte, fence.MaxPayload+1) }},
		{"large parts together", "payload", func(c *fence.Commit) { c.Private = make([]byte, fence.MaxPayload) }},
		{"replicas", "replicas", func(c *fence.Commit) { c.Replicas = -2 }},
	} {
		for _, epoch := range []fence.Epoch{2, 3} {
			c := s.batch(epoch, last)
			c.Install = epoch == 3
			test.edit(&c)
			s.untouched(func() {
				r, err := s.Store.Commit(s.Context(), c)
				s.requireArgument(err, test.field)
				require.Zero(s, r)
			})
		}
	}
	s.commit(s.batch(2, last))
}

func argumentsOfRebase(s *scene) {
	s.found(2, 2)
	for _, test := range []struct {
		name, field string
		edit        func(*fence.Rebase)
	}{
		{"no tile", "tile", func(r *fence.Rebase) { r.Tile = 0 }},
		{"no epoch", "epoch", func(r *fence.Rebase) { r.Epoch = 0 }},
		{"epoch too high", "epoch", func(r *fence.Rebase) { r.Epoch = tooHigh }},
		{"no contact", "contact", func(r *fence.Rebase) { r.Contact = "" }},
		{"long contact", "contact", func(r *fence.Rebase) { r.Contact = strings.Repeat("x", fence.MaxContact+1) }},
		{"no sequence", "seq", func(r *fence.Rebase) { r.Seq = 0 }},
		{"sequence too high", "seq", func(r *fence.Rebase) { r.Seq = tooHigh }},
		{"tick too high", "tick", func(r *fence.Rebase) { r.Tick = tooHigh }},
		{"large blob", "blob", func(r *fence.Rebase) { r.Blob = make([]byte, fence.MaxSnapshot+1) }},
		{"replicas", "replicas", func(r *fence.Rebase) { r.Replicas = -2 }},
	} {
		r := s.rebase(3, 100, "state")
		test.edit(&r)
		s.untouched(func() {
			receipt, err := s.Store.Rebase(s.Context(), r)
			s.requireArgument(err, test.field)
			require.Zero(s, receipt)
		})
	}
}

func argumentsOfSnapshot(s *scene) {
	c := s.found(2, 2)[1]
	for _, test := range []struct {
		name, field string
		edit        func(*fence.SnapshotWrite)
	}{
		{"no tile", "tile", func(w *fence.SnapshotWrite) { w.Tile = 0 }},
		{"the beginning", "position", func(w *fence.SnapshotWrite) { w.Position = fence.Position{} }},
		{"no epoch", "position", func(w *fence.SnapshotWrite) { w.Position.Epoch = 0 }},
		{"no sequence", "position", func(w *fence.SnapshotWrite) { w.Position.Seq = 0 }},
		{"epoch too high", "position", func(w *fence.SnapshotWrite) { w.Position.Epoch = tooHigh }},
		{"sequence too high", "position", func(w *fence.SnapshotWrite) { w.Position.Seq = tooHigh }},
		{"tick too high", "tick", func(w *fence.SnapshotWrite) { w.Tick = tooHigh }},
		{"large blob", "blob", func(w *fence.SnapshotWrite) { w.Blob = make([]byte, fence.MaxSnapshot+1) }},
	} {
		w := fence.SnapshotWrite{Tile: s.tile, Position: c.Next(), Tick: c.Tick, Blob: []byte("state")}
		test.edit(&w)
		s.untouched(func() { s.requireArgument(s.Store.SaveSnapshot(s.Context(), w), test.field) })
	}
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
		s.requireArgument(err, "prev")
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

func storeContextDone(s *scene) {
	last := s.found(1, 1)[0].Next()
	cause := errors.New("the test says so")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(cause)
	for what, call := range map[string]func() error{
		"commit":  func() error { _, err := s.Store.Commit(ctx, s.batch(1, last)); return err },
		"refresh": func() error { _, err := s.Store.Commit(ctx, s.refresh(1, last, 50)); return err },
		"rebase":  func() error { _, err := s.Store.Rebase(ctx, s.rebase(2, 100, "state")); return err },
		"snapshot": func() error {
			return s.Store.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: s.tile, Position: last, Tick: 1})
		},
		"owner": func() error { _, err := s.Store.Owner(ctx, s.tile); return err },
	} {
		s.untouched(func() {
			err := call()
			var store *fence.StoreError
			require.ErrorAs(s, err, &store, what)
			require.Equal(s, s.tile, store.Tile, what)
			require.Equal(s, fence.ErrNotApplied, store.Outcome, what)
			require.NotEmpty(s, store.Op, what)
			require.ErrorIs(s, err, cause, what)
		})
	}
	// A malformed call is that, also under a context that is over.
	_, err := s.Store.Commit(ctx, fence.Commit{})
	s.requireArgument(err, "tile")
}
