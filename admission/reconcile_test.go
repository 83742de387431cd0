package admission_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// lossy reaches the tile in this process, and answers nothing. What it drops does not even reach it.
type lossy struct {
	tile *tile.TileProcessor
	drop func(tile.Intent) bool
}

func (l *lossy) Forward(ctx context.Context, _ string, in tile.Intent) (tile.Result, error) {
	if !l.drop(in) {
		if _, err := l.tile.Submit(ctx, in); err != nil {
			return tile.Result{}, err
		}
	}
	return tile.Result{}, errReset
}

// sound audits a whole ledger: every currency is conserved, and nothing is damaged. It returns what has no outcome.
func sound(t *testing.T, ledger *admission.AdmissionLedger) []admission.Artifact {
	t.Helper()
	now, err := ledger.Now(t.Context())
	require.NoError(t, err)
	report, err := ledger.Audit(t.Context(), now.Add(time.Hour))
	require.NoError(t, err)
	require.True(t, report.Sound(), "%+v", report)
	return report.Pending
}

// TestReconciler: no answer ever comes back. What the tile has applied is found in its stream, what never reached it is
// given back, by several gateways at once, and neither before it is certain.
func TestReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sqliteledger.Open(t.Context(), sqliteledger.Memory)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		coordination := memfence.New()
		seams := tile.Seams{Authority: memfence.NewAuthority(), Store: coordination, Log: memstream.New(coordination)}
		ctx, cancel := context.WithCancel(t.Context())
		processor, err := tile.New(here, "a:1", seams, &spells{}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(ctx) }()
		time.Sleep(5 * time.Second)

		ledger, err := admission.New(store, nil)
		require.NoError(t, err)
		require.NoError(t, ledger.Credit(ctx, "ann", "card", 100, "deck"))
		tiles := &lossy{tile: processor, drop: func(in tile.Intent) bool { return in.ActionID[0] == 'n' }}
		reconciler, err := admission.NewReconciler(seams.Authority, seams.Store, seams.Log,
			&admission.ReconcilerConfig{RememberFor: tile.DefaultRememberFor})
		require.NoError(t, err)
		var gateways []*admission.Gateway
		for range 3 {
			router, err := route.NewRouter(new(route.Table), coordination, nil)
			require.NoError(t, err)
			g, err := admission.NewGateway(ledger, router, tiles, admission.ClientPrices,
				&admission.GatewayConfig{Unlimited: true, Reconciler: reconciler})
			require.NoError(t, err)
			gateways = append(gateways, g)
		}
		sweep := func() (all admission.SweepInfo) {
			var mu sync.Mutex
			var sweeps sync.WaitGroup
			for _, g := range gateways {
				sweeps.Go(func() {
					info, err := g.Sweep(ctx)
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					all.Found, all.Stuck = all.Found+info.Found, all.Stuck+info.Stuck
					all.Evidence, all.Refunded = all.Evidence+info.Evidence, all.Refunded+info.Refunded
				})
			}
			sweeps.Wait()
			return all
		}
		for i := range 20 {
			for _, id := range []string{fmt.Sprint("applied-", i), fmt.Sprint("never-", i)} {
				a := play(id)
				a.Cost = 2
				_, err := gateways[0].Act(ctx, a)
				require.ErrorIs(t, err, admission.ErrPending)
			}
		}
		var all admission.SweepInfo
		for began := time.Now(); time.Since(began) < 8*time.Minute; time.Sleep(30 * time.Second) {
			got := sweep()
			all.Evidence, all.Refunded = all.Evidence+got.Evidence, all.Refunded+got.Refunded
			all.Stuck += got.Stuck
			sound(t, ledger)
		}
		assert.GreaterOrEqual(t, all.Evidence, 20)
		assert.GreaterOrEqual(t, all.Refunded, 20)
		assert.Positive(t, all.Stuck, "for a while")
		assert.Empty(t, sound(t, ledger))
		assert.EqualValues(t, 60, balanceOf(t, ledger, "ann"), "20 were applied, at 2 each")
		for i := range 20 {
			art, err := ledger.Lookup(ctx, fmt.Sprint("applied-", i))
			require.NoError(t, err)
			assert.Equal(t, stream.Applied, art.Outcome)
			assert.Greater(t, art.Resolved.Sub(art.Admitted), 5*time.Minute, "until then it was sent again")
			art, err = ledger.Lookup(ctx, fmt.Sprint("never-", i))
			require.NoError(t, err)
			assert.True(t, art.Refunded)
			assert.Greater(t, art.Resolved.Sub(art.Admitted), 6*time.Minute, "the tile's clock may be behind")
		}
		cancel()
		require.NoError(t, <-ended)
	})
}

func balanceOf(t *testing.T, ledger *admission.AdmissionLedger, who string) admission.Amount {
	t.Helper()
	account, err := ledger.Balance(t.Context(), who, "card")
	require.NoError(t, err)
	return account.Balance
}

// owned is a tile that the test itself owns.
type owned struct {
	*testing.T
	authority fence.Authority
	store     *memfence.Store
	grant     fence.Grant
	at        fence.Position
	tick      fence.Tick
	formed    time.Time // of the next batch
}

// commit commits a tick that decides actions; none refreshes the owner hash.
func (o *owned) commit(actions ...string) {
	o.tick++
	c := fence.Commit{Tile: here, Epoch: o.grant.Epoch, Contact: "a:1", Prev: o.at, Tick: o.tick, At: o.formed,
		Install: o.at.Epoch != o.grant.Epoch}
	if len(actions) > 0 || c.Install {
		b := stream.Batch{Events: [][]byte{[]byte("hit")}}
		for _, id := range actions {
			b.Resolutions = append(b.Resolutions, stream.Resolution{ActionID: id, Outcome: stream.Applied})
		}
		var err error
		c.Payload, c.Private, err = b.Encode()
		require.NoError(o, err)
	}
	receipt, err := o.store.Commit(o.Context(), c)
	require.NoError(o, err)
	o.at = receipt.Position
}

func (o *owned) claim() {
	var err error
	o.grant, err = o.authority.Claim(o.Context(), fence.Claim{Tile: here, Contact: "a:1", ID: fence.NewClaimID()})
	require.NoError(o, err)
}

// TestEvidence: what is spent is given back only when authority, owner hash and stream agree that it never happened.
func TestEvidence(t *testing.T) {
	const age, split = 7 * time.Minute, "do not name one owner"
	for name, c := range map[string]struct {
		age     time.Duration // of the action, if not 7 min
		play    func(*owned)  // before
		during  func(*owned)  // while the reconciler watches the owner
		alone   bool          // no replica confirms anything
		outcome stream.Outcome
		never   bool
		reason  string
	}{
		"never owned":       {never: true},
		"the owner goes on": {play: (*owned).begin, during: func(o *owned) { o.commit() }, never: true},
		"the owner goes on, and no replica has that": {play: (*owned).begin, during: func(o *owned) { o.commit() },
			alone: true, reason: "not every replica has what was read"},
		"the owner decides something else": {play: (*owned).begin,
			during: func(o *owned) { o.formed = time.Now(); o.commit("y") }, never: true},
		"the owner appends again what was lost": {play: (*owned).begin,
			during: func(o *owned) { o.formed = time.Now().Add(-age); o.commit("y") }, reason: "a failover lost"},
		"the owner's memory has it": {play: (*owned).begin, during: func(o *owned) { o.commit("x") },
			reason: "could still take back"},
		"no replica has it": {play: func(o *owned) { o.begin(); o.commit("x") }, alone: true,
			reason: "could still take back"},
		"the stream has it":   {play: func(o *owned) { o.begin(); o.commit("x") }, outcome: stream.Applied},
		"the owner is silent": {play: (*owned).begin, reason: "does not commit"},
		"too early":           {age: 6 * time.Minute, reason: "may decide it yet"},
		"too late":            {age: 9 * time.Minute, reason: "may have forgotten it"},
		"from the future":     {age: -time.Hour, reason: "may decide it yet"},
		"released":            {play: func(o *owned) { o.begin(); o.release() }, never: true},
		"released, and no replica has that": {play: func(o *owned) { o.begin(); o.release() }, alone: true,
			reason: "not every replica has what was read"},
		"owned, never installed":       {play: (*owned).claim, reason: split},
		"released, the store was lost": {play: func(o *owned) { o.claim(); o.release() }, reason: split},
		"the authority was lost": {play: func(o *owned) { o.begin(); o.authority = memfence.NewAuthority() },
			reason: split},
		"another was given the tile": {play: func(o *owned) { o.begin(); o.promote() }, reason: split},
		"another takes it while asking": {play: (*owned).begin, during: func(o *owned) { o.promote(); o.commit() },
			reason: split},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &owned{T: t, authority: memfence.NewAuthority(), store: memfence.New()}
				if c.play != nil {
					c.play(o)
				}
				var store fence.Store = o.store
				if c.alone {
					store = alone{o.store}
				}
				r, err := admission.NewReconciler(o.authority, store, memstream.New(o.store),
					&admission.ReconcilerConfig{RememberFor: tile.DefaultRememberFor})
				require.NoError(t, err)
				if c.during != nil {
					time.AfterFunc(time.Second, func() { c.during(o) })
				}
				if c.age == 0 {
					c.age = age
				}
				admitted := time.Now().Add(-c.age)
				now := func(context.Context) (time.Time, error) { return time.Now(), nil }
				found, err := r.Find(t.Context(), now, here, []admission.Artifact{{ActionID: "x", Admitted: admitted}})
				require.NoError(t, err)
				assert.Equal(t, c.outcome, found[0].Outcome)
				assert.Equal(t, c.never, found[0].Never)
				if c.reason != "" {
					require.ErrorContains(t, found[0].Reason, c.reason)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// alone is a master without replicas.
type alone struct{ *memfence.Store }

func (alone) Confirm(_ context.Context, id fence.TileID, at fence.Position) error {
	return &fence.UnconfirmedError{Tile: id, Receipt: fence.Receipt{Position: at}, Want: 1}
}

func (o *owned) begin() {
	o.claim()
	o.commit()
}

func (o *owned) release() { require.NoError(o, o.authority.Release(o.Context(), o.grant)) }

func (o *owned) promote() {
	var err error
	o.grant, err = o.authority.Promote(o.Context(),
		fence.Claim{Tile: here, Contact: "a:1", ID: fence.NewClaimID(), Expected: o.grant.Epoch})
	require.NoError(o, err)
}

// TestReconcilerConfig: what would give back without evidence is refused.
func TestReconcilerConfig(t *testing.T) {
	store := memfence.New()
	log := memstream.New(store)
	for name, c := range map[string]admission.ReconcilerConfig{
		"no window":   {RememberFor: 5 * time.Minute},
		"clocks":      {RememberFor: 10 * time.Minute, MaxClockSkew: 150 * time.Second},
		"a long wait": {RememberFor: 10 * time.Minute, RetryWindow: 10 * time.Minute},
		"negative":    {RememberFor: 10 * time.Minute, MaxClockSkew: -1},
	} {
		_, err := admission.NewReconciler(memfence.NewAuthority(), store, log, &c)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err := admission.NewReconciler(nil, store, log, &admission.ReconcilerConfig{RememberFor: 10 * time.Minute})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = admission.NewReconciler(nil, store, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = admission.NewReconciler(nil, store, log, nil)
	require.NoError(t, err, "it finds outcomes, and gives nothing back")
}
