package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

// Defaults of Config and Limits.
const (
	DefaultMaxTilesPerClient = 64
	DefaultMaxRepairs        = 16
	DefaultDrainWindow       = 5 * time.Second
	DefaultCheckInterval     = 5 * time.Second
)

// Defaults of tuning.
const (
	defaultLinger       = 30 * time.Second
	defaultMarkInterval = 10 * time.Second
)

// Config holds the optional settings of a Relay. In every field zero means the default. Durations must not be negative.
type Config struct {
	// Authenticate says who asks for a connection. nil lets strangers in and leaves it to the AuthorizeFunc.
	Authenticate session.AuthenticateFunc

	// Sessions bound what an address or an actor may take, and how long Authenticate and the AuthorizeFunc may.
	Sessions session.Limits

	// ShowOwners tells clients where the owners of tiles take intents: addresses of your network, which players do not
	// need.
	ShowOwners bool

	// Origins are the web origins whose pages may connect, besides the relay's own host: patterns of
	// path.Match over the host ("*.example.com") or, with "://", over scheme and host. A request without
	// an Origin header does not come from a web page and is not checked.
	Origins []string

	// ID names the relay's own marks in the store, one for each tile it watches: 1 to 64 ASCII letters, digits,
	// hyphens and underscores. No two relays that run at once may share it. Default: random, which suits every relay
	// that keeps no state; a fixed name helps an operator who asks what holds a stream's tail.
	ID string

	// Views are cold reads that relays share, see package viewcache; nil: this relay reads the store itself. It does so
	// too whenever they are of no help. What such a view lacks of the last second (viewcache.Config.Fresh), the next
	// frame or comparison brings.
	Views Views

	Limits

	// PingInterval is the time between pings; a client silent for two and a half is closed with 4002. A client that has
	// had no message for half of it is sent a Heartbeat, and counts its connection as lost after two and a half of
	// these halves without a message: 25 s by default. Default 20 s.
	PingInterval time.Duration
	DrainWindow  time.Duration // over which Drain spreads the closing of clients. Default 5 s.
	StoreTimeout time.Duration // of one call to the store or to the fan-out. Default 2 s.

	CheckInterval time.Duration // between comparisons of a tile with the store. Default 5 s.

	// BehindGrace is how long the store may be behind what clients have seen (a failover lost its last
	// entries, and the living owner re-appends them) before the relay takes the store's word for it.
	// It should not be below the owner hash's time to live. Default 30 s.
	BehindGrace time.Duration

	// Logger takes what an operator should read; of lines that clients can cause, a sample. Nil discards.
	Logger *slog.Logger
	Hooks  Hooks

	tuning
}

// AuthorizeFunc decides whether a player may watch areas of a tile: all those that the player is to be sent from then
// on, not only new ones. areas.All means the whole tile. It decides over each subscription, also a repeated one, each
// Resync and each change of areas. A game checks here that the tile exists and that the player may see these areas of
// it: a client names its areas itself, and one that names none asks for the whole tile. A game that hides areas
// compares the set with what the player may see:
//
//	if _, more := areas.Without(visible); more {
//		return errors.New("out of sight")
//	}
//
// The argument who is what Config.Authenticate returned, or the last refresh. An error is answered with
// CODE_FORBIDDEN, and ends a subscription that was there; its text is logged, not sent. A player who loses the right
// to an area is asked about only when the client sends something: Relay.EndActor ends what is open. It must return
// when ctx ends, which is after Config.Sessions.Timeout. It is called from the connection's own goroutine, in turn.
type AuthorizeFunc func(ctx context.Context, who session.Identity, tile fence.TileID, areas fence.AreaSet) error

// Public is an AuthorizeFunc that lets every client watch all areas of every tile, also of tiles that never existed.
func Public(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }

// Views is a cache of tiles' histories that many relays share. A *viewcache.Cache is one.
type Views interface {
	// View returns the history of a tile, at least up to need, or if that is zero a fresh one.
	View(ctx context.Context, tile fence.TileID, need fence.Position) (viewcache.View, error)
	// Tail returns what follows a position of the history; a *stream.GapError if it does not know the position.
	Tail(ctx context.Context, tile fence.TileID, after, need fence.Position) (viewcache.View, error)
	// Forget removes what the relay has found to be of another history than the store's.
	Forget(ctx context.Context, tile fence.TileID)
}

// Limits bound what a Relay holds. Zero fields mean their defaults; none may be negative.
type Limits struct {
	MaxClients        int // connections at once; more are answered 503. Default 10,000.
	MaxTiles          int // tiles the relay watches at once; package comment: for which actors. Default 16,384.
	MaxTilesPerClient int // tiles one client may watch at once. Default 64.
	// InboundRate is messages a second from one client, averaged over ten seconds. A Subscribe is one more for each
	// eight tiles it names. Default 50.
	InboundRate int
	MaxRepairs  int // cold reads at once, over all tiles; Config.Views bound their own. Default 16.

	// SyncRate bounds the bytes of Syncs a second to one actor, over all its connections, or to one stranger, averaged:
	// 16 seconds' worth are sent at once, what is more waits. The strangers of an address have 16 times as much
	// together. Frames are not counted. Default 4 MiB. To all clients together they are 512 MiB a second; where that is
	// too little, the actors that were sent least in the last minutes go first.
	SyncRate int

	// RelaySyncBytes bounds the Syncs that are being written, and those that are kept for the next clients, over all
	// clients; one that several are sent counts once. When there are too many, others wait, and the clients that have
	// been taking the oldest for more than a second are closed with status 4001. Default 256 MiB, for each of the two.
	RelaySyncBytes int

	// RelayQueueBytes bounds the frames that wait for all clients. Frames over it are dropped for those that have not
	// read the last one, as are frames for a client for which 1 MiB waits; it gets a Sync when its queue has drained,
	// and is closed with 4001 after 30 s behind. Default 512 MiB.
	RelayQueueBytes int

	// TailFrames and TailBytes (of payload) bound the batches kept in memory for one tile, and with them
	// what a new client is sent besides the snapshot. When the tail is longer the cache of the tile is
	// dropped, and the next new client causes a cold read. Defaults 512 and 4 MiB.
	TailFrames int
	TailBytes  int
}

// tuning are settings that only tests change.
type tuning struct {
	authorize AuthorizeFunc // the argument of New
	refusals  *slog.Logger  // Logger, for lines that strangers can cause: they are sampled

	onForged func(forgedInfo) // a frame was dropped because the store does not know its epoch

	inboundBytes  int // of one message from a client; a larger one closes the connection
	queueFrames   int // that wait for one client
	queueBytes    int // that wait for one client
	refreshFrames int // length of the tail from which a newer snapshot is looked for; above the snapshot interval

	slowTimeout  time.Duration // a client that has been behind for so long is closed with 4001
	linger       time.Duration // after which a tile without clients is dropped
	markInterval time.Duration // between renewals of a tile's mark; well below half the trim lease
	coalesce     time.Duration // a client of several tiles waits for more, so that it is written to once
	writeTimeout time.Duration // for a client to take 64 KiB
	closeTimeout time.Duration // for a client to answer a close
	syncStall    time.Duration // after which a client that takes a Sync is closed if there is no room for others
	repairJitter time.Duration // a repair after a gap waits a random part of it: relays do not all read at once
	earlyPause   time.Duration // between questions to the store about what clients claim to hold
	backoffMin   time.Duration // between attempts of a failing repair, doubled each time
	backoffMax   time.Duration // limit of the doubling
}

// withDefaults returns a copy with every field set, or an *fence.ArgumentError.
func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	var s setting.Check
	out.Origins = slices.Clone(out.Origins)
	out.ID = cmp.Or(out.ID, rand.Text())
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	out.refusals = sampled.Logger(out.Logger)
	s.Number("MaxClients", &out.MaxClients, 10_000)
	s.Number("MaxTiles", &out.MaxTiles, 16_384)
	s.Number("MaxTilesPerClient", &out.MaxTilesPerClient, DefaultMaxTilesPerClient)
	s.Number("InboundRate", &out.InboundRate, 50)
	s.Number("SyncRate", &out.SyncRate, 4<<20)
	s.Number("RelaySyncBytes", &out.RelaySyncBytes, 256<<20)
	s.Number("RelayQueueBytes", &out.RelayQueueBytes, 512<<20)
	s.Number("MaxRepairs", &out.MaxRepairs, DefaultMaxRepairs)
	s.Number("TailFrames", &out.TailFrames, 512)
	s.Number("TailBytes", &out.TailBytes, 4<<20)
	s.Duration("PingInterval", &out.PingInterval, 20*time.Second)
	s.Duration("DrainWindow", &out.DrainWindow, DefaultDrainWindow)
	s.Duration("CheckInterval", &out.CheckInterval, DefaultCheckInterval)
	s.Duration("BehindGrace", &out.BehindGrace, fence.DefaultTTL)
	s.Duration("StoreTimeout", &out.StoreTimeout, 2*time.Second)
	out.inboundBytes = cmp.Or(out.inboundBytes, 16<<10)
	out.queueFrames = cmp.Or(out.queueFrames, 256)
	out.queueBytes = cmp.Or(out.queueBytes, 1<<20)
	out.refreshFrames = cmp.Or(out.refreshFrames, max(1, min(180, out.TailFrames/2)))
	out.slowTimeout = cmp.Or(out.slowTimeout, 30*time.Second)
	out.linger = cmp.Or(out.linger, defaultLinger)
	out.markInterval = cmp.Or(out.markInterval, defaultMarkInterval)
	out.coalesce = cmp.Or(out.coalesce, 10*time.Millisecond)
	out.writeTimeout = cmp.Or(out.writeTimeout, 10*time.Second)
	out.closeTimeout = cmp.Or(out.closeTimeout, 2*time.Second)
	out.syncStall = cmp.Or(out.syncStall, time.Second)
	out.repairJitter = cmp.Or(out.repairJitter, 20*time.Millisecond)
	out.earlyPause = cmp.Or(out.earlyPause, time.Second)
	out.backoffMin = cmp.Or(out.backoffMin, 100*time.Millisecond)
	out.backoffMax = cmp.Or(out.backoffMax, max(out.backoffMin, min(out.CheckInterval, DefaultCheckInterval)))
	out.validate(&s)
	return out, s.Err
}

// validate checks the settings after the defaults are in.
func (c *Config) validate(s *setting.Check) {
	for _, o := range c.Origins {
		_, err := path.Match(strings.ToLower(o), "")
		s.Refuse(err != nil || o == "" || o == "*", "Origins", o, "a pattern of path.Match narrower than *")
	}
	mark := stream.MarkWrite{Tile: 1, Consumer: stream.RelayMember(c.ID)}
	s.Refuse(mark.Validate() != nil, "ID", c.ID, "1 to 64 ASCII letters, digits, hyphens and underscores")
}
