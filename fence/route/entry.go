package route

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/fence"
)

// Entry names the owner of a tile at an epoch.
type Entry struct {
	Tile    fence.TileID
	Epoch   fence.Epoch
	Contact string // where the owner takes intents; empty: the tile was released at this epoch
}

// Held reports whether the entry names an owner.
func (e Entry) Held() bool { return e.Contact != "" }

// Supersedes reports whether e replaces o, an entry of the same tile. A higher epoch always does. At the same epoch a
// release replaces its holder, since an epoch is held first and released later. A correct authority never grants one
// epoch to two holders; so that all tables agree even then, the contact that is greater byte by byte wins.
//
// This is a strict total order of a tile's entries, so "keep the greater" is commutative, associative and
// idempotent.
func (e Entry) Supersedes(o Entry) bool {
	switch {
	case e.Epoch != o.Epoch:
		return e.Epoch > o.Epoch
	case e.Held() != o.Held():
		return !e.Held()
	}
	return e.Contact > o.Contact
}

// Validate reports whether the entry can be learned: nil, or a *fence.ArgumentError.
func (e Entry) Validate() error {
	switch {
	case e.Tile == 0:
		return &fence.ArgumentError{Field: "tile", Value: e.Tile, Want: "an H3 index, not zero"}
	case e.Epoch == 0 || e.Epoch > fence.MaxNumber:
		return &fence.ArgumentError{Field: "epoch", Value: e.Epoch, Want: "from 1 to 2^53-1"}
	case e.Contact == "":
		return nil
	}
	return ValidateContact(e.Contact)
}

// ValidateContact reports whether a contact can be announced: nil, or a *fence.ArgumentError. The authority would take
// it, too. It need not be an address that can be called: see ValidateAddress.
func ValidateContact(contact string) error {
	if !fence.IsName(contact, fence.MaxContact) || strings.Contains(contact, " ") {
		return &fence.ArgumentError{Field: "contact", Value: contact,
			Want: "an address of 1 to 255 bytes of UTF-8, without spaces, control or format characters"}
	}
	return nil
}

// ValidateAddress reports whether a contact is host:port and nothing else: nil, or a *fence.ArgumentError. A contact
// is what a process has announced; one that becomes part of a URL must not choose its path, its user, or its
// header. The host is a name of letters, digits, '-', '_' and '.', or an IP address, IPv6 in brackets and without a
// zone; the port is 1 to 65535.
func ValidateAddress(contact string) error {
	host, port, found := cutPort(contact)
	n, err := strconv.ParseUint(port, 10, 16)
	if !found || len(contact) > fence.MaxContact || err != nil || n == 0 || port[0] == '0' || !isHost(host) {
		return &fence.ArgumentError{Field: "contact", Value: contact,
			Want: "host:port, a name or IP address and 1 to 65535, and nothing else"}
	}
	return nil
}

func cutPort(contact string) (host, port string, found bool) {
	i := strings.LastIndexByte(contact, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = contact[:i], contact[i+1:]
	return host, port, strings.Trim(port, "0123456789") == ""
}

func isHost(host string) bool {
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		return closed && err == nil && ip.Is6() && ip.Zone() == ""
	}
	return !slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."), func(label string) bool {
		return label == "" || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, notInNames)
	})
}

func notInNames(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '-' && r != '_'
}
