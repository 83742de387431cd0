package main

import (
	"context"
	"log/slog"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
)

// join makes a process a member, at the contact where it takes intents: it learns into table who owns what,
// and notify is told who comes and goes.
type join func(contact string, table *route.Table, notify func(route.Event)) (route.Membership, error)

// inGroup joins processes that live in this one.
func inGroup(g *route.Group) join {
	return func(contact string, table *route.Table, notify func(route.Event)) (route.Membership, error) {
		return g.NewMember(contact, table, notify)
	}
}

// joins is how an actor that is a process of its own becomes a member: by gossip, or of a group by itself.
func (a *actorProcess) joins() join {
	o := a.options
	if o.gossip == "" {
		return inGroup(new(route.Group))
	}
	return func(contact string, table *route.Table, notify func(route.Event)) (route.Membership, error) {
		node, err := gossip.New(contact, table, &gossip.Config{Bind: o.gossip, Seeds: list(o.gossipSeeds), Timing: gossip.Fast(), Notify: notify, Logger: a.logger})
		if err != nil {
			return nil, err
		}
		return &announcedNode{node, a}, nil
	}
}

// announcedNode is a gossip.Node that says where it listens, for the -gossip-seeds of others.
type announcedNode struct {
	*gossip.Node
	actor *actorProcess
}

// Run implements route.Membership.
func (n *announcedNode) Run(ctx context.Context) error {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-n.Ready():
			n.actor.say("gossip at %s\n", n.Addr())
		case <-ended:
		}
	}()
	return n.Node.Run(ctx)
}

// told is a host's view of who comes and goes: it looks after the tiles of the dead.
func (h *host) told(e route.Event) {
	if e.Kind != route.Died {
		h.logger.Info("gossip", "event", e.Kind.String(), "who", e.Member.Contact)
		return
	}
	n := h.Suspect(e.Member.Contact)
	h.logger.Warn("gossip", "event", e.Kind.String(), "who", e.Member.Contact, "suspected", n)
	if n > 0 {
		h.meters.log.put(spectator.Event{Kind: spectator.KindNote, Owner: h.contact,
			Text: h.contact + " heard that " + e.Member.Contact + " is dead, and goes after " + count(n, "tile")})
	}
}

// announce tells the others what a host has learned about a tile.
func announce(m route.Membership, logger *slog.Logger, e route.Entry) {
	if err := m.Announce(e); err != nil {
		logger.Debug("nothing to announce", "tile", e.Tile, "err", err) // a tile that ends before it had an epoch
	}
}
