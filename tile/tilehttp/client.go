package tilehttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
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
	// URL is where a contact takes intents. Nil means http://<contact><Path>. An error is that of Forward.
	URL func(contact string) (string, error)

	// HandoverURL is where a contact takes hand-overs. Nil means http://<contact><HandoverPath>. An error is
	// that of Handover.
	HandoverURL func(contact string) (string, error)

	// Transport sends the requests. Nil makes one with the settings below, which uses no proxy. One that is
	// given must not repeat requests by itself, and Close leaves it alone.
	Transport http.RoundTripper

	// MaxIdlePerContact is how many connections to a contact are kept open when idle. Every intent that
	// waits for its tick holds one: at 1,000 intents a second and 2 ticks a second it is 250 on average,
	// and twice that at the end of a tick. Zero means 1,024.
	MaxIdlePerContact int
	// IdleTimeout is how long an idle connection is kept. It should be shorter than the server's. Zero means
	// 60 s.
	IdleTimeout time.Duration
	// DialTimeout bounds the making of a connection. Zero means 1 s.
	DialTimeout time.Duration
}

// Client sends intents and hand-overs to the processes that run tiles; it is an admission.Forwarder, and its
// Handover a tile.Config.Handover. Create one with NewClient. Safe for concurrent use.
type Client struct {
	url         func(string) (string, error)
	handoverURL func(string) (string, error)
	http        *http.Client
	own         *http.Transport // nil if it was given
}

// NewClient returns a client. It does no I/O. Errors: a *fence.ArgumentError.
func NewClient(cfg *Config) (*Client, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.URL == nil {
		c.URL = func(contact string) (string, error) { return "http://" + contact + Path, nil }
	}
	if c.HandoverURL == nil {
		c.HandoverURL = func(contact string) (string, error) { return "http://" + contact + HandoverPath, nil }
	}
	c.MaxIdlePerContact = cmp.Or(c.MaxIdlePerContact, 1024)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	c.DialTimeout = cmp.Or(c.DialTimeout, time.Second)
	switch {
	case c.MaxIdlePerContact < 0:
		return nil, &fence.ArgumentError{Field: "MaxIdlePerContact", Value: c.MaxIdlePerContact,
			Want: "at least 1, or zero for 1024"}
	case c.IdleTimeout < 0:
		return nil, &fence.ArgumentError{Field: "IdleTimeout", Value: c.IdleTimeout,
			Want: "a duration, or zero for 60s"}
	case c.DialTimeout < 0:
		return nil, &fence.ArgumentError{Field: "DialTimeout", Value: c.DialTimeout, Want: "a duration, or zero for 1s"}
	}
	client := &Client{url: c.URL, handoverURL: c.HandoverURL}
	transport := c.Transport
	if transport == nil {
		client.own = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: c.DialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConnsPerHost: c.MaxIdlePerContact,
			IdleConnTimeout:     c.IdleTimeout,
			DisableCompression:  true,
		}
		transport = client.own
	}
	client.http = &http.Client{
		Transport: transport,
		// A redirect on this level is no tile's, and following it would be a second submission.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, nil
}

// Close closes idle connections. Requests under way go on.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Forward sends an intent to the process at contact and waits for its outcome, which takes until the end
// of a tick; bound it by ctx. The intent is sent at most once.
//
// Errors: what the process's Submitter answered (*tile.RedirectError, *tile.UnresolvedError,
// tile.ErrOverloaded, *fence.ArgumentError), or an *UnavailableError.
func (c *Client) Forward(ctx context.Context, contact string, in tile.Intent) (stream.Outcome, error) {
	body, err := encodeIntent(&in)
	if err != nil {
		return 0, err
	}
	status, b, err := c.post(ctx, contact, c.url, body)
	if err != nil {
		return 0, err
	}
	return c.judge(contact, status, b, &in)
}

// post sends a request once and reads the whole answer. Its error is an *UnavailableError.
func (c *Client) post(
	ctx context.Context, contact string, urlOf func(string) (string, error), body []byte,
) (status int, b []byte, err error) {
	url, err := urlOf(contact)
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrNotApplied, Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: sent(err), Err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // what was read is checked by itself
	// Read to the end, or the connection could not be used again.
	b, err = io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil || len(b) > maxReply {
		return 0, nil, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome,
			Err: errors.Join(errNotOurs, err)}
	}
	return resp.StatusCode, b, nil
}

func (c *Client) judge(contact string, status int, b []byte, in *tile.Intent) (stream.Outcome, error) {
	outcome, err := decodeReply(b, in)
	for _, known := range []error{tile.ErrRedirect, tile.ErrUnresolved, tile.ErrOverloaded, fence.ErrInvalidArgument} {
		if errors.Is(err, known) {
			return 0, err
		}
	}
	if err != nil {
		return 0, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome,
			Err: fmt.Errorf("status %d: %w", status, err)}
	}
	return outcome, nil
}

// sent reports whether a failed request may have been received: not if there was no connection.
// The transport sends a POST on another connection only when it has written nothing on the first.
func sent(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}
