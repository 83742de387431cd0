package transfer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func id(seq int) stream.TransferID { return stream.TransferID{Epoch: 1, Seq: fence.Seq(seq), Index: 1} }

// decided is the state of a tile that has decided what tile 2 presents up to a transfer, and has refused some.
func decided(t *testing.T, mark int, refused ...int) State {
	d := stream.Decision{From: 2, Mark: id(mark)}
	for _, seq := range refused {
		d.Refused = append(d.Refused, stream.Refusal{ID: id(seq), Reason: "full"})
	}
	var none State
	s, err := none.Fold(fence.Position{Epoch: 9, Seq: 1}, 0, &stream.Batch{Decisions: []stream.Decision{d}})
	require.NoError(t, err)
	return s
}

// What a tile has decided is in its snapshot: the mark, and each refusal.
func TestASnapshotHasWhatIsDecided(t *testing.T) {
	s := decided(t, 7, 3, 5)
	back, err := Decode(s.Append(nil))
	require.NoError(t, err)
	assert.Equal(t, s.With(2), back.With(2))
}

// Of what is presented, a tile decides what follows its mark, and nothing after a gap.
func TestATileDecidesWhatFollowsItsMark(t *testing.T) {
	s := decided(t, 7)
	c := s.With(2)
	shown := []stream.Transfer{{ID: id(6)}, {ID: id(7)}, {ID: id(8)}}
	fresh, ok := c.Fresh(id(5), shown)
	assert.True(t, ok)
	assert.Equal(t, shown[2:], fresh)
	fresh, ok = c.Fresh(id(7), shown[2:])
	assert.True(t, ok)
	assert.Equal(t, shown[2:], fresh)
	fresh, ok = c.Fresh(id(8), []stream.Transfer{{ID: id(9)}})
	assert.False(t, ok)
	assert.Empty(t, fresh)
}

// A refusal is forgotten when it is settled, and no earlier. The mark stays.
func TestARefusalIsKeptUntilItIsSettled(t *testing.T) {
	s := decided(t, 7, 3, 5)
	assert.Zero(t, s.With(2).Forgets(id(2)))
	assert.Zero(t, s.With(2).Forgets(stream.TransferID{}))
	assert.Equal(t, id(4), s.With(2).Forgets(id(4)))
	after, err := s.Fold(fence.Position{Epoch: 9, Seq: 2}, 0,
		&stream.Batch{Decisions: []stream.Decision{{From: 2, Forget: id(4)}}})
	require.NoError(t, err)
	assert.Equal(t, id(7), after.With(2).Mark)
	assert.Equal(t, s.With(2).Refused[1:], after.With(2).Refused)
}
