package main

import (
	"errors"
	"net"
	"net/http"
	"net/netip"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/tile/region"
)

// inspector is the library's page on the tiles of this host, for people on the same machine, who may move tiles.
func (h *host) inspector() http.Handler {
	page, err := inspect.New(h.TileServer, h.backends.Log, onThisMachine,
		&inspect.Config{Decode: decodeTile, Control: true, Logger: h.logger})
	if err != nil {
		h.logger.Error("there is no inspector", "error", err)
		return http.NotFoundHandler()
	}
	return page
}

// onThisMachine admits a browser that asked for a loopback address from one. A page elsewhere whose name leads here
// asks for that name.
func onThisMachine(r *http.Request) error {
	for _, at := range []string{r.RemoteAddr, r.Host} {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			return err
		}
		if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return errors.New("only this machine may inspect a battle")
		}
	}
	return nil
}

// decodeTile lists the ships of a tile.
func decodeTile(id fence.TileID, snapshot []byte) (any, error) {
	ground, err := region.Of(id)
	if err != nil {
		return nil, err
	}
	view, err := game.NewView(ground)
	if err != nil {
		return nil, err
	}
	if err := view.Restore(snapshot, fence.AreaSet{}); err != nil {
		return nil, err
	}
	return map[string]any{"ships": view.Ships()}, nil
}
