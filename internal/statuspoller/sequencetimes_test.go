package statuspoller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// TestSequenceTimes: how many ticks are lost with everything after a checkpoint is never reported too low, and not at
// all if it cannot be known.
func TestSequenceTimes(t *testing.T) {
	var tr sequenceTimes
	assert.EqualValues(t, 30, *tr.after(0, 30), "without a checkpoint everything is lost")
	assert.Nil(t, tr.after(5, 30))
	tr.note(10, 20)
	tr.note(10, 22) // quiet ticks
	tr.note(14, 25)
	tr.note(18, 31)
	assert.Nil(t, tr.after(9, 31))
	assert.EqualValues(t, 11, *tr.after(10, 31), "from the first observation of that batch")
	assert.EqualValues(t, 11, *tr.after(13, 31), "batch 13 was committed after tick 20")
	assert.EqualValues(t, 6, *tr.after(14, 31))
	assert.EqualValues(t, 0, *tr.after(18, 31), "the checkpoint has all that there is")
	assert.Nil(t, tr.after(12, 31), "what is older than the checkpoint is forgotten")

	tr.note(16, 33) // a failover has taken two batches back
	tr.note(17, 34)
	assert.EqualValues(t, 1, *tr.after(16, 34))

	tr = nil
	for i := range 10 * maxObserved {
		tr.note(fence.Seq(i+1), fence.Tick(i+1))
	}
	require.LessOrEqual(t, len(tr), maxObserved+1)
	lost := *tr.after(5, 10*maxObserved)
	assert.GreaterOrEqual(t, lost, fence.Tick(10*maxObserved-5), "what was forgotten makes it no less")
	assert.LessOrEqual(t, lost, fence.Tick(10*maxObserved))
}
