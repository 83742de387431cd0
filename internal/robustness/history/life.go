package history

import (
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Hooks returns hooks that record a processor's life as the client's and then call those of next.
func (r *Recorder) Hooks(client, contact string, next tile.Hooks) tile.Hooks {
	observe := next.Transition
	next.Transition = func(i tile.TransitionInfo) {
		r.Append(Record{Client: client, Kind: Life, Tile: i.Tile,
			Life: &LifeEvent{State: i.To.String(), Epoch: i.Epoch, Contact: contact}})
		if observe != nil {
			observe(i)
		}
	}
	return next
}

// Ended records that a processor's Run has returned err.
func (r *Recorder) Ended(client, contact string, id fence.TileID, err error) {
	event := LifeEvent{State: tile.Stopped.String(), Contact: contact, Ended: true}
	if err != nil {
		event.Err = err.Error()
	}
	var superseded *tile.SupersededError
	if errors.As(err, &superseded) {
		successor := OwnerOf(superseded.Successor)
		event.State, event.Epoch, event.Successor = tile.StoodDown.String(), superseded.Held, &successor
	}
	r.Append(Record{Client: client, Kind: Life, Tile: id, Life: &event})
}
