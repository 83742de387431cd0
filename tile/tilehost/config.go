package tilehost

import (
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/tile"
)

// Config holds what has a default. The zero value is valid.
type Config struct {
	// Tile is the configuration of every tile's processor. TakeOver and Follow must be unset: the host
	// sets them. Hooks of the tiles run on many goroutines at once.
	Tile tile.Config

	// Configure changes the configuration of one tile's processor, a copy of Tile, each time before it is made: for
	// tiles that differ, in their Durability say. What it sets of TakeOver, Follow, Pace, Phase, Hooks.Transition and
	// Hooks.Refused is overruled: they are the host's. It may be called from many goroutines. A configuration that is
	// not valid is a *fence.ArgumentError at Hooks.Ended. Default: all tiles are alike.
	Configure func(fence.TileID, *tile.Config)

	// Allow says which tiles the host may run: an error refuses the tile. It judges every tile that is to become the
	// host's, by Own, Follow, TakeOver, or a hand-over, and every take-over of one that it follows. It may be called
	// from many goroutines. See Only. Default: every tile.
	Allow func(fence.TileID) error

	// MaxTiles is how many tiles the host may have a part in, followed ones included; more are refused with ErrFull.
	// Default 16,384.
	MaxTiles int

	// Promotions is how many tiles may be claimed or taken over at once. Default 64.
	Promotions int

	// PromotionRate is how many claims and take-overs may begin a second, those of the hottest tiles first, so
	// that a dead host with thousands of tiles does not become a storm. The first of a burst waits for 10 to 20 ms,
	// so that the others are ranked with it, and so that hosts which follow the same tiles do not ask for them in
	// step. Default 1000. Hand-overs and TakeOver do not wait for it.
	PromotionRate int

	// Announce is called whenever the host learns who owns a tile: its own processor begins to serve; was
	// superseded or handed over (the successor); lost a claim (the holder); has ended otherwise (an empty
	// contact). Tile, Epoch and Contact are set. It is how gossip is corrected by side effect. It is called
	// from the tiles' goroutines, many at once, so it must be quick and must not call the host. Default: none is
	// called.
	Announce func(fence.Owner)

	// Refollow makes the host follow a tile after it was superseded there. Default false: its processor
	// is collected and the host forgets the tile. A tile handed over is always forgotten.
	Refollow bool

	// Restart runs a tile again whose processor failed: after 1 s, doubling with each failure in a row up to 30 s,
	// half of it random. Default false: the failure is reported by Hooks.Ended, and the tile is forgotten. A tile
	// that is quarantined is never forgotten: the host asks the authority for it every 15 to 30 s, and claims it when
	// an operator has released it; or follows it again, if it did and another host has claimed it.
	Restart bool

	// Hooks observe the host itself.
	Hooks Hooks
}

// Hooks observe a Host; nil ones are ignored. They are called from the tiles' goroutines, so they must
// be quick, safe for concurrent use, and must not call back into the host; Ended may call Own and Follow.
type Hooks struct {
	// Ended: a tile's processor has ended, for whatever reason.
	Ended func(EndInfo)
	// Promoted: a claim or take-over had its turn and is over, well or not.
	Promoted func(PromotionInfo)
}

// EndInfo is the end of one of a host's processors.
type EndInfo struct {
	Status tile.Status // its last
	// Err is why: nil when it was drained or handed over, a *tile.SupersededError, which is information, or what
	// tile.TileProcessor.Run says of failures.
	Err error
	// Next is what the host does with the tile.
	Next NextStep
	// After is how long the host waits before it runs the tile again.
	After time.Duration
}

// NextStep is what a host does with a tile whose processor has ended.
type NextStep int

// The steps. Zero is none of them.
const (
	StepForget  NextStep = 1 // the host has no part in the tile any longer
	StepFollow  NextStep = 2 // it follows the tile
	StepRestart NextStep = 3 // it runs the tile again as before
)

// PromotionInfo is one claim or take-over.
type PromotionInfo struct {
	Tile   fence.TileID
	Why    tile.Suspicion // zero: a claim of Own or a take-over of a tile that was not followed
	Heat   float64        // events a tick
	Waited time.Duration
	Took   time.Duration // from its turn until it served or failed
}

const (
	maxPromotionRate = 1_000_000
	promotionJitter  = 20 * time.Millisecond // well below the time in which a death is noticed
	firstRestart     = time.Second
	maxRestartAfter  = 30 * time.Second
)

func (c *Config) withDefaults(s tile.Seams) (Config, error) {
	d := setting.Of(c)
	if d.Allow == nil {
		d.Allow = func(fence.TileID) error { return nil }
	}
	var check setting.Check
	check.Refuse(d.Tile.TakeOver || d.Tile.Follow, "Tile", "TakeOver or Follow",
		"neither: the host sets them, see Own, Follow and TakeOver")
	check.Number("MaxTiles", &d.MaxTiles, 16384)
	check.Number("Promotions", &d.Promotions, 64)
	check.Number("PromotionRate", &d.PromotionRate, 1000)
	check.Refuse(d.PromotionRate > maxPromotionRate, "PromotionRate", d.PromotionRate, "from 1 to 1000000 a second")
	if check.Err != nil {
		return d, check.Err
	}
	var err error
	d.Tile, err = d.Tile.WithDefaults(s)
	return d, err
}
