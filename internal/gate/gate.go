// Package gate admits the connections of a relay's or gateway's clients. It counts connections of an address and of an
// actor, asks the game who the client is under a deadline, and lets no connection in while sessions are being ended.
//
// A server calls, in this order: Gate.Accept, before anything costs; Session.Identify, when the request is known to be
// a WebSocket handshake of an allowed origin; Session.Register, when the connection is there; and Session.Close at the
// end, whatever has happened. Identify gives the connection one of the server's places; how a full server shares them
// is with places.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
)

const (
	defaultTimeout  = 5 * time.Second
	defaultPerActor = 16
	maxToken        = 8 << 10 // bytes of a token in a refresh

	// What all /64 of an IPv6 /48 may have together, in what one of them may.
	blockConnections = 2
	blockHandshakes  = 4
)

// Errors of a connection that is not admitted.
var (
	ErrTooMany = errors.New("too many connections of this address or actor")
	ErrTimeout = errors.New("the game did not decide in time")
	ErrEnded   = errors.New("sessions were ended meanwhile")
	ErrRefresh = errors.New("the session cannot be refreshed so")
)

// Gate admits the connections of one server. All methods are safe for concurrent use.
type Gate struct {
	authenticate session.AuthenticateFunc
	limits       session.Limits
	base         context.Context // of the game's functions outside of requests; ends with Close
	close        context.CancelFunc

	mu         sync.RWMutex
	ends       uint64         // how often sessions were ended
	addresses  map[string]int // connections, handshakes under way included
	handshakes *handshakes
	accepting  int // handshakes under way
	places     places
}

// New returns the gate of a server for maxClients. A nil authenticate lets strangers in. Errors: a
// *fence.ArgumentError.
func New(authenticate session.AuthenticateFunc, limits session.Limits, maxClients int) (*Gate, error) {
	limits.Timeout = cmp.Or(limits.Timeout, defaultTimeout)
	limits.PerAddress = cmp.Or(limits.PerAddress, max(1, maxClients/4))
	limits.PerActor = cmp.Or(limits.PerActor, defaultPerActor)
	limit := func(field string, value any) error {
		return &fence.ArgumentError{Field: "Sessions." + field, Value: value, Want: "positive, or zero for the default"}
	}
	switch {
	case limits.Timeout < 0:
		return nil, limit("Timeout", limits.Timeout)
	case limits.PerAddress < 0:
		return nil, limit("PerAddress", limits.PerAddress)
	case limits.PerActor < 0:
		return nil, limit("PerActor", limits.PerActor)
	}
	if limits.Address == nil {
		limits.Address = peer
	}
	g := &Gate{authenticate: authenticate, limits: limits, addresses: map[string]int{},
		handshakes: newHandshakes(), places: newPlaces(maxClients)}
	g.base, g.close = context.WithCancel(context.Background())
	return g, nil
}

// Close ends the game's functions that run for connections.
func (g *Gate) Close() { g.close() }

// peer is the address of a request's peer; empty, which is not limited, for one that may be a load balancer.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	a, err := netip.ParseAddr(host)
	if a = a.Unmap(); err != nil || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return ""
	}
	return a.String()
}

// group is what of an address is counted: of IPv6 the /64, of which one host has all. block is the /48 that it is of,
// which one site may have; empty: an IPv4 address, or none.
func group(address string) (group, block string) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Unmap().Is4() {
		return address, ""
	}
	host, err1 := a.WithZone("").Prefix(64)
	site, err2 := a.WithZone("").Prefix(48)
	if err1 != nil || err2 != nil {
		return address, ""
	}
	return host.String(), site.String()
}

// Source is what a server counts as one address, for what is not a connection: of IPv6 the /64. It is empty for a peer
// that may be a load balancer.
func Source(r *http.Request) string {
	source, _ := group(peer(r))
	return source
}

// Session is one connection, from its handshake on.
type Session struct {
	gate    *Gate
	began   time.Time
	remote  string
	address string // empty: not counted
	block   string // likewise
	actor   string // set before it has a place
	seen    uint64 // Gate.ends before it was last authenticated
	who     atomic.Pointer[session.Identity]
	left    atomic.Bool

	// Guarded by the gate's mutex.
	placed bool   // it has one of the places
	shed   bool   // it had one, and was to make it for another one
	end    func() // ends its connection; nil: it is not admitted yet
}

// Accept counts a handshake. Errors: ErrTooMany; ErrFull if as many are under way as there are places.
func (g *Gate) Accept(r *http.Request) (*Session, error) {
	s := &Session{gate: g, began: time.Now(), remote: r.RemoteAddr}
	s.address, s.block = group(g.limits.Address(r))
	g.mu.Lock()
	defer g.mu.Unlock()
	per, now := g.limits.PerAddress, time.Now()
	if g.tooMany(s.address, per, per, now) || g.tooMany(s.block, blockConnections*per, blockHandshakes*per, now) {
		return nil, fmt.Errorf("%w: address %s", ErrTooMany, s.address)
	}
	if g.accepting >= g.places.most {
		return nil, fmt.Errorf("%w: %d handshakes are under way", ErrFull, g.accepting)
	}
	g.accepting++
	g.addresses[s.address]++
	g.addresses[s.block]++
	return s, nil
}

// tooMany counts a handshake of an address, and reports whether it is one too many, or has too many connections. The
// mutex is held.
func (g *Gate) tooMany(address string, connections, handshakes int, now time.Time) bool {
	return address != "" && (g.handshakes.count(address, now) > handshakes || g.addresses[address] >= connections)
}

// Identify asks the game who the client is, and gives the connection a place. Errors: ErrTimeout; ErrTooMany; ErrFull;
// the game's; a *fence.ArgumentError.
func (s *Session) Identify(r *http.Request) error {
	s.seen = s.gate.now()
	if s.gate.authenticate == nil {
		return s.enter("")
	}
	who, err := s.gate.ask(r.Context(), r)
	if err != nil {
		return err
	}
	if s.who.Load() != nil { // asked again
		if who.Actor != s.actor {
			return ErrEnded
		}
		s.who.Store(&who)
		return nil
	}
	if err = s.enter(who.Actor); err == nil {
		s.who.Store(&who)
	}
	return err
}

// enter gives the connection a place, once.
func (s *Session) enter(actor string) error {
	g := s.gate
	g.mu.Lock()
	if s.placed {
		g.mu.Unlock()
		return nil
	}
	s.actor = actor
	if actor != "" && g.places.actors.Held(s.holder()) >= g.limits.PerActor {
		g.mu.Unlock()
		return fmt.Errorf("%w: actor %q", ErrTooMany, actor)
	}
	ended, err := g.places.enter(s)
	if err == nil {
		g.accepting--
	}
	var end func()
	if ended != nil {
		end = ended.end
	}
	g.mu.Unlock()
	if end != nil {
		end()
	}
	return err
}

// ask calls the game's function.
func (g *Gate) ask(ctx context.Context, r *http.Request) (who session.Identity, err error) {
	err = g.Call(ctx, func(ctx context.Context) error {
		who, err = g.authenticate(r.WithContext(ctx))
		return err
	})
	if err == nil {
		err = who.Validate()
	}
	if err == nil && who.Expired(time.Now()) {
		err = session.ErrExpired
	}
	return who, err
}

// Call calls a function of the game under the deadline. One that panics has refused: it must not end all connections.
// Errors: ErrTimeout, or the function's.
func (g *Gate) Call(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, g.limits.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	err = f(ctx)
	if ctx.Err() != nil {
		return errors.Join(ErrTimeout, err)
	}
	return err
}

// Register calls register, after which the connection can be ended. If sessions were ended since the client was
// authenticated, the game is asked again before. From then on shed may be called, once and from any goroutine: the
// connection makes place for another one. It must not wait. Errors: ErrEnded, or those of Identify.
func (s *Session) Register(r *http.Request, register, shed func()) error {
	if err := s.gate.commit(s.seen, func() error { return s.Identify(r) }, register); err != nil {
		return err
	}
	s.gate.mu.Lock()
	s.end = shed
	s.gate.mu.Unlock()
	return nil
}

// Authorize calls check under the deadline, and commit if it has no error. If sessions were ended meanwhile, check is
// called again before. Errors: ErrEnded; ErrTimeout; check's.
func (s *Session) Authorize(check func(context.Context, session.Identity) error, commit func()) error {
	seen := s.gate.now()
	ask := func() error {
		return s.gate.Call(s.gate.base, func(ctx context.Context) error { return check(ctx, s.Identity()) })
	}
	if err := ask(); err != nil {
		return err
	}
	return s.gate.commit(seen, ask, commit)
}

// commitTries is how often the game is asked while sessions are being ended all the time.
const commitTries = 3

// commit calls do if no session was ended since seen, and asks again before if one was.
func (g *Gate) commit(seen uint64, again func() error, do func()) error {
	for range commitTries {
		if g.unchanged(seen, do) {
			return nil
		}
		seen = g.now()
		if err := again(); err != nil {
			return err
		}
	}
	return ErrEnded
}

func (g *Gate) unchanged(seen uint64, do func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.ends != seen {
		return false
	}
	do()
	return true
}

func (g *Gate) now() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.ends
}

// Ending must be called before the connections to be ended are looked for: a connection that the game let in before,
// and that is not among them yet, is asked about again.
func (g *Gate) Ending() {
	g.mu.Lock()
	g.ends++
	g.mu.Unlock()
}

// Refresh takes a new token. Errors: ErrTimeout; ErrRefresh; the game's.
func (s *Session) Refresh(token string) error {
	if s.gate.authenticate == nil || token == "" || len(token) > maxToken {
		return ErrRefresh
	}
	who, err := s.gate.ask(s.gate.base, &http.Request{Method: http.MethodGet, URL: &url.URL{}, RemoteAddr: s.remote,
		Header: session.WithToken(nil, token)})
	if err != nil {
		return err
	}
	if who.Actor != s.actor {
		return fmt.Errorf("%w: it names another actor", ErrRefresh)
	}
	s.who.Store(&who)
	return nil
}

// Identity is who the client is, as of the last refresh.
func (s *Session) Identity() session.Identity {
	if who := s.who.Load(); who != nil {
		return *who
	}
	return session.Identity{}
}

// Actor is the name of the connection's client, which does not change.
func (s *Session) Actor() string { return s.actor }

// Holder names what the connection's share of the server is counted by: its actor, or a stranger's address. It is
// empty for a stranger whose address is not known.
func (s *Session) Holder() string {
	if s.actor == "" && s.address == "" {
		return ""
	}
	return s.holder()
}

// Remote is the address of the connection's peer.
func (s *Session) Remote() string { return s.remote }

// Began is when the connection's handshake began, before the game was asked about it.
func (s *Session) Began() time.Time { return s.began }

// Expired reports whether the session is over.
func (s *Session) Expired(now time.Time) bool {
	who := s.who.Load()
	return who != nil && who.Expired(now)
}

// Remaining is how long the session lasts; zero: for ever.
func (s *Session) Remaining(now time.Time) time.Duration {
	who := s.Identity()
	if who.Expires.IsZero() {
		return 0
	}
	return max(who.Expires.Sub(now), time.Millisecond)
}

// Close no longer counts the connection. It may be called again.
func (s *Session) Close() {
	if s.left.Swap(true) {
		return
	}
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if !s.placed {
		g.accepting--
	}
	g.places.leave(s)
	less(g.addresses, s.address)
	less(g.addresses, s.block)
}

func less(counts map[string]int, name string) {
	if counts[name] > 1 {
		counts[name]--
		return
	}
	delete(counts, name)
}
