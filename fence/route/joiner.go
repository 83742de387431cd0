package route

import (
	"log/slog"

	"github.com/tilefence/tilefence/fence"
)

// Joiner makes processes members of one group. *Group is one, and so is gossip.Config.
type Joiner interface {
	// Join returns the part in the group of the process that takes intents at contact. What owners announce
	// is learned into table; notify, which may be nil, is called for each event, see Event. log takes what an operator
	// should read, unless the Joiner has a logger of its own; nil discards. Join does no I/O: the process takes part
	// while the Membership runs. Errors: a *fence.ArgumentError.
	Join(contact string, table *Table, log *slog.Logger, notify func(Event)) (Membership, error)
}

// Join implements Joiner. A Group has nothing to log.
func (g *Group) Join(contact string, table *Table, _ *slog.Logger, notify func(Event)) (Membership, error) {
	if g == nil {
		return nil, &fence.ArgumentError{Field: "Members", Value: "a nil *route.Group", Want: "new(route.Group)"}
	}
	m, err := g.NewMember(contact, table, notify)
	if err != nil {
		return nil, err // not a nil *GroupMember in an interface
	}
	return m, nil
}
