// Package tilehost runs thousands of tiles in one process, and moves them between processes.
//
//	h, err := tilehost.New("10.0.0.7:7000", seams, newRules, &tilehost.Config{Announce: announce})
//	go func() { ended <- h.Run(ctx) }()
//	err = h.Own(mine...)
//	err = h.Follow(theirs...)
//	intents, err := tilehttp.NewHandler(h, nil)
//	mux.Handle(tilehttp.Path, intents)
//
// A Host gives each tile a tile.TileProcessor. It decides when a processor begins, in which role, and what becomes of
// the tile when it ends; it decides nothing about who owns a tile. The guarantees are those of package tile.
// Host.Rebalance evens out how many tiles each of several hosts serves.
//
// # Promotions
//
// A process that dies leaves thousands of tiles to its followers. The host lets them ask for the tiles a limited number
// at a time and a limited number a second, the tiles with the most events first (Config.Promotions, PromotionRate). A
// hand-over or an operator's order does not wait. A tile whose replica is down gives its place to another.
//
// # Failures
//
// What happens to one tile ends neither the others nor the host: a processor that fails is reported by Hooks.Ended, and
// its tile forgotten, followed or run again as Config says. When the context of Run ends, every tile is drained.
//
// # Concurrency
//
// All methods may be called from any goroutine. Each tile has a goroutine of its own, and so have those that wait for a
// back end; Config says which functions are called from many at once.
//
// # Testing
//
// Hosts that share fence/memfence and stream/memstream are a cluster in one process; under testing/synctest a minute of
// take-overs takes a moment.
package tilehost
