package guard

import (
	"context"
	"sync"

	"github.com/tilefence/tilefence/fence"
)

// World is to which world a back end in memory belongs. The zero World belongs to none yet.
type World struct {
	mu    sync.Mutex
	world fence.World
}

// Enter is EnterWorld of fence.WorldKeeper: the back end takes the name and the ID of the first world whose ID is
// known.
func (k *World) Enter(ctx context.Context, store string, w fence.World) (fence.World, error) {
	if err := Ended(ctx, "enter world", 0); err != nil {
		return fence.World{}, err
	}
	if err := w.Validate(); err != nil {
		return fence.World{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.world.ID.IsZero() {
		if !w.ID.IsZero() {
			k.world = w
		}
		return k.world, nil
	}
	if err := w.Compare(store, "in its process", k.world); err != nil {
		return fence.World{}, err
	}
	return k.world, nil
}
