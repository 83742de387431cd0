package history

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// clientOf names the client that runs a tile.
type clientOf func(fence.TileID) string

func always(client string) clientOf { return func(fence.TileID) string { return client } }

// Host makes the processors of a tilehost.Host record what they do, each run as a client of its own: through the seams
// and the journal that it returns, and through hooks of cfg, which it replaces. The journal may be nil.
func (r *Recorder) Host(
	contact string, seams tile.Seams, j checkpoint.JournalStore, cfg *tilehost.Config,
) (tile.Seams, checkpoint.JournalStore) {
	var mu sync.Mutex
	runs := map[fence.TileID]int{} // that have ended
	client := func(id fence.TileID) string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s#%d", id, runs[id]+1)
	}
	cfg.Tile.Hooks.Transition = func(i tile.TransitionInfo) { r.Transition(client(i.Tile), contact, i) }
	cfg.Tile.Hooks.Healed = func(i tile.HealInfo) { r.Healed(client(i.Tile), contact, i) }
	ended := cfg.Hooks.Ended
	cfg.Hooks.Ended = func(i tilehost.EndInfo) {
		r.Ended(client(i.Status.Tile), contact, &i.Status, i.Err)
		mu.Lock()
		runs[i.Status.Tile]++
		mu.Unlock()
		ended(i)
	}
	seams.Authority = &authority{Authority: seams.Authority, recorder: r, client: client}
	seams.Store = &store{Store: seams.Store, recorder: r, client: client}
	return seams, &journal{JournalStore: j, recorder: r, client: client}
}

// Transition records that a processor's life entered another state.
func (r *Recorder) Transition(client, contact string, i tile.TransitionInfo) {
	r.Append(Record{Client: client, Kind: Life, Tile: i.Tile,
		Life: &LifeEvent{State: i.To.String(), Epoch: i.Epoch, Contact: contact}})
}

// Healed records that a processor which had served has taken its tile's state from the stores.
func (r *Recorder) Healed(client, contact string, i tile.HealInfo) {
	if i.Rejoined {
		r.Append(Record{Client: client, Kind: Life, Tile: i.Tile,
			Life: &LifeEvent{State: tile.Healing.String(), Contact: contact, Rejoined: Position(i.At)}})
	}
}

// Ended records that a processor's Run has returned err, with its last status.
func (r *Recorder) Ended(client, contact string, s *tile.Status, err error) {
	event := LifeEvent{State: tile.Stopped.String(), Contact: contact, Ended: true,
		Handed: err == nil && s.Successor.Present()}
	if err != nil {
		event.Err = err.Error()
	}
	if superseded, ok := errors.AsType[*tile.SupersededError](err); ok {
		successor := OwnerOf(superseded.Successor)
		event.State, event.Epoch, event.Successor = tile.StoodDown.String(), superseded.Held, &successor
	}
	r.Append(Record{Client: client, Kind: Life, Tile: s.Tile, Life: &event})
}
