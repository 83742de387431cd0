// Package address says which process is at an address: which one may begin there, which member speaks for it, and
// which of those that run tiles takes one.
package address

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// Holders says which member speaks for a contact: the first that was seen there, until it dies or leaves.
// Another that takes the same contact meanwhile is a process that was started again, whose end speaks for itself when
// its turn comes, or an impostor.
type Holders struct {
	mu    sync.RWMutex
	names map[string][]string // of the living members by contact, as they joined
}

// Joined notes a member and returns the name of the one that holds its contact.
func (h *Holders) Joined(m route.Member) (holder string) {
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

// Ended notes that a member died or left, and returns whether it held its contact, and whether another lives there.
func (h *Holders) Ended(m route.Member) (held, lives bool) {
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

// Lives reports whether a member is at a contact.
func (h *Holders) Lives(contact string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.names[contact]) > 0
}

// Changed notes what an event says of a member.
func (h *Holders) Changed(e route.Event) {
	if e.Kind == route.Joined {
		h.Joined(e.Member)
	} else {
		h.Ended(e.Member)
	}
}

// GatewayPrefix begins the contacts under which gateways are members: they take no tiles.
const GatewayPrefix = "gateway/"

// TileServers are the contacts of the members that run tiles, but for self.
func TileServers(m route.Membership, self string) []string {
	var contacts []string
	for _, member := range m.Members() {
		if c := member.Contact; c != self && !strings.HasPrefix(c, GatewayPrefix) && !slices.Contains(contacts, c) {
			contacts = append(contacts, c)
		}
	}
	return contacts
}

// Preferred orders contacts by rendezvous hashing: every process that knows the same contacts has the same order
// for a tile, and tiles spread evenly.
func Preferred(id fence.TileID, contacts []string) []string {
	weight := func(contact string) uint64 {
		sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(id)), contact...))
		return binary.BigEndian.Uint64(sum[:])
	}
	sorted := slices.Clone(contacts)
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })
	return sorted
}

// Alive reports whether a member takes intents at contact.
func Alive(m route.Membership, contact string) bool {
	return slices.ContainsFunc(m.Members(), func(o route.Member) bool { return o.Contact == contact })
}
