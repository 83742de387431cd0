package route

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/fence"
)

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
