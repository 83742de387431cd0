package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestMovesLeaveRoomForActions: movements fill half of the memory at most, and are forgotten as actions are.
func TestMovesLeaveRoomForActions(t *testing.T) {
	h, _ := newHistory()
	all := make([]stream.Resolution, MaxRemembered/2-1)
	for i := range all {
		all[i] = stream.Resolution{ActionID: MoveMark + fmt.Sprintf("%016d", i), Outcome: stream.Applied}
	}
	h.Actions.add(1, all)
	r := h.Reserve()
	assert.True(t, r.Add(MoveMark+"a", "ann", false))
	assert.False(t, r.Add(MoveMark+"b", "bob", false), "half is taken")
	assert.True(t, r.Add("act", "bob", false))
	assert.True(t, r.Add(MoveMark+"c", "bob", true), "what was shown to the store is remembered in any case")
	h.Actions.Expire(fence.Tick(200))
	assert.True(t, h.Reserve().Add(MoveMark+"b", "bob", false))
	assert.Zero(t, h.Actions.moves)
}
