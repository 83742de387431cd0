package gatewayws

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Defaults of Config and DialConfig.
const (
	defaultMaxFrame    = 16 << 10 // holds the largest intent: its body in base64, its names escaped
	defaultMaxInFlight = 32
	defaultMaxClients  = 10_000
)

// Admitter takes the intents of authenticated clients: an admission.Gateway.
type Admitter interface {
	Move(ctx context.Context, in tile.Intent) (stream.Outcome, error)
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

	// Sessions bound what an address or an actor may take, and how long authentication and Enter may.
	Sessions session.Limits

	// MaxClients is how many may be connected; more are answered 503. Zero means 10,000.
	MaxClients int
	// MaxFrame is the most bytes of a message. Zero means 16 KiB, which holds the largest intent.
	MaxFrame int
	// MaxInFlight is how many intents of one connection may be under way. Zero means 32.
	MaxInFlight int

	// IntentTimeout bounds each intent from its frame to its answer. Zero means 15 s.
	IntentTimeout time.Duration
	// WriteTimeout is how long a client may take to accept an answer. Zero means 5 s.
	WriteTimeout time.Duration
	// PingInterval is after how long a silent client is asked for a sign of life, which it must give within the same
	// time. Zero means 20 s.
	PingInterval time.Duration

	// Logger takes what an operator should read; of lines that clients can cause, a sample. Nil discards.
	Logger   *slog.Logger
	refusals *slog.Logger
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
	Open  time.Duration // zero when it opens
	Err   error         // why it ended
}

// AnswerInfo describes the answer to a frame.
type AnswerInfo struct {
	Actor   string
	Kind    admission.Kind // empty for a malformed frame
	Outcome stream.Outcome // zero with a code
	Code    Code           // empty with an outcome
	Took    time.Duration
}

func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	d.Origins = slices.Clone(d.Origins)
	d.MaxClients = cmp.Or(d.MaxClients, defaultMaxClients)
	d.MaxFrame = cmp.Or(d.MaxFrame, defaultMaxFrame)
	d.MaxInFlight = cmp.Or(d.MaxInFlight, defaultMaxInFlight)
	d.IntentTimeout = cmp.Or(d.IntentTimeout, 15*time.Second)
	d.WriteTimeout = cmp.Or(d.WriteTimeout, 5*time.Second)
	d.PingInterval = cmp.Or(d.PingInterval, 20*time.Second)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	d.refusals = sampled.Logger(d.Logger)
	orNothing(&d.Hooks.Opened)
	orNothing(&d.Hooks.Closed)
	orNothing(&d.Hooks.Answered)
	return d, d.validate()
}

// validate checks the settings after the defaults are in.
func (c *Config) validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"IntentTimeout", c.IntentTimeout}, {"WriteTimeout", c.WriteTimeout}, {"PingInterval", c.PingInterval}} {
		if d.value < time.Millisecond {
			return &fence.ArgumentError{Field: d.field, Value: d.value,
				Want: "at least a millisecond, or zero for the default"}
		}
	}
	switch {
	case c.MaxClients < 1:
		return &fence.ArgumentError{Field: "MaxClients", Value: c.MaxClients,
			Want: "at least 1, or zero for the default"}
	case c.MaxFrame < 256:
		return &fence.ArgumentError{Field: "MaxFrame", Value: c.MaxFrame,
			Want: "at least 256 bytes, or zero for the default"}
	case c.MaxInFlight < 1:
		return &fence.ArgumentError{Field: "MaxInFlight", Value: c.MaxInFlight,
			Want: "at least 1, or zero for the default"}
	}
	return nil
}

// orNothing makes a hook that is not set do nothing.
func orNothing[T any](hook *func(T)) {
	if *hook == nil {
		*hook = func(T) {}
	}
}
