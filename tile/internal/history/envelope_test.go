package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

func TestEnvelopeGoldenBytes(t *testing.T) {
	var m Actions
	m.keep = 100
	m.add(300, []stream.Resolution{{ActionID: "a1", Outcome: stream.Fizzled}})
	got := appendEnvelope(nil, []byte("game"), false, &m, &transfer.State{})
	assert.Equal(t, "01 04 67 61 6d 65 01 ac 02 02 02 61 31", fmt.Sprintf("% x", got))
}

func TestActionsAreForgottenInTime(t *testing.T) {
	m := Actions{keep: 10}
	m.add(1, []stream.Resolution{{ActionID: "old", Outcome: stream.Applied}})
	m.add(5, []stream.Resolution{{ActionID: "old", Outcome: stream.Rejected},
		{ActionID: "new", Outcome: stream.Fizzled}})
	o, ok := m.Outcome("old")
	require.True(t, ok)
	assert.Equal(t, stream.Applied, o, "the first outcome stands")
	m.add(12, nil)
	_, ok = m.Outcome("old")
	assert.False(t, ok)
	_, ok = m.Outcome("new")
	assert.True(t, ok)
	assert.Len(t, m.order, 1)
}

func FuzzOpenEnvelope(f *testing.F) {
	var m Actions
	m.put(remembered{tick: 3, outcome: stream.Applied, id: "x"})
	f.Add(appendEnvelope(nil, []byte("state"), false, &m, &transfer.State{}))
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, blob []byte) {
		e, err := openEnvelope(blob)
		if err != nil {
			var format *fence.FormatError
			require.ErrorAs(t, err, &format)
			require.Nil(t, e.game)
			return
		}
		again := Actions{}
		again.order = e.actions
		back, err := openEnvelope(appendEnvelope(nil, e.game, stream.Divided(blob), &again, &e.transfers))
		require.NoError(t, err)
		require.Equal(t, e, back)
	})
}

// A tile has no snapshot until its first one: its channels are those of its entries.
func TestChannelsWithoutASnapshot(t *testing.T) {
	b := stream.Batch{Departures: []stream.Departure{{To: 2, Entity: "argo"}}}
	payload, private, err := b.Encode()
	require.NoError(t, err)
	c := fence.Commit{Tile: 1, Epoch: 3, Tick: 7, Payload: payload, Private: private}
	state, err := Channels(1, &fence.Snapshot{}, []fence.Entry{c.Entry()})
	require.NoError(t, err)
	require.Equal(t, 1, state.UnderWay())
	require.Equal(t, fence.Tick(7), state.With(2).Outbox[0].Tick)
}
