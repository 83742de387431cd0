package history

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Publisher returns a publisher that passes messages on to p and records, as the client's, the frames that
// were certainly forwarded.
func (r *Recorder) Publisher(client string, p fanout.Publisher) fanout.Publisher {
	return &publisher{recorder: r, client: client, next: p}
}

type publisher struct {
	recorder *Recorder
	client   string
	next     fanout.Publisher
}

func (p *publisher) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	sent, err := p.next.Publish(ctx, messages)
	for _, m := range messages[:sent] {
		e := Entry{Damage: "not a frame"}
		if f, err := fence.DecodeEntry(m.Data); err == nil {
			e = EntryOf(&f)
		}
		p.recorder.Append(Record{Client: p.client, Kind: Published, Tile: m.Tile, Entry: &e})
	}
	return sent, err
}

// Watcher records what a reader of frames takes: relayclient.Config.Sync and Frame, or any code that folds a
// tile's batches.
type Watcher struct {
	recorder *Recorder
	client   string
}

// Watcher returns a watcher for one client, which follows any number of tiles.
func (r *Recorder) Watcher(client string) *Watcher { return &Watcher{recorder: r, client: client} }

// Reset records that the client replaced its state of a tile by the one at a position.
func (w *Watcher) Reset(id fence.TileID, at fence.Position) {
	w.recorder.Append(Record{Client: w.client, Kind: Reset, Tile: id, Position: Position(at)})
}

// Frame records that the client took a frame.
func (w *Watcher) Frame(f *fence.Entry) {
	e := EntryOf(f)
	w.recorder.Append(Record{Client: w.client, Kind: Frame, Tile: f.Tile, Entry: &e})
}

// EntryOf is a stream entry as a record keeps it: verified, its parts as a digest.
func EntryOf(e *fence.Entry) Entry {
	digest, events, actions := parts(e)
	got := Entry{Position: Position(e.Position), Prev: Position(e.Prev), Tick: e.Tick, Events: events,
		At: fence.Millis(e.At), Rebase: e.Kind == fence.KindRebase, Payload: digest, Actions: actions}
	if err := e.Verify(); err != nil {
		got.Damage = err.Error()
	}
	return got
}
