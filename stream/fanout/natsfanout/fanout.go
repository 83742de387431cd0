package natsfanout

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// subjectOf is the name of a tile's subject. It is part of the wire contract (docs/wire.md).
func subjectOf(t fence.TileID) string { return "tilefence.tile." + t.String() + ".frames" }

// hintSubject is the name of a hint group's subject. It is part of the wire contract (docs/wire.md).
func hintSubject(group int) string { return "tilefence.hints." + strconv.Itoa(group) }

// presenceSubject is the name of a tile's subject for presence. It is part of the wire contract (docs/wire.md).
func presenceSubject(t fence.TileID) string { return "tilefence.tile." + t.String() + ".presence" }

// prefixOf begins the subjects of a world.
func prefixOf(w fence.World) string {
	if w.Name == "" {
		return ""
	}
	return w.Name + "."
}

// subject is the subject of a tile.
func (f *Fanout) subject(t fence.TileID) string { return f.prefix + subjectOf(t) }

// incoming is how many messages of all subscriptions may wait between the connection and the subscriptions' own
// buffers. They are passed on without waiting for anything, so it only bridges the scheduler's pauses.
const incoming = 1 << 16

// Fanout publishes to and subscribes from NATS. It implements the interfaces of package fanout but Audience, which core
// NATS has no means for.
type Fanout struct {
	cfg    Config
	prefix string // of every subject
	conn   *nats.Conn
	link   link
	local  *hub.Local // what comes by the connection goes to its subscriptions

	presence *hub.Hub[fence.TileID, uint64]
	world    identity
	messages chan *nats.Msg // of all subjects
	quit     chan struct{}
	done     sync.WaitGroup
	close    func()

	mu       sync.RWMutex
	subjects map[string]*subject
	lost     int // messages that the library dropped for subjects that are gone

	attempts rate.Sometimes // lines about servers that cannot be reached
	refused  atomic.Uint64
}

var (
	_ fanout.Publisher      = (*Fanout)(nil)
	_ fanout.Subscriber     = (*Fanout)(nil)
	_ fanout.HintPublisher  = (*Fanout)(nil)
	_ fanout.HintSubscriber = (*Fanout)(nil)

	_ fanout.PresencePublisher  = (*Fanout)(nil)
	_ fanout.PresenceSubscriber = (*Fanout)(nil)

	_ fence.WorldKeeper = (*Fanout)(nil)
)

// Open connects to one of the servers, each a URL such as nats://10.0.0.1:4222, and tries them all. If none can be
// reached it returns all the same and goes on trying; until then every call fails. Close must be called. A nil cfg
// means all defaults.
//
// Errors: a *fence.ArgumentError names what is missing, malformed or negative.
func Open(servers []string, cfg *Config) (*Fanout, error) {
	if len(servers) == 0 {
		return nil, &fence.ArgumentError{Field: "servers", Value: servers, Want: "the URL of a server at least"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fanout{cfg: c, prefix: prefixOf(c.World), messages: make(chan *nats.Msg, incoming), quit: make(chan struct{}),
		subjects: map[string]*subject{}, attempts: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
	f.world.window, f.world.badLines = worldWindow, rate.Sometimes{First: 1, Interval: time.Minute}
	if f.local, err = hub.NewLocal(0, c.Logger); err != nil {
		return nil, err
	}
	if f.presence, err = hub.New[fence.TileID, uint64](0, 0); err != nil {
		return nil, err
	}
	f.link.changed = make(chan struct{})
	closed := make(chan struct{})
	if f.conn, err = nats.Connect(strings.Join(servers, ","), f.options(closed)...); err != nil {
		return nil, &fence.ArgumentError{Field: "servers", Value: len(servers),
			Want: "URLs of NATS servers, nats://host:port, and valid options"}
	}
	if err := f.adopt(c.World.ID); err != nil { // it needs no connection
		f.conn.Close()
		return nil, err
	}
	f.done.Go(f.receive)
	f.close = sync.OnceFunc(func() {
		f.link.end()
		f.conn.Close()
		<-closed // every handler has returned
		close(f.quit)
		f.done.Wait()
	})
	return f, nil
}

// Close gives the connection up and waits until the Fanout's goroutines have ended. Nothing is left to be sent: every
// Publish that has returned was confirmed or has failed. Subscriptions that were not stopped get nothing more; their
// stop may still be called. It is safe to call twice.
func (f *Fanout) Close() { f.close() }

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (f *Fanout) Stats() Stats {
	s := Stats{TrafficStats: f.local.Stats(), Refused: f.refused.Load(),
		BadAnswers: f.world.badAnswers.Load()}
	s.Connected, s.Disconnects = f.link.state()
	f.mu.RLock()
	defer f.mu.RUnlock()
	s.Subjects = len(f.subjects)
	s.Dropped += uint64(f.lost)
	for _, c := range f.subjects {
		s.Dropped += uint64(c.overrun())
	}
	return s
}

// LimitError means that the servers are configured for smaller messages than a frame may be.
type LimitError struct {
	Server     string
	MaxPayload int64 // bytes, as the server has announced
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("NATS server %s takes messages of up to %d bytes; set its max_payload to %d or more",
		e.Server, e.MaxPayload, fence.MaxFrame)
}
