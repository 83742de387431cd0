package health

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
)

// asked is a back end that hangs, or answers.
type asked struct {
	hangs bool
	wrong []error
	world fence.World
	err   error
}

func (b *asked) Check(ctx context.Context) []error {
	if b.hangs {
		<-ctx.Done()
	}
	return b.wrong
}

func (b *asked) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	if b.hangs {
		<-ctx.Done()
		return fence.World{}, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return fence.World{}, context.Cause(ctx)
	}
	if w.ID.IsZero() {
		return b.world, nil
	}
	return b.world, b.err
}

// TestABackEndThatHangsHidesNoOther: what is wrong with another back end becomes a problem, and ends, whichever hangs.
func TestABackEndThatHangsHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &asked{wrong: []error{errors.New("appendonly is no")}}
		var c Conditions
		c.Of(&asked{hangs: true}, bad)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Watch(ctx) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var all Problems
		c.Add(&all)
		if assert.Len(t, all, 1) {
			assert.Equal(t, "appendonly is no", all[0].Detail)
		}
		cancel()
		assert.NoError(t, <-ended)
	})
}

// TestABackEndThatHangsComparesTheOthers: a process without an authority learns its world from the back ends that
// answer, and compares them, while the first of them hangs.
func TestABackEndThatHangsComparesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := fence.World{ID: fence.NewWorldID()}
		other := &asked{world: own}
		w := NewWorlds(nil, slog.New(slog.DiscardHandler), []any{other}, nil)
		assert.NoError(t, w.Enter(t.Context()))
		first, foreign := &asked{hangs: true}, &asked{err: &fence.WorldError{}}
		w = NewWorlds(nil, slog.New(slog.DiscardHandler), []any{first, other, foreign}, nil)
		assert.ErrorIs(t, w.First(t.Context()), fence.ErrWorld)
	})
}
