package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/share"
)

// other is a list on which another process is at the address, heard for the first time before the first call of this
// one. It fails one call of this one's, counted from 1.
type other struct {
	share.Members
	lives bool // it is heard again and again
	fails int
	calls int
}

func (o *other) Beat(ctx context.Context, group, member string, ttl time.Duration) ([]string, bool, error) {
	o.calls++
	if o.calls == 1 || o.lives {
		if _, _, err := o.Members.Beat(ctx, group, "other", ttl); err != nil {
			return nil, false, err
		}
	}
	if o.calls == o.fails {
		return nil, false, errors.New("too slow")
	}
	return o.Members.Beat(ctx, group, member, ttl)
}

// TestAHeartbeatThatFails while a process finds out whether another has its address, which one that was killed a moment
// ago has not.
func TestAHeartbeatThatFails(t *testing.T) {
	for fails := range 3 {
		for name, lives := range map[string]bool{"dead": false, "alive": true} {
			t.Run(fmt.Sprintf("%s/%d", name, fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					list := &other{Members: share.NewMemory(), fails: fails, lives: lives}
					l := NewLease(list, "10.0.0.7:7000", slog.New(slog.DiscardHandler))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := l.Acquire(ctx)
					if err == nil {
						err = l.Keep(ctx)
					}
					if lives {
						require.ErrorIs(t, err, fence.ErrInvalidArgument)
						return
					}
					require.NoError(t, err)
					assert.Error(t, ctx.Err(), "it has kept the address to the end")
				})
			})
		}
	}
}
