package relay

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Defaults of Config.
const (
	DefaultMaxClients    = 10_000
	DefaultMaxTiles      = 64
	DefaultMaxHubs       = 16_384
	DefaultMaxInbound    = 16 << 10
	DefaultInboundRate   = 50
	DefaultQueueMessages = 256
	DefaultQueueBytes    = 1 << 20
	DefaultWriteTimeout  = 10 * time.Second
	DefaultSlowTimeout   = 30 * time.Second
	DefaultPingInterval  = 20 * time.Second
	DefaultCloseTimeout  = 2 * time.Second
	DefaultDrainWindow   = 5 * time.Second
	DefaultLinger        = 30 * time.Second
	DefaultTailFrames    = 512
	DefaultTailBytes     = 4 << 20
	DefaultRefreshFrames = 180
	DefaultCheckInterval = 5 * time.Second
	DefaultMarkInterval  = 10 * time.Second
	DefaultBehindGrace   = fence.DefaultTTL
	DefaultMaxRepairs    = 16
	DefaultRepairJitter  = 20 * time.Millisecond
	DefaultBackoffMin    = 100 * time.Millisecond
	DefaultBackoffMax    = 5 * time.Second
	DefaultStoreTimeout  = 2 * time.Second
)

// Config holds the optional settings of a Relay. The zero value of every field means its default.
// Durations and numbers must not be negative.
type Config struct {
	// ID names the relay's own marks in the store, one for each tile it watches: 1 to 64 ASCII letters, digits,
	// hyphens and underscores. No two relays that run at once may share it. Default: random, which suits every relay
	// that keeps no state; a name of its own helps whoever asks what holds a stream's tail.
	ID string

	// Authorize decides over each connection before it is upgraded, from the request's cookies, headers
	// or query. An error refuses it with 403; its text is logged, not sent. nil admits everybody.
	Authorize func(*http.Request) error

	// AuthorizeTile decides over each subscription; r is the connection's handshake request, whose context
	// has ended. An error is answered with CODE_FORBIDDEN; its text is logged, not sent. It is called from
	// the connection's own goroutine, in turn. A game checks here that the tile exists and that the player
	// may see it. nil allows every tile: then anybody can make the relay watch tiles that never existed.
	AuthorizeTile func(r *http.Request, tile fence.TileID) error

	// Origins are the web origins whose pages may connect, besides the relay's own host: patterns of
	// path.Match over the host ("*.example.com") or, with "://", over scheme and host. A request without
	// an Origin header does not come from a web page and is not checked.
	Origins []string

	MaxClients  int // connections at once; more are answered 503. Default 10,000.
	MaxTiles    int // tiles one client may watch at once. Default 64.
	MaxHubs     int // tiles the relay watches at once. Default 16,384.
	MaxInbound  int // bytes of one message from a client; a larger one closes the connection. Default 16 KiB.
	InboundRate int // messages a second from one client, averaged over ten seconds. Default 50.

	// QueueMessages and QueueBytes bound what waits for one client. Frames over it are dropped for that
	// client, which is brought up to date with a Sync when its queue has drained. Defaults 256 and 1 MiB.
	QueueMessages int
	QueueBytes    int

	WriteTimeout time.Duration // a client that does not take 64 KiB within it is cut off. Default 10 s.
	SlowTimeout  time.Duration // a client that has been behind for so long is closed with 4001. Default 30 s.
	PingInterval time.Duration // between pings; a client silent for two and a half is closed with 4002. Default 20 s.
	CloseTimeout time.Duration // for a peer to answer a close. Default 2 s.
	DrainWindow  time.Duration // over which Drain spreads the closing of clients. Default 5 s.

	Linger time.Duration // a tile nobody watches is dropped after it. Default 30 s.

	// TailFrames and TailBytes (of payload) bound the batches kept in memory for one tile, and with them
	// what a new client is sent besides the snapshot. When the tail is longer the cache of the tile is
	// dropped, and the next new client causes a cold read. Defaults 512 and 4 MiB.
	TailFrames int
	TailBytes  int

	// RefreshFrames is the length of the tail from which a newer snapshot is looked for. It should be
	// above the owner's snapshot interval (60 ticks). Default 180, or TailFrames/2 if that is less.
	RefreshFrames int

	CheckInterval time.Duration // between comparisons of a tile with the store, spread over its length. Default 5 s.
	MarkInterval  time.Duration // between renewals of a tile's mark; keep it well below the trim lease. Default 10 s.

	// BehindGrace is how long the store may be behind what clients have seen (a failover lost its last
	// entries, and the living owner appends them again) before the relay takes the store's word for it.
	// It should not be below the owner hash's time to live. Default 30 s.
	BehindGrace time.Duration

	MaxRepairs   int           // cold reads at once, over all tiles. Default 16.
	RepairJitter time.Duration // a repair after a gap waits a random part of it, so that relays do not all read at once. Default 20 ms.
	BackoffMin   time.Duration // between attempts of a failing repair, doubled each time. Default 100 ms.
	BackoffMax   time.Duration // limit of the doubling. Default 5 s.
	StoreTimeout time.Duration // of one call to the store or to the fan-out. Default 2 s.

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// withDefaults returns a copy with every field set, or an *fence.ArgumentError.
func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	out.Origins = slices.Clone(out.Origins)
	for _, o := range out.Origins {
		if _, err := path.Match(strings.ToLower(o), ""); err != nil || o == "" || o == "*" {
			return out, &fence.ArgumentError{Field: "Origins", Value: o, Want: "a pattern of path.Match narrower than *"}
		}
	}
	if out.ID == "" {
		out.ID = rand.Text()
	}
	mark := stream.MarkWrite{Tile: 1, Consumer: stream.RelayMember(out.ID)}
	if mark.Check() != nil {
		return out, &fence.ArgumentError{Field: "ID", Value: out.ID, Want: "1 to 64 ASCII letters, digits, hyphens and underscores"}
	}
	if err := out.numbers(); err != nil {
		return out, err
	}
	if err := out.durations(); err != nil {
		return out, err
	}
	switch {
	case out.RefreshFrames > out.TailFrames:
		return out, &fence.ArgumentError{Field: "RefreshFrames", Value: out.RefreshFrames, Want: fmt.Sprintf("at most TailFrames (%d)", out.TailFrames)}
	case out.BackoffMax < out.BackoffMin:
		return out, &fence.ArgumentError{Field: "BackoffMax", Value: out.BackoffMax, Want: fmt.Sprintf("at least BackoffMin (%s)", out.BackoffMin)}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	out.Hooks = out.Hooks.withDefaults()
	return out, nil
}

func (c *Config) numbers() error {
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxClients", &c.MaxClients, DefaultMaxClients},
		{"MaxTiles", &c.MaxTiles, DefaultMaxTiles},
		{"MaxHubs", &c.MaxHubs, DefaultMaxHubs},
		{"MaxInbound", &c.MaxInbound, DefaultMaxInbound},
		{"InboundRate", &c.InboundRate, DefaultInboundRate},
		{"QueueMessages", &c.QueueMessages, DefaultQueueMessages},
		{"QueueBytes", &c.QueueBytes, DefaultQueueBytes},
		{"TailFrames", &c.TailFrames, DefaultTailFrames},
		{"TailBytes", &c.TailBytes, DefaultTailBytes},
		{"RefreshFrames", &c.RefreshFrames, 0}, // depends on TailFrames
		{"MaxRepairs", &c.MaxRepairs, DefaultMaxRepairs},
	} {
		if *n.value < 0 {
			return &fence.ArgumentError{Field: n.name, Value: *n.value, Want: "a positive number, or zero for the default"}
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	if c.RefreshFrames == 0 {
		c.RefreshFrames = max(1, min(DefaultRefreshFrames, c.TailFrames/2))
	}
	return nil
}

func (c *Config) durations() error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"WriteTimeout", &c.WriteTimeout, DefaultWriteTimeout},
		{"SlowTimeout", &c.SlowTimeout, DefaultSlowTimeout},
		{"PingInterval", &c.PingInterval, DefaultPingInterval},
		{"CloseTimeout", &c.CloseTimeout, DefaultCloseTimeout},
		{"DrainWindow", &c.DrainWindow, DefaultDrainWindow},
		{"Linger", &c.Linger, DefaultLinger},
		{"CheckInterval", &c.CheckInterval, DefaultCheckInterval},
		{"MarkInterval", &c.MarkInterval, DefaultMarkInterval},
		{"BehindGrace", &c.BehindGrace, DefaultBehindGrace},
		{"RepairJitter", &c.RepairJitter, DefaultRepairJitter},
		{"BackoffMin", &c.BackoffMin, DefaultBackoffMin},
		{"BackoffMax", &c.BackoffMax, DefaultBackoffMax},
		{"StoreTimeout", &c.StoreTimeout, DefaultStoreTimeout},
	} {
		if *d.value < 0 {
			return &fence.ArgumentError{Field: d.name, Value: *d.value, Want: "a duration that is not negative; zero means the default"}
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return nil
}
