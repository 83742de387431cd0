package gatewayws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/tile"
)

// DialConfig holds the optional settings of a Client. Nil and the zero value are valid.
type DialConfig struct {
	Header http.Header // of the handshake: cookies, Authorization, Origin
	// Token gives the token of the handshake, which is sent as Authorization: Bearer, and new ones before the session
	// expires. ctx ends with the connection. Nil sends none.
	Token func(ctx context.Context) (string, error)

	// Told is called with each message that the game sends the player (Handler.Tell), one at a time. It must not block:
	// answers wait for it. Nil ignores them.
	Told func(message []byte)

	HTTPClient *http.Client // makes the handshake; nil means http.DefaultClient

	// Crossed is called when an answer says that the actor has left a tile, before Do returns, and also if no caller
	// waits for the answer any more. It must not block: it is the place to watch the new tile
	// (relayclient.Crossings.Crossed), and to send the next intents there. Nil does nothing.
	Crossed func(tile.Crossing)

	// MaxInFlight is how many intents may be under way; Do waits when there are more. It should not be above
	// the server's Config.MaxInFlight. Zero means 32.
	MaxInFlight int
}

// Request is an intent.
type Request struct {
	Tile fence.TileID // zero in a movement: where the gateway knows the actor to be
	Kind admission.Kind
	Body []byte // the game's own encoding, at most tile.MaxIntentBody bytes

	// Move is tile.Intent.MoveID, of a movement that must not happen twice: send it again with the same one.
	Move string

	// Of actions only; see admission.Action.
	Action string
	Asset  string
	Cost   admission.Amount
}

// Client is a connection to a gateway. Create one with Dial. Safe for concurrent use. It does not connect
// again by itself: dial another and repeat.
type Client struct {
	conn  *websocket.Conn
	cfg   DialConfig
	slots chan struct{} // one element for each intent under way
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	waiting map[string]*request
	held    time.Time     // until when movements are not sent, as an overloaded gateway asks
	err     error         // why the connection ended
	renewal *time.Timer   // gives a new token; nil: the session does not expire
	done    chan struct{} // closed when it did
}

// maxFrame bounds the length of the request's frame: JSON writes a byte of a name in at most 6.
func (r *Request) maxFrame() int {
	return 256 + 6*(len(r.Kind)+len(r.Action)+len(r.Asset)+len(r.Move)) + (len(r.Body)+2)/3*4
}

type result struct {
	answer Answer
	err    error
}

// request is one that is under way: until its answer comes, the connection ends, or the time for an answer is over.
type request struct {
	answered chan result // capacity 1
	late     *time.Timer
}

// answerTimeout is how long an answer may take: the gateway gives each intent intentTimeout, and each end may take
// writeTimeout to write.
const answerTimeout = intentTimeout + 2*writeTimeout

var errLate = fmt.Errorf("%w: no answer within %v", fence.ErrUnknownOutcome, answerTimeout)

// Dial connects to a Handler at a ws:// or wss:// URL. ctx bounds the handshake alone, which may take 30 s at most.
// Errors: a *fence.ArgumentError, or what the handshake met; they show no header, and of the URL neither user nor
// query. errors.Is finds admission.ErrDeclined if the server does not let the player in: do not try again with the same
// credentials.
func Dial(ctx context.Context, url string, cfg *DialConfig) (*Client, error) {
	c := setting.Of(cfg)
	var check setting.Check
	if setting.Least(&check, 1, "MaxInFlight", &c.MaxInFlight, defaultMaxInFlight); check.Err != nil {
		return nil, check.Err
	}
	header := c.Header
	if c.Token != nil {
		token, err := c.Token(ctx)
		if err != nil {
			return nil, fmt.Errorf("gatewayws: token: %w", err)
		}
		header = session.WithToken(header, token)
	}
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(limited, url, &websocket.DialOptions{ //nolint:bodyclose // as the package says
		HTTPClient: c.HTTPClient, HTTPHeader: header, Subprotocols: []string{Subprotocol},
	})
	if err != nil {
		err = fmt.Errorf("gatewayws: dial %s: %w", socket.Redact(url), socket.DialError(err, resp))
		if resp != nil && socket.Refused(resp.StatusCode) {
			err = fmt.Errorf("%w: %w", admission.ErrDeclined, err)
		}
		return nil, err
	}
	if conn.Subprotocol() != Subprotocol {
		_ = conn.Close(websocket.StatusProtocolError, "no subprotocol")
		return nil, fmt.Errorf("gatewayws: dial %s: the server does not speak %s", socket.Redact(url),
			Subprotocol)
	}
	client := &Client{conn: conn, cfg: c, slots: make(chan struct{}, c.MaxInFlight),
		waiting: map[string]*request{}, done: make(chan struct{})}
	client.ctx, client.stop = context.WithCancel(context.WithoutCancel(ctx))
	client.work.Go(client.read)
	client.work.Go(client.ping)
	return client, nil
}

// Outcome asks for the outcome of an action that this actor has sent before, on this connection or another, without
// sending it again. Errors: as Do; errors.Is finds admission.ErrUnknownAction if no such action was admitted, and
// admission.ErrPending while it has no outcome.
func (c *Client) Outcome(ctx context.Context, action string) (Answer, error) {
	return c.Do(ctx, Request{Kind: admission.Ask, Action: action})
}

// Where asks in which tile this actor is, as far as it is known; zero: it is not. Errors: as Do.
func (c *Client) Where(ctx context.Context) (fence.TileID, error) {
	a, err := c.do(ctx, intentFrame{Kind: kindWhere})
	if err != nil || a.where == nil {
		return 0, err
	}
	return a.where.Tile, nil
}

// Refresh gives the connection a new token for the same actor. With DialConfig.Token the client does it by itself.
// Errors: as Do; errors.Is finds admission.ErrDeclined if the server does not take the token, and the session goes on
// for as long as it would have.
func (c *Client) Refresh(ctx context.Context, token string) error {
	_, err := c.do(ctx, intentFrame{Kind: kindRefresh, Token: token})
	return err
}

// renew notes how long the session lasts, and gives a new token when three quarters of that have passed.
func (c *Client) renew(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewal != nil {
		c.renewal.Stop()
	}
	if c.cfg.Token == nil || left <= 0 || c.err != nil {
		return
	}
	c.renewal = time.AfterFunc(left*3/4, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil { // so the reader runs, and Close waits
			c.work.Go(func() { c.renewNow(left / 4) })
		}
	})
}

// renewNow gives the connection a new token. If that fails, it is tried again as long as some time is left.
func (c *Client) renewNow(left time.Duration) {
	token, err := c.cfg.Token(c.ctx)
	if err == nil {
		err = c.Refresh(c.ctx, token)
	}
	if err != nil && left > 100*time.Millisecond {
		c.renew(left)
	}
}

// Do sends an intent and waits for its answer, 25 s at most: a gateway takes 15 s for an intent. When ctx or that time
// ends first, or the connection, the intent may be resolved all the same; ask again with the same Action.
//
// A gateway or a tile that is overloaded says when to come back. Until then, and a random part of it later, movements
// are not sent: they get the same *Error at once. Actions are sent.
//
// Errors: a *fence.ArgumentError for a request too large to send; an *Error, which says whether to try again;
// ErrDisconnected; ctx's. Of an intent that may have been sent, errors.Is finds fence.ErrUnknownOutcome, too.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	// A message over the server's limit would end the connection for all its calls.
	if n := r.maxFrame(); n > maxFrame {
		return Answer{}, &fence.ArgumentError{Field: "request", Value: n,
			Want: fmt.Sprintf("at most %d bytes as JSON", maxFrame)}
	}
	f := intentFrame{Tile: r.Tile, Kind: r.Kind, Action: r.Action, Move: r.Move, Asset: r.Asset, Cost: r.Cost,
		Body: r.Body}
	if r.Kind != admission.Move {
		return c.do(ctx, f)
	}
	if left := c.holds(); left > 0 {
		return Answer{}, &Error{Code: CodeOverloaded, Message: "the gateway has asked to wait", Retryable: true,
			RetryAfter: left}
	}
	if deadline, ok := ctx.Deadline(); ok {
		f.Within = max(time.Until(deadline).Milliseconds(), 1)
	}
	a, err := c.do(ctx, f)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeOverloaded && e.RetryAfter > 0 {
		c.hold(e.RetryAfter)
	}
	return a, err
}

// holds is for how long no movement is to be sent.
func (c *Client) holds() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.held)
}

// hold holds movements for a time, and a random part of it longer: others were told the same.
func (c *Client) hold(d time.Duration) {
	until := time.Now().Add(d + rand.N(d/2+1))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.Before(until) {
		c.held = until
	}
}

func (c *Client) do(ctx context.Context, f intentFrame) (Answer, error) {
	select {
	case c.slots <- struct{}{}: // given back when the answer comes or is late, not when the caller loses patience
	case <-c.done:
		return Answer{}, c.disconnected()
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	id, answered, err := c.expect()
	if err != nil {
		<-c.slots
		return Answer{}, err
	}
	f.ID = id
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and numbers
		panic(err)
	}
	// The caller's context must not end in the middle of a frame, which would end the connection.
	limited, cancel := context.WithTimeout(c.ctx, writeTimeout)
	defer cancel()
	if err := c.conn.Write(limited, websocket.MessageText, b); err != nil { //nolint:contextcheck // as it should be
		_ = c.conn.CloseNow() // the reader answers all calls
	}
	select {
	case r := <-answered:
		return r.answer, r.err
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("gatewayws: %w before the answer: %w", fence.ErrUnknownOutcome, context.Cause(ctx))
	}
}

// expect registers a waiting caller under a new id.
func (c *Client) expect() (id string, answered <-chan result, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return "", nil, c.err
	}
	c.last++
	id = strconv.FormatUint(c.last, 10)
	r := &request{answered: make(chan result, 1)}
	r.late = time.AfterFunc(answerTimeout, func() { c.answer(id, result{err: fmt.Errorf("gatewayws: %w", errLate)}) })
	c.waiting[id] = r
	return id, r.answered, nil
}

// answer ends a request. It does nothing if that has been done.
func (c *Client) answer(id string, with result) {
	c.mu.Lock()
	r := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if r != nil {
		r.late.Stop()
		r.answered <- with
		<-c.slots
	}
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection; callers that wait get ErrDisconnected. It is safe to call twice.
func (c *Client) Close() error {
	err := c.conn.Close(websocket.StatusNormalClosure, "")
	c.stop()
	c.work.Wait()
	if errors.Is(err, net.ErrClosed) || websocket.CloseStatus(err) != -1 {
		return nil
	}
	return err
}

func (c *Client) disconnected() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) read() {
	for {
		_, b, err := c.conn.Read(c.ctx)
		if err != nil {
			c.end(err)
			return
		}
		id, answer, told, err := decodeAnswer(b)
		if told != nil {
			if c.cfg.Told != nil {
				c.cfg.Told(told)
			}
			continue
		}
		if answer.session != nil {
			c.renew(time.Duration(answer.session.ExpiresIn) * time.Millisecond)
		}
		crossing := answer.Crossing
		if e, ok := errors.AsType[*Error](err); ok {
			crossing = e.Crossing
		}
		if c.cfg.Crossed != nil && !crossing.IsZero() {
			c.cfg.Crossed(crossing)
		}
		c.answer(id, result{answer, err})
	}
}

// end answers all waiting calls.
func (c *Client) end(cause error) {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = fmt.Errorf("%w: %w", ErrDisconnected, cause)
	if c.renewal != nil {
		c.renewal.Stop()
	}
	for id, r := range c.waiting {
		delete(c.waiting, id)
		r.late.Stop()
		r.answered <- result{err: fmt.Errorf("%w: %w", fence.ErrUnknownOutcome, c.err)}
		<-c.slots
	}
	close(c.done)
}

func (c *Client) ping() {
	for wait.For(c.ctx, pingInterval) {
		limited, cancel := context.WithTimeout(c.ctx, pingInterval)
		err := c.conn.Ping(limited)
		cancel()
		if err != nil {
			_ = c.conn.CloseNow() // the reader reports why
			return
		}
	}
}
