// Package door is what a relay and a gateway do alike when a player comes in: they count connections of an address and
// of an actor, ask the game who the player is under a deadline, and see to it that nobody slips in while sessions are
// being ended.
//
// A server calls, in this order: Door.Knock, before anything costs; Guest.Identify, when the request is known to be a
// WebSocket handshake of an allowed origin; Guest.Admit, when the connection is there; and Guest.Leave at the end,
// whatever has happened. Identify gives the guest one of the server's places; how a full server shares them is with
// places.
package door

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

// Errors of a guest who does not come in.
var (
	ErrCrowded = errors.New("too many connections of this address or actor")
	ErrLate    = errors.New("the game did not decide in time")
	ErrEnded   = errors.New("sessions were ended meanwhile")
	ErrRefresh = errors.New("the session cannot be refreshed so")
)

// Door is the entrance of one server. All methods are safe for concurrent use.
type Door struct {
	authenticate session.AuthenticateFunc
	limits       session.Limits
	base         context.Context // of the game's functions outside of requests; ends with Close
	close        context.CancelFunc

	mu        sync.RWMutex
	ends      uint64         // how often sessions were ended
	addresses map[string]int // connections, handshakes under way included
	knocks    *knocks
	knocking  int // handshakes under way
	places    places
}

// New returns the entrance of a server for maxClients. A nil authenticate lets strangers in. Errors: a
// *fence.ArgumentError.
func New(authenticate session.AuthenticateFunc, limits session.Limits, maxClients int) (*Door, error) {
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
	d := &Door{authenticate: authenticate, limits: limits, addresses: map[string]int{},
		knocks: newKnocks(), places: newPlaces(maxClients)}
	d.base, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the game's functions that run for connections.
func (d *Door) Close() { d.close() }

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

// Guest is one connection, from its handshake on.
type Guest struct {
	door    *Door
	remote  string
	address string // empty: not counted
	block   string // likewise
	actor   string // set before it has a place
	seen    uint64 // Door.ends before it was last authenticated
	who     atomic.Pointer[session.Identity]
	left    atomic.Bool

	// Guarded by the door's mutex.
	placed bool   // it has one of the places
	shed   bool   // it had one, and was to make it for another guest
	end    func() // ends its connection; nil: it is not admitted yet
}

// Knock counts a handshake. Errors: ErrCrowded; ErrFull if as many are under way as there are places.
func (d *Door) Knock(r *http.Request) (*Guest, error) {
	g := &Guest{door: d, remote: r.RemoteAddr}
	g.address, g.block = group(d.limits.Address(r))
	d.mu.Lock()
	defer d.mu.Unlock()
	per, now := d.limits.PerAddress, time.Now()
	if d.crowded(g.address, per, per, now) || d.crowded(g.block, blockConnections*per, blockHandshakes*per, now) {
		return nil, fmt.Errorf("%w: address %s", ErrCrowded, g.address)
	}
	if d.knocking >= d.places.most {
		return nil, fmt.Errorf("%w: %d handshakes are under way", ErrFull, d.knocking)
	}
	d.knocking++
	d.addresses[g.address]++
	d.addresses[g.block]++
	return g, nil
}

// crowded counts a handshake of an address, and reports whether it is one too many, or has too many connections. The
// mutex is held.
func (d *Door) crowded(address string, connections, handshakes int, now time.Time) bool {
	return address != "" && (d.knocks.count(address, now) > handshakes || d.addresses[address] >= connections)
}

// Identify asks the game who the guest is, and gives the guest a place. Errors: ErrLate; ErrCrowded; ErrFull; the
// game's; a *fence.ArgumentError.
func (g *Guest) Identify(r *http.Request) error {
	g.seen = g.door.now()
	if g.door.authenticate == nil {
		return g.enter("")
	}
	who, err := g.door.ask(r.Context(), r)
	if err != nil {
		return err
	}
	if g.who.Load() != nil { // asked again
		if who.Actor != g.actor {
			return ErrEnded
		}
		g.who.Store(&who)
		return nil
	}
	if err = g.enter(who.Actor); err == nil {
		g.who.Store(&who)
	}
	return err
}

// enter gives the guest a place, once.
func (g *Guest) enter(actor string) error {
	d := g.door
	d.mu.Lock()
	if g.placed {
		d.mu.Unlock()
		return nil
	}
	g.actor = actor
	if actor != "" && d.places.actors.Held(g.holder()) >= d.limits.PerActor {
		d.mu.Unlock()
		return fmt.Errorf("%w: actor %q", ErrCrowded, actor)
	}
	ended, err := d.places.enter(g)
	if err == nil {
		d.knocking--
	}
	var end func()
	if ended != nil {
		end = ended.end
	}
	d.mu.Unlock()
	if end != nil {
		end()
	}
	return err
}

// ask calls the game's function.
func (d *Door) ask(ctx context.Context, r *http.Request) (who session.Identity, err error) {
	err = d.Call(ctx, func(ctx context.Context) error {
		who, err = d.authenticate(r.WithContext(ctx))
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
// Errors: ErrLate, or the function's.
func (d *Door) Call(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d.limits.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	err = f(ctx)
	if ctx.Err() != nil {
		return errors.Join(ErrLate, err)
	}
	return err
}

// Admit calls register, which makes the connection one that can be ended. If sessions were ended since the guest was
// authenticated, the game is asked again before. From then on shed may be called, once and from any goroutine: the
// connection makes place for another guest. It must not wait. Errors: ErrEnded, or those of Identify.
func (g *Guest) Admit(r *http.Request, register, shed func()) error {
	if err := g.door.commit(g.seen, func() error { return g.Identify(r) }, register); err != nil {
		return err
	}
	g.door.mu.Lock()
	g.end = shed
	g.door.mu.Unlock()
	return nil
}

// Authorize calls check under the deadline, and commit if it has no error. If sessions were ended meanwhile, check is
// called again before. Errors: ErrEnded; ErrLate; check's.
func (g *Guest) Authorize(check func(context.Context, session.Identity) error, commit func()) error {
	seen := g.door.now()
	ask := func() error {
		return g.door.Call(g.door.base, func(ctx context.Context) error { return check(ctx, g.Who()) })
	}
	if err := ask(); err != nil {
		return err
	}
	return g.door.commit(seen, ask, commit)
}

// commitTries is how often the game is asked while sessions are being ended all the time.
const commitTries = 3

// commit calls do if no session was ended since seen, and asks again before if one was.
func (d *Door) commit(seen uint64, again func() error, do func()) error {
	for range commitTries {
		if d.unchanged(seen, do) {
			return nil
		}
		seen = d.now()
		if err := again(); err != nil {
			return err
		}
	}
	return ErrEnded
}

func (d *Door) unchanged(seen uint64, do func()) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.ends != seen {
		return false
	}
	do()
	return true
}

func (d *Door) now() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.ends
}

// Ending must be called before the connections to be ended are looked for: a guest that the game let in before, and
// that is not among them yet, is asked about again.
func (d *Door) Ending() {
	d.mu.Lock()
	d.ends++
	d.mu.Unlock()
}

// Refresh takes a new token. Errors: ErrLate; ErrRefresh; the game's.
func (g *Guest) Refresh(token string) error {
	if g.door.authenticate == nil || token == "" || len(token) > maxToken {
		return ErrRefresh
	}
	who, err := g.door.ask(g.door.base, &http.Request{Method: http.MethodGet, URL: &url.URL{}, RemoteAddr: g.remote,
		Header: session.WithToken(nil, token)})
	if err != nil {
		return err
	}
	if who.Actor != g.actor {
		return fmt.Errorf("%w: it names another actor", ErrRefresh)
	}
	g.who.Store(&who)
	return nil
}

// Who is the identity, as of the last refresh.
func (g *Guest) Who() session.Identity {
	if who := g.who.Load(); who != nil {
		return *who
	}
	return session.Identity{}
}

// Actor is the guest's name, which does not change.
func (g *Guest) Actor() string { return g.actor }

// Holder names what the guest's share of the server is counted by: its actor, or a stranger's address. It is empty for
// a stranger whose address is not known.
func (g *Guest) Holder() string {
	if g.actor == "" && g.address == "" {
		return ""
	}
	return g.holder()
}

// Remote is the address of the guest's peer.
func (g *Guest) Remote() string { return g.remote }

// Expired reports whether the session is over.
func (g *Guest) Expired(now time.Time) bool {
	who := g.who.Load()
	return who != nil && who.Expired(now)
}

// Left is how long the session lasts; zero: for ever.
func (g *Guest) Left(now time.Time) time.Duration {
	who := g.Who()
	if who.Expires.IsZero() {
		return 0
	}
	return max(who.Expires.Sub(now), time.Millisecond)
}

// Leave counts the guest out. It may be called again.
func (g *Guest) Leave() {
	if g.left.Swap(true) {
		return
	}
	d := g.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if !g.placed {
		d.knocking--
	}
	d.places.leave(g)
	less(d.addresses, g.address)
	less(d.addresses, g.block)
}

func less(counts map[string]int, name string) {
	if counts[name] > 1 {
		counts[name]--
		return
	}
	delete(counts, name)
}
