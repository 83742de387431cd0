package tile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/recovery"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// stores are embedded back ends.
type stores struct {
	authority fence.Authority
	store     *memfence.Store
	seams     Seams
}

func newStores() *stores {
	s := &stores{authority: memfence.NewAuthority(), store: memfence.New()}
	s.seams = Seams{Authority: s.authority, Store: s.store, Log: memstream.New(s.store)}
	return s
}

// processor is one that is not run: its parts are used by hand.
func (s *stores) processor(t *testing.T, contact string, cfg Config) (*TileProcessor, *letters) {
	t.Helper()
	rules := &letters{}
	p, err := New(7, contact, s.seams, rules, &cfg)
	require.NoError(t, err)
	return p, rules
}

// word commits one word as the tick of an owner.
func word(t *testing.T, p *TileProcessor, w string) {
	t.Helper()
	o := p.owner
	o.history.Tick++
	b, err := newPending(o.next(), nil, stream.Batch{Events: [][]byte{[]byte(w)}}, &Outputs{})
	require.NoError(t, err)
	o.pending = b
	require.NoError(t, o.present(t.Context()))
	require.Nil(t, o.pending)
}

func acquire(t *testing.T, p *TileProcessor, from source) acquired {
	t.Helper()
	got, err := p.acquisition.run(t.Context(), from)
	require.NoError(t, err)
	p.owner.begin(got, Serving)
	return got
}

func TestAcquisitionFromEachSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores()
		a, _ := s.processor(t, "a:1", Config{})
		got := acquire(t, a, fromStore)
		assert.Nil(t, got.claim, "a new tile is a rebase")
		assert.Equal(t, fence.Epoch(1), got.at.Epoch)
		word(t, a, "x")

		b, rules := s.processor(t, "b:1", Config{TakeOver: true})
		got = acquire(t, b, fromStore)
		require.NotNil(t, got.claim, "a history is continued by an install")
		assert.Equal(t, a.history.Position, got.claim.Prev)
		assert.Equal(t, "x", rules.state)
		word(t, b, "y")

		f, rules := s.processor(t, "f:1", Config{Follow: true})
		f.inbox.enter(Following, 0)
		_, err := f.follower.pass(t.Context())
		require.NoError(t, err)
		word(t, b, "z")
		acquire(t, f, fromStore)
		assert.True(t, f.acquisition.steps.Warm)
		assert.Equal(t, "xyz", rules.state)
		before := f.history.Position

		f.inbox.enter(Healing, 3)
		got = acquire(t, f, fromMemory)
		assert.Nil(t, got.claim)
		assert.Equal(t, fence.Epoch(4), got.at.Epoch)
		assert.Equal(t, before.Seq+fence.RebaseJump, got.at.Seq)
		assert.Equal(t, "xyz", rules.state)

		_, err = b.acquisition.run(t.Context(), fromMemory)
		assert.ErrorIs(t, err, ErrSuperseded, "the state of an owner that another has replaced is not the tile's")
	})
}

// An owner whose authority has forgotten its successor rebases on its memory no more: it takes up the successor's
// history.
func TestAcquisitionFromMemoryYieldsToALaterHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores()
		a, rules := s.processor(t, "a:1", Config{})
		acquire(t, a, fromStore)
		word(t, a, "x")
		b, _ := s.processor(t, "b:1", Config{TakeOver: true})
		acquire(t, b, fromStore)
		word(t, b, "y")
		s.seams.Authority = memfence.NewAuthority()
		a.seams.Authority = s.seams.Authority
		_, err := s.seams.Authority.Claim(t.Context(), fence.Claim{Tile: 7, Contact: "a:1", ID: a.ownership.grant.ID})
		require.NoError(t, err)

		a.inbox.enter(Healing, 1)
		got := acquire(t, a, fromMemory)
		assert.Equal(t, fromStore, got.source)
		assert.Equal(t, "xy", rules.state)
		assert.Greater(t, got.at.Epoch, b.ownership.grant.Epoch)
	})
}

func TestAcquisitionGivesUpInTimeUnlessItHasServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores()
		a, _ := s.processor(t, "a:1", Config{Timeouts: Timeouts{BootTimeout: 3 * time.Second}})
		a.seams.Authority = &mute{s.authority}
		began := time.Now()
		_, err := a.acquisition.run(t.Context(), fromStore)
		require.ErrorIs(t, err, fence.ErrNotApplied)
		assert.InDelta(t, 3, time.Since(began).Seconds(), 3)
		a.ownership.served = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = a.acquisition.run(ctx, fromStore)
		assert.Equal(t, errDrained, err)
		assert.InDelta(t, 3603, time.Since(began).Seconds(), 5)
	})
}

// mute is an authority that answers nothing.
type mute struct{ fence.Authority }

func (m *mute) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	<-ctx.Done()
	return fence.Grant{}, &fence.StoreError{Op: "lookup", Tile: id, Outcome: fence.ErrNotApplied, Err: ctx.Err()}
}

func TestMintIsAboveAllThatWasSeen(t *testing.T) {
	s := newStores()
	p, _ := s.processor(t, "a:1", Config{})
	held := p.ownership
	held.saw(41, 7)
	require.NoError(t, held.acquire(t.Context()))
	assert.Equal(t, fence.Epoch(42), held.grant.Epoch)
	ask := func() (i incident) {
		require.NoError(t, held.ask(t.Context(), &i, fence.Owner{}))
		return i
	}
	require.Equal(t, recovery.Ours, ask().Authority)
	require.NoError(t, held.acquire(t.Context()), "its own grant may be raised")
	assert.Equal(t, fence.Epoch(43), held.grant.Epoch)

	p, _ = s.processor(t, "b:1", Config{})
	var lost *fence.LostError
	require.ErrorAs(t, p.ownership.acquire(t.Context()), &lost)
	assert.Equal(t, "a:1", lost.Current.Contact)
	p, _ = s.processor(t, "b:1", Config{TakeOver: true})
	require.NoError(t, p.ownership.acquire(t.Context()))
	assert.ErrorIs(t, ask().superseded, ErrSuperseded)
	assert.ErrorIs(t, held.acquire(t.Context()), ErrSuperseded)
	held.grant.Epoch = 99
	assert.Equal(t, recovery.Forgotten, ask().Authority)
	p.ownership.release(t.Context())
	g, err := p.ownership.record(t.Context())
	require.NoError(t, err)
	assert.False(t, g.Held())
}

// Config.Commit carries every commit: the install, batches, refreshes, and batches appended again.
func TestEveryCommitGoesThroughConfigCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores()
		first, _ := s.processor(t, "a:1", Config{})
		acquire(t, first, fromStore)
		seen := map[string]int{}
		cfg := Config{TakeOver: true, Commit: func(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
			switch {
			case c.Install && c.Prev.Epoch < c.Epoch:
				seen["install"]++
			case c.Install:
				seen["again"]++
			case c.Refresh():
				seen["refresh"]++
			default:
				seen["batch"]++
			}
			return s.store.Commit(ctx, c)
		}}
		b, _ := s.processor(t, "b:1", cfg)
		acquire(t, b, fromStore)
		for _, w := range []string{"u", "v", "w"} {
			word(t, b, w)
		}
		s.store.Update(7, func(st *memfence.State) { // a failover to a replica that lacks the last batch
			st.Entries = st.Entries[:len(st.Entries)-1]
			last := st.Entries[len(st.Entries)-1]
			st.Owner.Position, st.Owner.Tick = last.Position, last.Tick
		})
		b.owner.history.Tick++
		b.owner.pending = &pendingBatch{formed: time.Now(), commit: b.owner.next()}
		for b.owner.pending != nil {
			require.NoError(t, b.owner.present(t.Context()))
		}
		assert.Equal(t, 1, seen["install"])
		assert.Equal(t, 1, seen["again"])
		assert.Equal(t, 3, seen["batch"])
		assert.Equal(t, 2, seen["refresh"])
		stored, err := s.store.Owner(t.Context(), 7)
		require.NoError(t, err)
		assert.Equal(t, b.history.Position, stored.Position)
	})
}
