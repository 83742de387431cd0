package tilefence

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/internal/wait"
)

// loadEvery is how often a tile server weighs its tiles.
const loadEvery = time.Second

// announceLoads announces the server's load to the other members, until ctx ends.
func (s *TileServer) announceLoads(ctx context.Context) error {
	for wait.For(ctx, loadEvery) {
		if err := s.member.AnnounceLoad(s.host.Load()); err != nil {
			s.cfg.Logger.Warn("the load of the tile server was not announced", "error", err)
		}
	}
	return nil
}

// loads is the load of each living tile server. Gossip tells of an owner sooner than of its load: a tile that its host
// has not announced in its load counts as an average one.
func (s *TileServer) loads() map[string]route.Load {
	counts := s.table.Counts()
	members := slices.DeleteFunc(s.member.Members(), func(m route.Member) bool {
		return strings.HasPrefix(m.Contact, address.GatewayPrefix)
	})
	var all route.Load
	for _, m := range members {
		all.Tiles, all.Work = all.Tiles+m.Load.Tiles, all.Work+m.Load.Work
	}
	average := all.Work / time.Duration(max(1, all.Tiles))
	loads := make(map[string]route.Load, len(members))
	for _, m := range members {
		tiles := counts[m.Contact]
		work := m.Load.Work + time.Duration(tiles-m.Load.Tiles)*average
		loads[m.Contact] = route.Load{Tiles: tiles, Work: max(0, work)}
	}
	return loads
}
