package natsfanout

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Observer is what Observe calls. Each function is called one call at a time and must not block.
type Observer struct {
	Frame    func(tile fence.TileID, bytes int)      // a message of a tile
	Presence func(tile fence.TileID, process uint64) // a process says that it hears the tile
}

// Observe reports the messages of all tiles until ctx ends, for tools that show what goes over the broker. It receives
// all of them, so it is not for processes that serve players. A *fence.StoreError if the server cannot be reached or
// refuses it.
func (f *Fanout) Observe(ctx context.Context, o Observer) error {
	failed := func(err error) error {
		return &fence.StoreError{Op: "observe", Outcome: fence.ErrNotApplied, Err: err}
	}
	before := f.conn.LastError()
	for subject, seen := range map[string]func(fence.TileID, []byte){
		"tilefence.tile.*.frames": func(t fence.TileID, data []byte) { o.Frame(t, len(data)) },
		"tilefence.tile.*.presence": func(t fence.TileID, data []byte) {
			if process, ok := fanout.DecodePresence(data); ok {
				o.Presence(t, process)
			}
		},
	} {
		sub, err := f.conn.Subscribe(f.prefix+subject, func(m *nats.Msg) {
			name := strings.TrimPrefix(m.Subject, f.prefix)
			if tile, err := fence.ParseTileID(strings.Split(name, ".")[2]); err == nil {
				seen(tile, m.Data)
			}
		})
		if err != nil {
			return failed(err)
		}
		defer func() { _ = sub.Unsubscribe() }() // its errors are that it is closed already
		if err := f.settle(ctx); err != nil {
			return failed(err)
		}
		if err := f.refusal(before, f.prefix+subject); err != nil {
			return failed(err)
		}
	}
	<-ctx.Done()
	return nil
}
