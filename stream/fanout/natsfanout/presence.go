package natsfanout

import (
	"context"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// PublishPresence implements fanout.PresencePublisher: one write and one round trip, tried once. A *fence.ArgumentError
// if a tile is zero, otherwise a *fence.StoreError.
func (f *Fanout) PublishPresence(ctx context.Context, process uint64, tiles []fence.TileID) error {
	for _, t := range tiles {
		if err := guard.Tile(t); err != nil {
			return err
		}
	}
	if err := guard.Ended(ctx, "publish presence", 0); err != nil || len(tiles) == 0 {
		return err
	}
	data := fanout.AppendPresence(nil, process)
	err := f.send(ctx, len(tiles), func(i int) (string, []byte) { return f.prefix + PresenceSubject(tiles[i]), data })
	if err != nil {
		return hub.Failure("publish presence", tiles[0], err, refused(err))
	}
	return nil
}

// SubscribePresence implements fanout.PresenceSubscriber. A *fence.StoreError if the Fanout is closed. A message that
// cannot be read is ignored.
func (f *Fanout) SubscribePresence(tile fence.TileID, deliver func(process uint64)) (func(), error) {
	if err := hub.Valid(tile, deliver); err != nil {
		return nil, err
	}
	stopLocal := f.presence.Subscribe(tile, deliver)
	s, err := f.retain(f.prefix+PresenceSubject(tile), func(data []byte) {
		if process, ok := fanout.DecodePresence(data); ok {
			f.presence.Publish(tile, process, len(data))
		}
	})
	if err != nil {
		stopLocal()
		return nil, hub.Failure("subscribe to presence", tile, err, true)
	}
	release := sync.OnceFunc(func() { f.release(s) })
	return func() {
		stopLocal()
		release()
	}, nil
}
