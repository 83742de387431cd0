package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// TestScratchIsUsedAgain: what a message to a client of some areas allocates does not grow with its batches.
func TestScratchIsUsedAgain(t *testing.T) {
	allocations := func(batches int) float64 {
		l := line{}
		for range batches {
			e := l.next(1, 'a')
			e.Payload = nil
			for area := range fence.Area(8) {
				e.Payload = fence.AppendPart(e.Payload, area, make([]byte, 50))
			}
			l = append(l, e)
		}
		v := &view{}
		v.adopt(l.recovery(0), false)
		parts := new(scratch)
		return testing.AllocsPerRun(50, func() {
			m, ok := v.open(parts, fence.Areas(0, 3))
			require.True(t, ok)
			require.Len(t, m.GetTail(), batches)
			prepare(form(relaypb.Binary), syncMessage(tileA, m))
			parts.reset()
		})
	}
	require.InDelta(t, allocations(5), allocations(50), 1)
}
