package history

import (
	"context"
	"fmt"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Bridge returns what a bridge works with: a log and a publisher that pass everything on to l and p, and record the
// frames that were certainly forwarded. Bridges share the tiles, so each turn of a bridge with a tile has a name of its
// own.
func (r *Recorder) Bridge(client string, l stream.Log, p fanout.Publisher) (stream.Log, fanout.Publisher) {
	b := &publisher{recorder: r, client: client, next: p, turns: map[fence.TileID]int{}}
	return &marks{l, b}, b
}

type publisher struct {
	recorder *Recorder
	client   string
	next     fanout.Publisher

	mu    sync.Mutex
	turns map[fence.TileID]int // how often the bridge has begun with a tile
}

// marks is a bridge's log. A bridge that begins with a tile reads the marks of those before it.
type marks struct {
	stream.Log
	bridge *publisher
}

func (m *marks) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	m.bridge.begins(tiles)
	return m.Log.Marks(ctx, tiles)
}

func (p *publisher) begins(tiles []fence.TileID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range tiles {
		p.turns[id]++
	}
}

// name is the bridge's in its present turn with a tile.
func (p *publisher) name(id fence.TileID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s, turn %d", p.client, p.turns[id])
}

func (p *publisher) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	sent, err := p.next.Publish(ctx, messages)
	for _, m := range messages[:sent] {
		e := Entry{Damage: "not a frame"}
		if f, err := fence.DecodeEntry(m.Data); err == nil {
			e = EntryOf(&f)
		}
		p.recorder.Append(Record{Client: p.name(m.Tile), Kind: Published, Tile: m.Tile, Entry: &e})
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
