package tile

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// HostConfig holds what has a default. The zero value is valid.
type HostConfig struct {
	// Tile is the configuration of every tile's processor. TakeOver and Follow must be unset: the host
	// sets them. Hooks of the tiles run on many goroutines at once.
	Tile Config

	// Configure changes the configuration of one tile's processor, a copy of Tile, each time before it is made: for
	// tiles that differ, in their Durability say. It must not set TakeOver, Follow, and Hooks.Transition and
	// Hooks.Refused, which are the host's: it would be overruled. It may be called from many goroutines. What is
	// wrong with what it makes of it is a *fence.ArgumentError at HostHooks.Ended. Default: all tiles are alike.
	Configure func(fence.TileID, *Config)

	// Promotions is how many tiles may be claimed or taken over at once. Default 64.
	Promotions int

	// PromotionRate is how many claims and take-overs may begin a second, after the hottest tiles first, so
	// that a dead host with thousands of tiles does not become a storm. Default 1000. Hand-overs and
	// TakeOver do not wait for it.
	PromotionRate int

	// PromotionJitter is how long the first promotion of a burst waits at most (and half as long at the
	// least): so that the hottest tiles of the burst are known, and that the hosts which follow the same
	// tiles do not ask for them in step. Default 20 ms.
	PromotionJitter time.Duration

	// Announce is called whenever the host learns who owns a tile: its own processor begins to serve; was
	// superseded or handed over (the successor); lost a claim (the holder); has ended otherwise (an empty
	// contact). Tile, Epoch and Contact are set. It is how gossip is corrected by side effect. It is called
	// from the tiles' goroutines, many at once, so it must be quick and must not call the host. Default: nobody is told.
	Announce func(fence.Owner)

	// Refollow makes the host follow a tile after it was superseded there. Default false: its processor
	// is collected and the host forgets the tile. A tile handed over is always forgotten.
	Refollow bool

	// Restart runs a tile again whose processor failed, after RestartAfter, doubling with each failure in
	// a row up to 30 s. Default false: it is reported by Hooks.Ended and forgotten.
	Restart bool

	// RestartAfter is the wait before the first restart; half of it is random. Default 1 s.
	RestartAfter time.Duration

	// Hooks observe the host itself.
	Hooks HostHooks
}

// HostHooks observe a Host; nil ones are ignored. They are called from the tiles' goroutines, so they must
// be quick, safe for concurrent use, and must not call back into the host.
type HostHooks struct {
	// Ended: a tile's processor has ended, for whatever reason.
	Ended func(EndInfo)
	// Promoted: a claim or take-over had its turn and is over, well or not.
	Promoted func(PromotionInfo)
}

// EndInfo is the end of one of a host's processors.
type EndInfo struct {
	Status Status // its last
	// Err is why: nil when it was drained or handed over, a *SupersededError, which is information, or what
	// TileProcessor.Run says of failures.
	Err error
	// Next is what becomes of the tile.
	Next Afterlife
	// After is how long the host waits before it runs the tile again.
	After time.Duration
}

// Afterlife is what a host does with a tile whose processor has ended.
type Afterlife int

// The afterlives. Zero is none of them.
const (
	Forgotten Afterlife = 1 // the host has no part in the tile any more
	Refollows Afterlife = 2 // it follows the tile
	Restarts  Afterlife = 3 // it runs the tile again as before
)

// PromotionInfo is one claim or take-over.
type PromotionInfo struct {
	Tile   fence.TileID
	Why    Suspicion // zero: a claim of Own or a take-over of a tile that was not followed
	Heat   float64   // events a tick
	Waited time.Duration
	Took   time.Duration // from its turn until it served or failed
}

// Bounds of HostConfig's numbers.
const (
	maxPromotionRate = 1_000_000
	maxRestartAfter  = 30 * time.Second
)

func (c *HostConfig) withDefaults(s Seams) (HostConfig, error) {
	var d HostConfig
	if c != nil {
		d = *c
	}
	setDefault(&d.Promotions, 64)
	setDefault(&d.PromotionRate, 1000)
	setDefault(&d.PromotionJitter, 20*time.Millisecond)
	setDefault(&d.RestartAfter, time.Second)
	if d.Announce == nil {
		d.Announce = func(fence.Owner) {}
	}
	fill(&d.Hooks.Ended)
	fill(&d.Hooks.Promoted)
	switch {
	case d.Tile.TakeOver || d.Tile.Follow:
		return d, &fence.ArgumentError{Field: "Tile", Value: "TakeOver or Follow", Want: "neither: the host sets them, see Own, Follow and TakeOver"}
	case d.Promotions < 1:
		return d, &fence.ArgumentError{Field: "Promotions", Value: d.Promotions, Want: "at least 1"}
	case d.PromotionRate < 1 || d.PromotionRate > maxPromotionRate:
		return d, &fence.ArgumentError{Field: "PromotionRate", Value: d.PromotionRate, Want: "from 1 to 1000000 a second"}
	case d.PromotionJitter < 0:
		return d, &fence.ArgumentError{Field: "PromotionJitter", Value: d.PromotionJitter, Want: "a duration, or zero for 20ms"}
	case d.RestartAfter < time.Millisecond || d.RestartAfter > maxRestartAfter:
		return d, &fence.ArgumentError{Field: "RestartAfter", Value: d.RestartAfter, Want: "from 1ms to 30s"}
	}
	var err error
	d.Tile, err = d.Tile.withDefaults(s)
	return d, err
}
