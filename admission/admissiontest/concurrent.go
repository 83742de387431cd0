package admissiontest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/stream"
)

// together runs n copies of f at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func testConcurrentSame(t *testing.T, s suite) {
	who := player()
	s.credit(who, "card", 10)
	a := action(who, "card", 1)
	got := make([]admission.Artifact, 16)
	together(len(got), func(i int) {
		var err error
		got[i], err = s.store.Admit(s.ctx, again(a))
		assert.NoError(t, err)
	})
	for _, g := range got {
		assert.Equal(t, got[0], g)
	}
	assert.Equal(t, admission.Amount(9), s.balance(who, "card").Balance)
}

func testConcurrentCredit(t *testing.T, s suite) {
	for range 5 {
		who := player()
		a := action(who, "card", 1)
		got := make([]admission.Artifact, 6)
		together(len(got), func(i int) {
			if i == 0 {
				g := admission.Credit{ID: a.ActionID, Owner: who, Asset: "card", Amount: 1, At: epoch}
				assert.NoError(t, s.store.Credit(s.ctx, g))
				return
			}
			var err error
			got[i], err = s.store.Admit(s.ctx, again(a))
			assert.NoError(t, err)
		})
		for _, g := range got[1:] {
			assert.Equal(t, got[1], g)
		}
		left := s.balance(who, "card").Balance
		assert.Equal(t, admission.Amount(1), left+got[1].Spent(), "rejected keeps the card, admitted takes it")
	}
}

func testConcurrentSpends(t *testing.T, s suite) {
	who := player()
	s.credit(who, "gold", 10)
	got := make([]admission.Artifact, 16)
	together(len(got), func(i int) {
		var err error
		got[i], err = s.store.Admit(s.ctx, action(who, "gold", admission.Amount(1+i%3)))
		assert.NoError(t, err)
	})
	left := s.balance(who, "gold").Balance
	var spent admission.Amount
	for _, g := range got {
		spent += g.Spent()
		if g.Outcome == stream.Rejected {
			assert.Greater(t, g.Cost, left, "nothing refused could have been paid at the end: the balance only fell")
		}
	}
	assert.Equal(t, admission.Amount(10), spent+left)
}

func testConcurrentSettle(t *testing.T, s suite) {
	for range 3 {
		who := player()
		s.credit(who, "card", 1)
		a := action(who, "card", 1)
		s.admit(a)
		got := make([]admission.Artifact, 8)
		together(len(got), func(i int) {
			c := admission.Settlement{ActionID: a.ActionID, Outcome: stream.Outcome(1 + i%4),
				At: epoch.Add(time.Duration(i) * time.Second)}
			if i == 3 || i == 7 {
				c.Refund, c.Sole = true, a.AttemptID
			}
			var err error
			got[i], err = s.store.Settle(s.ctx, c)
			assert.NoError(t, err)
		})
		require.True(t, got[0].Outcome.Valid())
		for _, g := range got {
			assert.Equal(t, got[0], g)
		}
		assert.Equal(t, admission.Amount(1), s.balance(who, "card").Balance+got[0].Spent())
	}
}
