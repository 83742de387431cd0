package tile

import (
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
)

// Channel is what a tile has committed of the entities that cross its border with another one.
type Channel struct {
	Peer fence.TileID

	UnderWay []stream.Transfer // that have departed for the peer and are not settled, in order
	Settled  stream.TransferID // the last that is
	Parked   []Return          // came back, and the rules fail with them

	Mark    stream.TransferID // the last of the peer's that is decided
	Refused []stream.Refusal  // of those that are decided, which the peer has not settled
}

// Channels reads what a tile has committed of its channels from its history: a snapshot, which may be the zero one, and
// the entries after it. It needs no rules. The channels are in the order of the peers. The error says what is damaged.
func Channels(id fence.TileID, s *fence.Snapshot, tail []fence.Entry) ([]Channel, error) {
	state, err := history.Channels(id, s, tail)
	if err != nil {
		return nil, err
	}
	return channels(&state), nil
}

func channels(state *transfer.State) []Channel {
	all := make([]Channel, 0, len(state.Peers()))
	for _, peer := range state.Peers() {
		c := state.With(peer)
		all = append(all, Channel{Peer: peer, UnderWay: c.Outbox, Settled: c.Settled, Parked: c.Parked, Mark: c.Mark,
			Refused: c.Refused})
	}
	return all
}

// Unsettled reports whether a tile with this history is not at rest: something has departed that its owner still has
// to present and to settle. It is for checkpoint.Config.Unsettled. What is parked waits for other rules, and what the
// tile has refused is its peers' to settle: neither keeps it from resting.
func Unsettled(id fence.TileID, s *fence.Snapshot, tail []fence.Entry) (bool, error) {
	state, err := history.Channels(id, s, tail)
	if err != nil {
		return false, err
	}
	return !state.Rests(), nil
}
