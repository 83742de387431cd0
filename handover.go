package tilefence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/tile"
)

// gatewayPrefix begins the contacts under which gateways are members: they take no tiles.
const gatewayPrefix = "gateway/"

// successorsTried is to how many members a tile is offered before it is released.
const successorsTried = 2

// handOver gives the server's tiles to other tile servers, within HandOverTimeout and two fifths of the time until by:
// the rest is for the release of those that stay.
func (s *TileServer) handOver(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithTimeout(ctx, min(s.cfg.HandOverTimeout, time.Until(by)*2/5))
	defer cancel()
	for try := range successorsTried {
		peers := tileServers(s.member, s.contact)
		if try >= len(peers) {
			return
		}
		err := s.host.DrainAll(ctx, func(id fence.TileID) string { return preferred(id, peers)[try] })
		if err == nil {
			return
		}
		s.cfg.Logger.Warn("not every tile was handed over", "error", err)
	}
}

// successor takes tiles that other servers hand over, until the server stops: it would have to hand them on.
type successor struct{ *TileServer }

// Accept implements tilehttp.Accepter.
func (s successor) Accept(ctx context.Context, o tile.Handover) error {
	if s.stopping.Load() {
		return tile.ErrHostEnded
	}
	return s.host.Accept(ctx, o)
}

// loads is how many tiles each tile server has, as gossip knows.
func (s *TileServer) loads() map[string]int {
	loads, counts := map[string]int{}, s.table.Counts()
	for _, contact := range tileServers(s.member, "") {
		loads[contact] = counts[contact]
	}
	return loads
}

// tileServers are the contacts of the members that run tiles, but for self.
func tileServers(m route.Membership, self string) []string {
	var contacts []string
	for _, member := range m.Members() {
		if c := member.Contact; c != self && !strings.HasPrefix(c, gatewayPrefix) && !slices.Contains(contacts, c) {
			contacts = append(contacts, c)
		}
	}
	return contacts
}

// preferred orders contacts by rendezvous hashing: every process that knows the same contacts has the same order
// for a tile, and tiles spread evenly.
func preferred(id fence.TileID, contacts []string) []string {
	weight := func(contact string) uint64 {
		sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(id)), contact...))
		return binary.BigEndian.Uint64(sum[:])
	}
	sorted := slices.Clone(contacts)
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })
	return sorted
}
