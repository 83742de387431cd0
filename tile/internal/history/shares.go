package history

// shareOf is which part of the free memory an actor's outcomes may take: a dynamic threshold (Choudhury and Hahne,
// "Dynamic queue length thresholds for shared-memory packet switches"). The more actors fill their shares, the smaller
// these are, and something stays free: of n actors that take all they can, each has 1/(shareOf+n) of the memory, and
// shareOf times as much is left for others.
const shareOf = 8

// usage is what one actor's outcomes take of the memory.
type usage struct {
	actor    string
	n, bytes int
}

// charge books an outcome on the actor that sent the action, if that is known: an owner knows it of the actions that it
// has decided. Those that it found were charged by the owners before it.
func (m *Actions) charge(r *remembered) {
	actor := m.Senders[r.id]
	if actor == "" {
		return
	}
	u := m.shares[actor]
	if u == nil {
		if m.shares == nil {
			m.shares = map[string]*usage{}
		}
		u = &usage{actor: actor}
		m.shares[actor] = u
	}
	u.n++
	u.bytes += RememberedSize(r.id)
	r.by = u
}

// discharge is called when an outcome is forgotten.
func (m *Actions) discharge(r *remembered) {
	u := r.by
	if u == nil {
		return
	}
	u.bytes -= RememberedSize(r.id)
	if u.n--; u.n == 0 {
		delete(m.shares, u.actor)
	}
}

// Reservation is room in the memory for the outcomes of one tick's actions.
type Reservation struct {
	h        *History
	n, bytes int
	own      map[string]usage // by actor
}

// Reserve begins a reservation.
func (h *History) Reserve() *Reservation { return &Reservation{h: h} }

// Add reserves room for an action, and reports whether there is: in all, and in its actor's share. An empty actor has
// no share, and takes what is free. What must be remembered has room in any case.
func (r *Reservation) Add(id, actor string, must bool) bool {
	m, size := &r.h.Actions, RememberedSize(id)
	own := r.own[actor]
	own.n, own.bytes = own.n+1, own.bytes+size
	if !must {
		if !r.h.Actions.allows(r.n+1, r.bytes+size, r.h.GameBytes) {
			return false
		}
		has := own
		if u := m.shares[actor]; u != nil {
			has.n, has.bytes = has.n+u.n, has.bytes+u.bytes
		}
		n, bytes := m.free(r.h.GameBytes)
		if actor != "" && (has.n*shareOf > n-r.n || has.bytes*shareOf > bytes-r.bytes) {
			return false
		}
	}
	r.n, r.bytes = r.n+1, r.bytes+size
	if actor != "" {
		if r.own == nil {
			r.own = map[string]usage{}
		}
		r.own[actor] = own
	}
	return true
}
