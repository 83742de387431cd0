package tilefence

import (
	"context"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// players is a server's part in Backends.Directory. Without that it does nothing.
type players struct {
	directory *directory.Directory // nil: there is none
	failing   health.Rising
}

// open makes the part of a server that ends sessions and tells them messages with these functions; nil: it cannot.
func (p *players) open(
	b *Backends, log *slog.Logger, end func(string) int, tell func(string, []byte) int,
) (err error) {
	if b.Directory != nil {
		p.directory, err = directory.New(b.Directory, &directory.Config{End: end, Tell: tell, Logger: log})
	}
	return err
}

// start begins it. What it serves is to be started later.
func (p *players) start(c *taskgroup.Group) {
	if p.directory != nil {
		c.Start("directory", p.directory.Run)
	}
}

func (p *players) problems(all *health.Problems) {
	if p.directory != nil {
		all.Trouble("players", "the directory of players is not reached", 0,
			p.failing.Lately(p.directory.Stats().Failed))
	}
}

// gateway enters a gateway's sessions, and where its players act.
func (p *players) gateway(c *gatewayws.Config) {
	if p.directory == nil {
		return
	}
	if c.Where == nil {
		c.Where = func(ctx context.Context, actor string) (fence.TileID, error) {
			return p.directory.Where(ctx, actor)
		}
	}
	hook.Attach(&c.Hooks.Opened, func(i gatewayws.ConnInfo) { p.directory.Enter(i.Actor, i.Began) })
	hook.Attach(&c.Hooks.Closed, func(i gatewayws.ConnInfo) { p.directory.Left(i.Actor) })
	hook.Attach(&c.Hooks.Answered, func(i gatewayws.AnswerInfo) {
		if i.Outcome == stream.Applied && i.Tile != 0 {
			p.directory.Seen(i.Actor, i.Tile, time.Now().Add(-i.Took))
		}
	})
}

// relay enters a relay's sessions.
func (p *players) relay(h *relay.Hooks) {
	if p.directory != nil {
		hook.Attach(&h.ClientOpened, func(i relay.ClientOpenedInfo) { p.directory.Enter(i.Actor, i.Began) })
		hook.Attach(&h.ClientClosed, func(i relay.ClientClosedInfo) { p.directory.Left(i.Actor) })
	}
}

// tiles writes where players arrive.
func (p *players) tiles(h *tile.Hooks) {
	if p.directory == nil {
		return
	}
	hook.Attach(&h.Committed, func(i tile.CommitInfo) {
		for _, a := range i.Arrived {
			p.directory.Moved(directory.Move{Actor: a.Actor, To: i.Tile, At: time.Now(), Came: i.Position,
				From: a.From, Left: fence.Position{Epoch: a.ID.Epoch, Seq: a.ID.Seq}})
		}
	})
}
