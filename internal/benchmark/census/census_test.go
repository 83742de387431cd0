package census

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
)

// TestTheCensusFindsWhatIsLost: tickets that the store forgets, counts that differ, seats that two tickets have.
func TestTheCensusFindsWhatIsLost(t *testing.T) {
	require.Empty(t, (&Report{}).differs(nil, nil, match.Depth{}))
	r := Report{Created: 1, Seated: 1}
	assert.Contains(t, r.differs(map[match.State]uint64{match.Seated: 1}, nil, match.Depth{Created: 1, Waiting: 1}),
		"the store counts")
	r.Cancelled = 1
	assert.Contains(t, r.differs(nil, nil, match.Depth{}), "1 were created, 1 seated + 1 cancelled")
	assert.Contains(t, r.differs(map[match.State]uint64{match.Matched: 1}, nil, match.Depth{}), "1 matched")

	empty, err := match.NewLobby(memmatch.New(), match.Queue{Name: "q", Min: 2, Max: 2})
	require.NoError(t, err)
	forgetful := New(empty, "q")
	a := &match.Assignment{Tile: 7, Seats: map[string][]int{"ann": {0, 1}, "bob": {1}}}
	require.NoError(t, forgetful.Sit("ann", a))
	require.NoError(t, forgetful.Sit("ann", a), "a player who comes again")
	require.ErrorIs(t, forgetful.Sit("bob", a), ErrLobby)
	require.NotNil(t, forgetful.Rise("ann"))
	require.NoError(t, forgetful.Sit("bob", a))

	forgetful.open["ann"] = &entry{confirmed: true}
	forgetful.open["bob"] = &entry{} // its answer was lost, and it was never created
	forgetful.created = 1
	forgetful.Close()
	got, err := forgetful.Report(t.Context())
	require.NoError(t, err)
	assert.Contains(t, got.Why, "1 tickets were created and are unknown: [ann]")
}
