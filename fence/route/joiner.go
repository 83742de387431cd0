package route

// Joiner makes processes members of one group. *Group is one, and so is gossip.Config.
type Joiner interface {
	// Join returns the part in the group of the process that takes intents at contact. What owners announce
	// is learned into table; notify, which may be nil, is called for each event, see Event. Join does no I/O:
	// the process takes part while the Membership runs. Errors: a *fence.ArgumentError.
	Join(contact string, table *Table, notify func(Event)) (Membership, error)
}

// Join implements Joiner.
func (g *Group) Join(contact string, table *Table, notify func(Event)) (Membership, error) {
	m, err := g.NewMember(contact, table, notify)
	if err != nil {
		return nil, err // not a nil *GroupMember in an interface
	}
	return m, nil
}
