package transfer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Nothing is confirmed for thousands of ticks, each with a departure. What waits is bounded, what is said is of a state
// that is stable, and when all is, all is said.
func TestWhatWaitsIsBounded(t *testing.T) {
	for _, journal := range []bool{false, true} {
		s, state := Speech{}, State{}
		s.Begin(state, journal, false)
		reached := s.Confirmed
		if journal {
			reached = s.Journaled
		}
		at := fence.Position{Epoch: 1}
		departs := func() {
			at.Seq++
			b := &stream.Batch{Departures: []stream.Departure{{To: 2, Entity: fmt.Sprint(at.Seq)}}}
			var err error
			state, err = state.Fold(at, 0, b)
			require.NoError(t, err)
			s.Committed(b, at, state, false)
		}
		for range 3000 {
			departs()
			require.LessOrEqual(t, len(s.waits), mostWaits)
			require.Equal(t, len(s.Latest().With(2).Outbox), int(at.Seq))
		}
		for seq := fence.Seq(0); seq <= at.Seq; seq += 10 {
			reached(fence.Position{Epoch: 1, Seq: seq})
			require.LessOrEqual(t, len(s.Stable.With(2).Outbox), int(seq))
			if n := len(s.Stable.With(2).Outbox); n > 0 {
				require.EqualValues(t, n, s.Stable.With(2).Outbox[n-1].ID.Seq)
			}
		}
		assert.True(t, !s.Waits())
		assert.Len(t, s.Stable.With(2).Outbox, int(at.Seq))
		departs()
		assert.True(t, reached(at), "each is said at once again")
		assert.Len(t, s.Stable.With(2).Outbox, int(at.Seq))
	}
}
