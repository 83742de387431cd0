package gatewayws

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Bounds of a connection, at both ends.
const (
	maxFrame           = 16 << 10 // bytes; holds the largest intent: its body in base64, its names escaped
	defaultMaxInFlight = 32
	intentTimeout      = 15 * time.Second // of an intent, from its frame to its answer
	dialTimeout        = 30 * time.Second // of a client's handshake
	writeTimeout       = 5 * time.Second  // for the peer to accept a frame
	pingInterval       = 20 * time.Second // after which a peer is asked for a sign of life
)

// Admitter takes the intents of authenticated clients: an admission.Gateway. One that also has StartMove, as that has,
// needs no goroutine for a movement that waits for its tile.
type Admitter interface {
	Move(ctx context.Context, in tile.Intent) (tile.Result, error)
	Act(ctx context.Context, a admission.Action) (admission.Artifact, error)
	Outcome(ctx context.Context, actor, actionID string) (admission.Artifact, error)
}

// Config holds the optional settings of a Handler. Nil and the zero value are valid.
type Config struct {
	// Origins are the hosts whose pages may connect, besides the server's own, as patterns of path.Match
	// ("*.example.com"), or with a scheme ("https://example.com"). Clients that are no browsers send no
	// origin and need no entry.
	Origins []string
	// AnyOrigin lets every page connect. Set it only if the authentication does not use cookies.
	AnyOrigin bool

	// Enter is called once for each connection, when its handshake is done and before its first intent is taken: the
	// place for what lasts, such as a gift to a new player, which authentication must not do. It must return when ctx
	// ends, after Sessions.Timeout. An error closes the connection with status 1008, a call that took too long with
	// 1013 (try again later); the error's text is logged, not sent. Nil does nothing.
	Enter func(ctx context.Context, who session.Identity) error

	// Where says in which tile an actor is: Where of a directory.Directory. It answers clients that ask, and leads
	// movements that name no tile. It must return when ctx ends. Nil: it is never known.
	Where func(ctx context.Context, actor string) (fence.TileID, error)

	// Sessions bound what an address or an actor may take, and how long authentication and Enter may.
	Sessions session.Limits

	// MaxClients is how many may be connected; more are answered 503. Zero means 10,000.
	MaxClients int
	// MaxInFlight is how many intents of one connection may be under way. Zero means 32.
	MaxInFlight int
	// PingInterval is after how long a silent client is asked for a sign of life, which it must give within the same
	// time. Zero means 20 s.
	PingInterval time.Duration

	// Logger takes what an operator should read; of lines that clients can cause, a sample. Nil discards.
	Logger   *slog.Logger
	refusals *slog.Logger
	turns    *overload.Control // to begin intents
	Hooks    Hooks
}

// Hooks are called as things happen. Any may be nil. They must not block.
type Hooks struct {
	Opened   func(ConnInfo)   // a client is connected
	Closed   func(ConnInfo)   // and gone
	Answered func(AnswerInfo) // a frame was answered, or would have been
}

// ConnInfo describes a connection.
type ConnInfo struct {
	Actor string
	Began time.Time     // when its handshake began
	Open  time.Duration // zero when it opens
	Err   error         // why it ended
}

// AnswerInfo describes the answer to a frame.
type AnswerInfo struct {
	Actor   string
	Kind    admission.Kind // empty for a malformed frame
	Tile    fence.TileID   // of a movement or an action, or where the answer says that the actor went
	Outcome stream.Outcome // zero with a code
	Code    Code           // empty with an outcome
	Took    time.Duration
}

func (c *Config) withDefaults() (Config, error) {
	d := setting.Of(c)
	d.Origins = slices.Clone(d.Origins)
	var check setting.Check
	setting.Least(&check, 1, "MaxClients", &d.MaxClients, 10_000)
	setting.Least(&check, 1, "MaxInFlight", &d.MaxInFlight, defaultMaxInFlight)
	setting.Least(&check, time.Millisecond, "PingInterval", &d.PingInterval, pingInterval)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	d.refusals = sampled.Logger(d.Logger)
	d.turns = overload.New(turnsPerProcessor*runtime.GOMAXPROCS(0), mostWaiting, beginTarget)
	return d, check.Err
}
