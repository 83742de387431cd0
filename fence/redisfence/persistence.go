package redisfence

// Persistence is what a store relies on when a master stops: what keeps a server from serving as a master without what
// was confirmed. Load checks what servers show of it. For the rest the operator vouches by the choice.
type Persistence int

const (
	// AppendOnlyFile: every server, master and replica, writes an append-only file. Load refuses one without it. This
	// is the default.
	AppendOnlyFile Persistence = iota

	// FailoverFirst: a master that has stopped is not a master again before one of its replicas was promoted. Servers
	// do not show it. It is true if their supervisor restarts one later than a promotion takes, at least three times
	// cluster-node-timeout, and of a service that brings a failed node back as a replica only.
	FailoverFirst

	// DurableLog: the service answers a write only when a log of its own has it that outlives the nodes, and a node
	// serves as a master only with all that the log has. Servers do not show it. Every write that is answered is then
	// confirmed, so that replicas are not asked, and tiles of class replicated need none.
	DurableLog

	// Volatile: nothing. A master that restarts at once takes from its replicas what they have confirmed. It is for
	// development, and for worlds in which no tile is of class replicated.
	Volatile
)
