package tilehttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// ErrUnavailable means that the process at a contact gave no answer. A *UnavailableError says more.
var ErrUnavailable = errors.New("tile process unavailable")

// UnavailableError is a process that could not be reached, or gave no answer that can be understood.
type UnavailableError struct {
	Contact string
	Outcome error // fence.ErrNotApplied: nothing was sent; fence.ErrUnknownOutcome: it may be resolved
	Err     error // the cause
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%v at %s: %v: %v", ErrUnavailable, e.Contact, e.Outcome, e.Err)
}

// Is matches ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap gives the outcome and the cause.
func (e *UnavailableError) Unwrap() []error { return []error{e.Outcome, e.Err} }

// Config holds the optional settings of a Client. Nil and the zero value are valid.
type Config struct {
	// Keys prove this process to tile servers, and them to it. Empty: every answer is believed.
	Keys Keys

	// TLS is for calls to tile servers, whose URLs then begin with https. Nil: not encrypted.
	TLS *tls.Config

	Logger *slog.Logger // nil discards

	tuning tuning
}

// tuning holds what only tests change. Zero fields mean the values of link.go.
type tuning struct {
	PingInterval time.Duration // how often a peer is asked for a sign of life, which it must give within the same time
	WriteTimeout time.Duration // how long a peer may take to accept a message
	MaxInFlight  int           // intents under way on one connection
	Transport    http.RoundTripper
}

func (t *tuning) withDefaults() {
	t.PingInterval = cmp.Or(t.PingInterval, pingInterval)
	t.WriteTimeout = cmp.Or(t.WriteTimeout, writeTimeout)
	t.MaxInFlight = cmp.Or(t.MaxInFlight, maxInFlight)
}

// Client sends intents and hand-overs to the processes that run tiles; it is an admission.Forwarder, and its
// Handover a tile.Seams.Handover. It keeps one connection to each process that it sends intents to, and makes it
// again when it breaks. Create one with NewClient, end it with Drain or Close. Safe for concurrent use.
type Client struct {
	cfg    Config
	http   *http.Client
	own    *http.Transport // nil if it was given
	counts counters
	life   context.Context
	end    context.CancelCauseFunc
	work   sync.WaitGroup // connections, and attempts to make one

	mu     sync.Mutex
	ending bool
	peers  map[string]*peer // by contact
}

// NewClient returns a client. It does no I/O. Errors: a *fence.ArgumentError.
func NewClient(cfg *Config) (*Client, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	client := &Client{cfg: c, peers: map[string]*peer{}}
	client.life, client.end = context.WithCancelCause(context.Background())
	if c.tuning.Transport == nil {
		client.own = &http.Transport{ // without a proxy
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 16, // for hand-overs
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
			TLSClientConfig:     c.TLS,
		}
		client.cfg.tuning.Transport = client.own
	}
	client.http = &http.Client{
		Transport: client.cfg.tuning.Transport,
		// A redirect on this level is no tile's, and following it would be a second submission.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, nil
}

func (c *Config) withDefaults() (Config, error) {
	d := setting.Of(c)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	d.tuning.withDefaults()
	return d, d.Keys.Validate()
}

// urlAt makes the URL of a path at a contact. Contacts are what other processes have announced.
func (c *Config) urlAt(contact, path string) (string, error) {
	if err := route.ValidateAddress(contact); err != nil {
		// Not the argument's error, which would be about the intent.
		return "", fmt.Errorf("the contact cannot be called: %v", err) //nolint:errorlint
	}
	if c.TLS != nil {
		return "https://" + contact + path, nil
	}
	return "http://" + contact + path, nil
}

// Forward sends an intent to the process at contact and waits for its outcome, which takes until the end of a tick;
// bound it by ctx, whose deadline travels along. The intent is sent at most once. Intents of other calls that come
// within about five milliseconds share its message.
//
// Errors: what the process's Submitter answered (*tile.RedirectError, *tile.CrossedError, *tile.UnresolvedError,
// tile.ErrOverloaded, *fence.ArgumentError); tile.ErrOverloaded also if too many intents are under way to the process;
// a *fence.ArgumentError for an intent that is too large to send; otherwise an *UnavailableError. That one matches
// fence.ErrNotApplied if the intent was never given to a connection, and fence.ErrUnknownOutcome if it was, and ctx
// or the connection ended before the answer came.
func (c *Client) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	type result struct {
		tile.Result
		err error
	}
	answered := make(chan result, 1)
	u, under := c.start(ctx, contact, &in, func(r tile.Result, err error) { answered <- result{r, err} })
	if u != nil {
		select {
		case r := <-answered:
			return r.Result, r.err
		case <-ctx.Done():
			u.leave(under, context.Cause(ctx))
		}
	}
	r := <-answered
	return r.Result, r.err
}

// Start sends an intent as Forward does, and returns when the intent is queued at a connection, for which it waits if
// one has to be made. done is called once, with what Forward would return, before Start returns or later. It must not
// block, so it must not call the client. No goroutine waits for the outcome: done is called within about 100 ms after
// the end of ctx or in.Deadline.
func (c *Client) Start(ctx context.Context, contact string, in tile.Intent, done func(tile.Result, error)) {
	c.start(ctx, contact, &in, done)
}

// start queues a call at the connection u. If it is nil, the call has been answered.
func (c *Client) start(
	ctx context.Context, contact string, in *tile.Intent, done func(tile.Result, error),
) (u *uplink, under *call) {
	body, err := encodeIntent(in)
	if err != nil {
		done(tile.Result{}, err)
		return nil, nil
	}
	under = &call{ctx: ctx, tile: in.Tile, intent: body, deadline: in.Deadline, done: done}
	if until, ok := ctx.Deadline(); ok && (under.deadline.IsZero() || until.Before(under.deadline)) {
		under.deadline = until
	}
	if u, err = c.submit(contact, under); err != nil {
		done(tile.Result{}, err)
		return nil, nil
	}
	return u, under
}

// submit queues a call on the connection to contact, which it makes if there is none.
func (c *Client) submit(contact string, under *call) (*uplink, error) {
	for {
		u, err := c.uplink(under, contact)
		if err == nil {
			err = u.submit(under)
		}
		switch {
		case errors.Is(err, errRetired): // it has just ended, and is replaced
		case err == nil, errors.Is(err, tile.ErrOverloaded):
			return u, err
		default:
			return nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied, Err: err}
		}
	}
}

// Drain refuses new intents, waits for the answers of those under way, and closes the connections. If ctx ends before,
// the other intents get an *UnavailableError, and the error is ctx's. Hand-overs are not waited for. It may be called
// again.
func (c *Client) Drain(ctx context.Context) error {
	c.mu.Lock()
	c.ending = true
	for _, p := range c.peers {
		if p.link != nil {
			p.link.retire()
		}
	}
	c.mu.Unlock()
	err := wait.Group(ctx, &c.work)
	if err != nil {
		err = errors.Join(errCut, err)
	}
	c.Close()
	c.work.Wait()
	return err
}

// Close closes the connections. Intents under way, and later ones, get an *UnavailableError. It may be called again.
func (c *Client) Close() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.end(errClosed)
	c.work.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

var errClosed = errors.New("the client was closed")

// Stats counts what a client did since it was made.
type Stats struct {
	Dialed   uint64 // connections made
	Failed   uint64 // attempts to make one that failed
	Broken   uint64 // connections that ended other than by Drain, of either side, or Close
	Messages uint64 // with intents, that were sent
	Intents  uint64 // in them
	Unknown  uint64 // intents that were sent on a connection that ended before their answer
}

type counters struct{ dialed, failed, broken, messages, intents, unknown atomic.Uint64 }

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (c *Client) Stats() Stats {
	n := &c.counts
	return Stats{Dialed: n.dialed.Load(), Failed: n.failed.Load(), Broken: n.broken.Load(), Messages: n.messages.Load(),
		Intents: n.intents.Load(), Unknown: n.unknown.Load()}
}
