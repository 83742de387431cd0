package tilefence

import (
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence/route"
)

// contactHolders says which member speaks for a contact: the first that was seen there, until it dies or leaves.
// Another that takes the same contact meanwhile is a process that was started again, whose end speaks for itself when
// its turn comes, or an impostor.
type contactHolders struct {
	mu    sync.RWMutex
	names map[string][]string // of the living members by contact, as they joined
}

// joined notes a member and returns the name of the one that holds its contact.
func (h *contactHolders) joined(m route.Member) (holder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = map[string][]string{}
	}
	if !slices.Contains(h.names[m.Contact], m.Name) {
		h.names[m.Contact] = append(h.names[m.Contact], m.Name)
	}
	return h.names[m.Contact][0]
}

// ended notes that a member died or left, and returns whether it held its contact, and whether another lives there.
func (h *contactHolders) ended(m route.Member) (held, lives bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.names[m.Contact]
	i := slices.Index(names, m.Name)
	if i >= 0 {
		h.names[m.Contact] = slices.Delete(names, i, i+1)
	}
	if len(h.names[m.Contact]) == 0 {
		delete(h.names, m.Contact)
		return i == 0, false
	}
	return i == 0, true
}

// lives reports whether a member is at a contact.
func (h *contactHolders) lives(contact string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.names[contact]) > 0
}

// changed notes what an event says of a member.
func (h *contactHolders) changed(e route.Event) {
	if e.Kind == route.Joined {
		h.joined(e.Member)
	} else {
		h.ended(e.Member)
	}
}
