package relayclient

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/setting"
)

// Bounds of a connection.
const (
	writeTimeout = 5 * time.Second  // of one message to the relay
	firstDial    = 30 * time.Second // of Dial, if its context allows as much
	dialTimeout  = 10 * time.Second // of one attempt to connect again
	firstTimeout = 30 * time.Second // of silence at the beginning of a connection
	idleTimeout  = time.Minute      // of silence after that, until the relay has said how long it is silent at most
	longestIdle  = 10 * time.Minute // of silence, whatever a relay says
	maxMessage   = 64 << 20         // bytes of one message from the relay; a larger one ends the connection
)

// Config holds the optional settings of a Client. The zero value of every field means its default.
// Durations and numbers must not be negative.
//
// The functions are called one at a time, in the order of the events, from the client's own goroutine.
// While one runs nothing is read: a client whose functions are slow falls behind and is brought up to
// date by a Sync. They may call any method but Close. What they are given may be kept.
type Config struct {
	// Sync gives a tile's state from scratch: drop what you hold of it, restore Snapshot. The batches up
	// to Position follow at once as Frame calls. It comes first for every tile, and again whenever the
	// relay no longer has what the client missed, or the tile's history was replaced. After Watch it also comes
	// with Opens, for some areas: drop and restore those alone. The Frame calls up to Position then have the
	// events of those areas, in batches that the others have had.
	Sync func(Sync)

	// Frame gives the next batch of a tile: it follows exactly what was given before. Of the payload it has the areas
	// that the client watches.
	Frame func(fence.Entry)

	// Refused reports something the relay could not do; see the codes of relay/view.proto.
	Refused func(Refusal)

	// Stale reports that a relay is behind the client, because it is cut off from the store: it offers a tile at a
	// lower epoch than the client was shown, or says that it has less than the client holds. The client keeps what it
	// holds. It asks again after BackoffMin, doubled each time up to BackoffMax, and with Reconnect leaves the relay
	// after three requests: a load balancer may then choose another one. Unsubscribe forgets the tile's floor. So does
	// the client, and asks for everything, if relays have said for half a minute that the store knows no such epoch.
	Stale func(Stale)

	// GoAway reports that the relay will close the connection within the time given.
	GoAway func(within time.Duration)

	// Disconnected is called after a connection is lost, with the reason. With Reconnect the tiles subscribed are asked
	// for again by themselves.
	Disconnected func(error)

	// Tiles are subscribed from the beginning, as by Subscribe, in whole. Their names travel in the handshake, so that
	// their first Sync takes no round trip of its own.
	Tiles []fence.TileID

	// Token gives the token of each handshake, which is sent as Authorization: Bearer, and new ones before the session
	// expires. ctx ends with the client. Nil sends none.
	Token func(ctx context.Context) (string, error)

	Header     http.Header  // sent with the handshake: what the relay's Authenticate looks at
	HTTPClient *http.Client // for the handshake; nil: http.DefaultClient
	JSON       bool         // speak the JSON encoding, for debugging
	Compress   bool         // offer compression: large messages take fewer bytes, and more time

	// Reconnect connects again whenever the connection is lost, at a random moment between BackoffMin/2 and BackoffMin
	// at first, twice as late after each failure, at most BackoffMax; later if the relay refuses the handshake with a
	// Retry-After. A connection that ends before its first message has failed. The client gives up when the relay
	// refuses the handshake with a status of 400 to 499, except 429, or closed because the client broke the protocol.
	// Defaults 250 ms and 15 s.
	Reconnect  bool
	BackoffMin time.Duration
	BackoffMax time.Duration

	Logger *slog.Logger // nil discards
}

// Sync is a tile's state from scratch.
type Sync struct {
	Tile     fence.TileID
	Snapshot fence.Snapshot // zero position: the tile has none, its state starts empty
	Position fence.Position // reached when the Frame calls that follow are done
	Areas    fence.AreaSet  // what it brings
	Opens    bool           // only Areas start anew; what is held of others stays
	Divided  bool           // Snapshot.Blob is a list of parts (fence.Part), one for each area that is not empty
	Owner    fence.Owner    // epoch and contact, as far as the relay knows
}

// Refusal is something the relay could not do.
type Refusal struct {
	Tile    string // as the client wrote it; empty: it is about the connection
	Code    string // its name in relay/view.proto, such as CODE_FORBIDDEN
	Message string
}

// Stale is a relay that is behind the client.
type Stale struct {
	Tile    fence.TileID
	Floor   fence.Epoch    // the highest epoch the client was shown
	Offered fence.Position // zero if the relay said itself that it is behind
	Attempt int            // 1 the first time; counts until the view continues
}

// Stats counts what a Client has met since Dial.
type Stats struct {
	Connects   uint64 // connections made
	Bytes      uint64 // payload bytes of the messages received
	Syncs      uint64 // Syncs received
	Frames     uint64 // batches given to Config.Frame
	Gaps       uint64 // times a batch did not follow what the client held
	Repaired   uint64 // gaps closed again
	Resyncs    uint64 // Resyncs sent
	Duplicates uint64 // batches received again, or older than what the client held
	Corrupt    uint64 // snapshots and batches that failed their check
	Stale      uint64 // Syncs and batches of a lower epoch than the client was shown; none was applied
}

func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	out.Header = out.Header.Clone()
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	var s setting.Check
	s.Duration("BackoffMin", &out.BackoffMin, 250*time.Millisecond)
	s.From(out.BackoffMin, "BackoffMax", &out.BackoffMax, 15*time.Second)
	return out, s.Err
}

func (c *Config) encoding() relaypb.Encoding {
	if c.JSON {
		return relaypb.JSON
	}
	return relaypb.Binary
}
