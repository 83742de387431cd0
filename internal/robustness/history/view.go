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

// Reset records that a watcher replaced its state of a tile by the one at a position.
func (r *Recorder) Reset(client string, id fence.TileID, at fence.Position) {
	r.Append(Record{Client: client, Kind: Reset, Tile: id, Position: Position(at)})
}

// Frame records that a watcher took a frame.
func (r *Recorder) Frame(client string, f *fence.Entry) {
	e := EntryOf(f)
	r.Append(Record{Client: client, Kind: Frame, Tile: f.Tile, Entry: &e})
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
