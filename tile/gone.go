package tile

import (
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
)

// Crossing says that an actor has left a tile, with an entity of whose departure it is the Actor. The zero value says
// that it has not.
type Crossing struct {
	Entity string       // the entity's name
	To     fence.TileID // the tile that the entity departed for: it is there, on its way, or it comes back
}

// IsZero reports whether there is no crossing.
func (c Crossing) IsZero() bool { return c == Crossing{} }

// ErrCrossed means: the intent's actor has left the tile. A *CrossedError says where it went. The intent was not
// decided and never will be; it may be sent to that tile.
var ErrCrossed = errors.New("the actor has crossed to another tile")

// CrossedError says where an intent's actor has gone.
type CrossedError struct {
	Tile fence.TileID // that it has left
	Crossing
}

func (e *CrossedError) Error() string {
	return fmt.Sprintf("tile %s: %v with entity %q: send the intent to tile %s", e.Tile, ErrCrossed, e.Entity, e.To)
}

// Is matches ErrCrossed.
func (e *CrossedError) Is(target error) bool { return target == ErrCrossed }

// Bounds of what an owner remembers of actors that have left the tile.
const (
	// goneFor is for how long it remembers one whose entity was taken: longer than the intents take that were sent
	// before their sender knew.
	goneFor  = 5 * time.Second
	mostGone = 4096 // of those; the oldest are forgotten first
)

// gone knows where the actors are that have left the tile. As long as an entity is under way, that follows from the
// outbox, so that every owner knows it; of those that were taken since, only this owner knows. Each actor has one
// entry, its latest. It belongs to the loop.
type gone struct {
	actors map[string]departed
	taken  []departed // those that may be forgotten, oldest first
}

type departed struct {
	id    stream.TransferID
	actor string
	Crossing
	until time.Time // zero: as long as it is under way
}

// begin begins with what is under way.
func (g *gone) begin(s *transfer.State) {
	g.actors, g.taken = nil, nil
	for _, peer := range s.Peers() {
		for i := range s.With(peer).Outbox {
			g.left(&s.With(peer).Outbox[i])
		}
	}
}

// left notes a departure.
func (g *gone) left(t *stream.Transfer) {
	if t.Actor == "" || g.actors[t.Actor].id.Compare(t.ID) > 0 {
		return
	}
	if g.actors == nil {
		g.actors = map[string]departed{}
	}
	g.actors[t.Actor] = departed{id: t.ID, actor: t.Actor, Crossing: Crossing{Entity: t.Entity, To: t.To}}
}

// committed notes a batch that was committed at a position, when the tile's channels were as in before.
func (g *gone) committed(b *pendingBatch, at fence.Position, before *transfer.State) {
	if len(g.actors) == 0 && len(b.batch.Departures) == 0 {
		return
	}
	for i := range b.batch.Settlements {
		s := &b.batch.Settlements[i]
		for _, t := range before.With(s.To).Outbox {
			if t.ID.Compare(s.UpTo) > 0 {
				break
			}
			if d := g.actors[t.Actor]; d.id == t.ID {
				g.keep(d)
			}
		}
	}
	if f := b.offered; f != nil {
		for i := range f.Returns {
			if r := &f.Returns[i]; g.actors[r.Actor].id == r.ID {
				delete(g.actors, r.Actor)
			}
		}
		for i := range f.Arrivals[:b.crossed.Arrivals] {
			if a := &f.Arrivals[i]; a.Taken {
				delete(g.actors, a.Actor)
			}
		}
	}
	for i := range b.batch.Departures {
		id := stream.TransferID{Epoch: at.Epoch, Seq: at.Seq, Index: i + 1}
		g.left(&stream.Transfer{ID: id, Departure: b.batch.Departures[i]})
	}
}

// keep keeps an actor for a while whose entity is not under way any more.
func (g *gone) keep(d departed) {
	now := time.Now()
	d.until = now.Add(goneFor)
	g.actors[d.actor] = d
	g.taken = append(g.taken, d)
	for len(g.taken) > mostGone || now.After(g.taken[0].until) {
		if old := g.taken[0]; g.actors[old.actor].id == old.id {
			delete(g.actors, old.actor)
		}
		g.taken = g.taken[1:]
	}
}

// with says where the actor of an intent has gone. The game's own servers go nowhere.
func (g *gone) with(in *Intent) Crossing {
	if len(g.actors) == 0 {
		return Crossing{}
	}
	d := g.actors[in.shares()]
	if !d.until.IsZero() && time.Now().After(d.until) {
		return Crossing{}
	}
	return d.Crossing
}
