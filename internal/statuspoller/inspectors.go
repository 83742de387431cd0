package statuspoller

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// inspectors asks the inspectors of the tile hosts, wherever they run. One that is paused delays no other, and what it
// said last stays true while it is.
type inspectors struct {
	mu   sync.Mutex
	seen map[string]inspection // by contact
}

// inspection is what an inspector said, and when.
type inspection struct {
	inspect.Server
	at time.Time
}

// inspectWithin bounds one question: a host that is paused never answers.
const inspectWithin = time.Second

// run asks the inspectors of all contacts until ctx ends.
func (l *inspectors) run(
	ctx context.Context, contacts []string, inspector func(string) *inspect.Client,
) {
	var all sync.WaitGroup
	for _, contact := range contacts {
		client := inspector(contact)
		all.Go(func() {
			for more := true; more; more = wait.For(ctx, Every) {
				l.ask(ctx, contact, client)
			}
		})
	}
	all.Wait()
}

func (l *inspectors) ask(ctx context.Context, contact string, client *inspect.Client) {
	bounded, cancel := context.WithTimeout(ctx, inspectWithin)
	defer cancel()
	seen, err := client.Tiles(bounded)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		if l.seen == nil {
			l.seen = map[string]inspection{}
		}
		l.seen[contact] = inspection{seen, time.Now()}
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded):
		delete(l.seen, contact) // it is gone
	}
}

// parts are what the hosts say of a tile, those of the contacts given, in their order.
func (l *inspectors) parts(id fence.TileID, contacts []string) (parts []inspect.Tile, by []inspection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, contact := range contacts {
		s := l.seen[contact]
		for i := range s.Tiles {
			if s.Tiles[i].Tile == id {
				parts, by = append(parts, s.Tiles[i]), append(by, s)
			}
		}
	}
	return parts, by
}

// shows brings what the page shows of a tile up to date, but for who owns it, and returns the owner as the hosts say:
// the one that serves under the highest epoch, or that followers have last seen.
func (l *inspectors) shows(now *TileStatus, contacts []string) (owner fence.Owner) {
	parts, by := l.parts(now.Tile, contacts)
	now.Processors, now.State, now.Heat, now.Followers, now.Dilation = nil, "", 0, 0, 0
	serves := false
	for i := range parts {
		p := &parts[i]
		serving := p.State == tile.Serving.String()
		if contact := by[i].Contact; serving && (p.Held > owner.Epoch || p.Held == owner.Epoch && !serves) {
			owner, serves = fence.Owner{Tile: p.Tile, Epoch: p.Held, Contact: contact, Tick: p.Tick}, true
			now.Position, now.Seq = p.Position, p.Seq
			now.Marks, now.Floor, now.AtRisk = marksOf(p), string(p.Floor), atRisk(p)
		} else if !serving && p.Owner != "" && p.Epoch > owner.Epoch {
			owner, serves = fence.Owner{Tile: p.Tile, Epoch: p.Epoch, Contact: p.Owner, Tick: p.Tick}, false
			now.Position, now.Seq = p.Position, p.Seq
		}
		switch p.State {
		case tile.Following.String():
			if time.Since(by[i].at) < 2*inspectWithin {
				now.Followers++
			}
		case tile.Stopped.String(), tile.StoodDown.String(): // it has no part in what is decided now
		default:
			now.Processors = append(now.Processors,
				Processor{Contact: by[i].Contact, State: p.State, Epoch: p.Held})
		}
	}
	for i := range parts {
		if by[i].Contact == owner.Contact {
			now.State, now.Heat, now.Dilation = parts[i].State, parts[i].Heat, parts[i].Dilation
		}
	}
	return owner
}

// marksOf are the watermarks of a tile.
func marksOf(p *inspect.Tile) (marks []Mark) {
	for _, m := range p.Marks {
		marks = append(marks, Mark{Consumer: string(m.Consumer), Behind: m.Behind})
	}
	return marks
}

// atRisk is how many batches of a tile are in no durable store.
func atRisk(p *inspect.Tile) fence.Seq {
	if p.Class == tile.WriteThrough.String() {
		return 0
	}
	for _, m := range p.Marks {
		if m.Consumer == stream.Checkpointed {
			return m.Behind
		}
	}
	return p.Seq
}
