package redisfanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/wait"
)

// session is everything that serves subscriptions, from the first to the last. Its manager goroutine
// places channels on connections; each connection has two goroutines of its own.
//
// A channel is, guarded by session.mu, in one of three states:
//
//	unplaced  conn nil           the manager places it, not before retryAt
//	placed    conn set, not up   SSUBSCRIBE is under way; its answer leads to in force or unplaced
//	in force  conn set, up       until the connection ends, the slot moves, or the topology disagrees
type session struct {
	f      *Fanout
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // signals the manager that a channel is unplaced

	mu       sync.Mutex
	channels map[string]*channel
	conns    map[string]*conn    // by node address
	refused  map[string]*backoff // nodes that could not be connected to
	checked  time.Time           // when all placements were last compared with the topology
}

// channel is one channel and how many subscriptions share it.
type channel struct {
	name    string
	deliver func(data string) // hands a message to the subscriptions
	users   int

	conn     *conn
	up       chan struct{} // closed while in force
	inForce  bool
	lost     int           // how often it ceased to be in force
	changed  chan struct{} // closed, and replaced, when that happens
	disagree int           // successive looks at the topology that put it elsewhere
	retry    backoff
	err      error // what stood in the way last
}

// backoff spaces attempts.
type backoff struct {
	failures int
	until    time.Time
}

func (b *backoff) fail(now time.Time) {
	b.failures++
	b.until = now.Add(wait.Backoff(retryMin, retryMax, b.failures))
}

func newSession(f *Fanout) *session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{
		f: f, ctx: ctx, cancel: cancel,
		wake:     make(chan struct{}, 1),
		channels: map[string]*channel{},
		conns:    map[string]*conn{},
		refused:  map[string]*backoff{},
		checked:  time.Now(),
	}
}

func (s *session) start() { s.wg.Go(s.manage) }

func (s *session) end() {
	s.cancel()
	s.wg.Wait()
}

func (s *session) poke() { wait.Wake(s.wake) }

// retain counts one more user of a channel, whose messages go to deliver.
func (s *session) retain(name string, deliver func(data string)) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		c = &channel{name: name, deliver: deliver, up: make(chan struct{}), changed: make(chan struct{})}
		s.channels[name] = c
		s.poke()
	}
	c.users++
	return c
}

// release reports whether no channel is left.
func (s *session) release(c *channel) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(s.channels, c.name)
		if c.conn != nil {
			c.conn.leave(c)
		}
	}
	return len(s.channels) == 0
}

func (s *session) upOf(c *channel) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.up
}

// stateOf reports whether a channel is in force, how often it has been lost, and two channels of which one
// will be closed when either changes.
func (s *session) stateOf(c *channel) (inForce bool, lost int, up, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.inForce, c.lost, c.up, c.changed
}

func (s *session) errOf(c *channel) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.err
}

func (s *session) count() (channels, inForce, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.channels {
		if c.inForce {
			inForce++
		}
	}
	return len(s.channels), inForce, len(s.conns)
}

// manage places channels until the session ends.
func (s *session) manage() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.place())
	}
}

// place finds a connection for every unplaced channel that may be tried again, compares the placed ones
// with the topology when that is due, and returns after how long it wants to be called again.
func (s *session) place() time.Duration {
	now := time.Now()
	every := topologyInterval
	var look []*channel
	s.mu.Lock()
	all := now.Sub(s.checked) >= every
	if all {
		s.checked = now
	}
	for _, c := range s.channels {
		if c.conn == nil && !now.Before(c.retry.until) || c.conn != nil && all {
			look = append(look, c)
		}
	}
	s.mu.Unlock()
	if all {
		s.f.nodes.refresh(s.ctx)
	}
	for _, c := range look {
		// Not under the lock: the first call reads the slot table.
		ctx, cancel := context.WithTimeout(s.ctx, s.f.cfg.tuning.Timeout)
		node, err := s.f.nodes.master(ctx, c.name)
		cancel()
		s.mu.Lock()
		if err != nil {
			if c.conn == nil {
				c.unplace(err, now)
			}
		} else {
			s.assign(c, node, now)
		}
		s.mu.Unlock()
		if err != nil {
			s.f.nodes.reload(s.ctx)
		}
	}
	return s.untilNext(every)
}

// untilNext is the time until the next placement or check is due.
func (s *session) untilNext(every time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.checked.Add(every)
	for _, c := range s.channels {
		if c.conn == nil && c.retry.until.Before(next) {
			next = c.retry.until
		}
	}
	return max(time.Until(next), time.Millisecond)
}

// assign puts c onto node's connection, or leaves it where it is. The caller holds s.mu.
func (s *session) assign(c *channel, node *redis.Client, now time.Time) {
	addr := node.Options().Addr
	if s.channels[c.name] != c {
		return // released meanwhile
	}
	if c.conn != nil {
		if c.conn.addr == addr {
			c.disagree = 0
			return
		}
		// The slot table may come from a node that is itself behind: believe it the second time.
		if c.disagree++; c.disagree < 2 {
			return
		}
		// Leave before joining elsewhere. A message in between is lost; the other way round, two nodes
		// of one shard would deliver the same message at different times.
		c.conn.leave(c)
		c.unplace(errMoved, time.Time{})
	}
	if b := s.refused[addr]; b != nil && now.Before(b.until) {
		c.retry.until = b.until
		return
	}
	conn := s.conns[addr]
	if conn == nil {
		conn = newConn(s, node, addr)
		s.conns[addr] = conn
		s.wg.Go(conn.run)
	}
	c.disagree = 0
	conn.join(c)
}

var errMoved = errors.New("the channel's slot has moved")

// unplace takes c off its connection after a failure at now; the zero time lets it be placed again at
// once. The caller holds session.mu and sees to the connection's books.
func (c *channel) unplace(err error, now time.Time) {
	c.conn, c.err = nil, err
	if c.inForce {
		c.inForce = false
		c.lost++
		c.up = make(chan struct{})
		close(c.changed)
		c.changed = make(chan struct{})
	}
	if !now.IsZero() {
		c.retry.fail(now)
	}
}
