package gossip

import (
	"cmp"
	"log/slog"

	"github.com/tilefence/tilefence/fence/route"
)

// Join implements route.Joiner: it makes a Node with this configuration. log is for a c without a Logger; notify is
// called after c.Notify.
func (c Config) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	c.Logger = cmp.Or(c.Logger, log)
	if first := c.Notify; first != nil && notify != nil {
		c.Notify = func(e route.Event) { first(e); notify(e) }
	} else if notify != nil {
		c.Notify = notify
	}
	n, err := New(contact, table, &c)
	if err != nil {
		return nil, err // not a nil *Node in an interface
	}
	return n, nil
}
