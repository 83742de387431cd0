package redisfanout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/wait"
)

// conn is one subscribing connection to one node, given up at its first error. A writer goroutine sends
// commands and pings; a reader goroutine takes the answers and messages.
//
// Redis answers SSUBSCRIBE and SUNSUBSCRIBE in order, but a refusal does not name its channel, and a
// channel is also unsubscribed unasked when its slot moves. So the connection keeps account of what it
// has asked for.
type conn struct {
	s     *session
	addr  string
	ps    *redis.PubSub
	wake  chan struct{} // signals the writer that there is a command
	heard atomic.Int64  // nanoseconds of uptime at the last sign of life
	began time.Time

	// Guarded by session.mu.
	channels map[string]*channel
	todo     []command
	asked    []command      // sent and not answered, in order
	open     map[string]int // by channel, how many commands are queued or not answered
	dead     bool
}

// command is one SSUBSCRIBE or SUNSUBSCRIBE of one channel: several may only share a command if they
// share a slot.
type command struct {
	channel string
	join    bool
}

var errSilent = errors.New("no answer to pings")

func newConn(s *session, node *redis.Client, addr string) *conn {
	return &conn{
		s: s, addr: addr,
		ps:       node.SSubscribe(s.ctx), // without channels this does not connect
		wake:     make(chan struct{}, 1),
		began:    time.Now(),
		channels: map[string]*channel{},
		open:     map[string]int{},
	}
}

// join puts c onto the connection. The caller holds session.mu.
func (k *conn) join(c *channel) {
	c.conn = k
	k.channels[c.name] = c
	k.ask(command{channel: c.name, join: true})
}

// leave takes c off the connection. The caller holds session.mu.
func (k *conn) leave(c *channel) {
	c.conn = nil
	delete(k.channels, c.name)
	k.ask(command{channel: c.name})
}

func (k *conn) ask(cmd command) {
	k.open[cmd.channel]++
	k.todo = append(k.todo, cmd)
	wait.Wake(k.wake)
}

// run is the writer; it returns when the connection is dead and the reader has ended.
func (k *conn) run() {
	ping := time.NewTicker(k.s.f.cfg.tuning.PingInterval)
	defer ping.Stop()
	if err := k.ps.Ping(k.s.ctx); err != nil { // connects
		k.die(fmt.Errorf("connect: %w", err))
		return
	}
	k.alive()
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		k.die(k.read())
	}()
	k.die(k.write(ping.C))
	<-readerDone
}

func (k *conn) write(ping <-chan time.Time) error {
	allowed := silentPings * k.s.f.cfg.tuning.PingInterval
	silent := time.NewTimer(allowed)
	defer silent.Stop()
	for {
		select {
		case <-k.s.ctx.Done():
			return k.s.ctx.Err()
		case <-k.wake:
			if err := k.sendAll(); err != nil {
				return err
			}
		case <-silent.C:
			left := allowed - k.silence()
			if left <= 0 {
				return errSilent
			}
			silent.Reset(left)
		case <-ping:
			if err := k.ps.Ping(k.s.ctx); err != nil {
				return err
			}
		}
	}
}

func (k *conn) sendAll() error {
	k.s.mu.Lock()
	todo := k.todo
	k.todo = nil
	k.asked = append(k.asked, todo...)
	k.s.mu.Unlock()
	for _, cmd := range todo {
		send := k.ps.SUnsubscribe
		if cmd.join {
			send = k.ps.SSubscribe
		}
		if err := send(k.s.ctx, cmd.channel); err != nil {
			return err
		}
	}
	return nil
}

// read handles what arrives until the connection breaks.
func (k *conn) read() error {
	for {
		got, err := k.ps.Receive(k.s.ctx)
		if err != nil {
			if !k.refusal(err) {
				return err
			}
			continue
		}
		k.alive()
		switch m := got.(type) {
		case *redis.Message:
			k.deliver(m)
		case *redis.Subscription:
			k.confirm(m)
		}
	}
}

func (k *conn) deliver(m *redis.Message) {
	k.s.mu.Lock()
	c := k.channels[m.Channel]
	k.s.mu.Unlock()
	k.s.f.local.Received.Add(1)
	if c == nil {
		return // on its way out
	}
	c.deliver(m.Payload)
}

// confirm books the answer to a command, or the news that a slot has moved away.
func (k *conn) confirm(m *redis.Subscription) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	asked := k.answered(command{channel: m.Channel, join: m.Kind == "ssubscribe"})
	settled := k.settled(m.Channel)
	c := k.channels[m.Channel]
	switch {
	case c == nil || !settled:
		// No subscription waits for it, or a later command decides.
	case m.Kind == "ssubscribe" && !c.inForce:
		c.inForce, c.err, c.retry = true, nil, backoff{}
		close(c.up)
		delete(k.s.refused, k.addr)
	case m.Kind == "sunsubscribe" && !asked:
		k.lose(c, errMoved)
	}
}

// refusal books an error reply, and is false if err means that the connection is broken.
func (k *conn) refusal(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	// For these two the library has replaced the connection under us.
	if strings.HasPrefix(reply.Error(), "READONLY") || strings.HasSuffix(reply.Error(), " "+k.addr) {
		return false
	}
	k.alive()
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if len(k.asked) == 0 {
		return false // an answer to nothing we asked
	}
	cmd := k.asked[0]
	k.answered(cmd)
	settled := k.settled(cmd.channel)
	if c := k.channels[cmd.channel]; cmd.join && c != nil && settled {
		k.lose(c, err)
	}
	return true
}

// lose takes c off the connection because the node no longer serves it. The caller holds session.mu.
func (k *conn) lose(c *channel, err error) {
	delete(k.channels, c.name)
	c.unplace(err, time.Now())
	k.s.f.nodes.reload(k.s.ctx)
	k.s.poke()
}

// answered removes the first such command, and is false if it was never sent. The caller holds
// session.mu.
func (k *conn) answered(cmd command) bool {
	i := slices.Index(k.asked, cmd)
	if i < 0 {
		return false
	}
	if i == 0 { // the rule
		k.asked = k.asked[1:]
	} else {
		k.asked = slices.Delete(k.asked, i, i+1)
	}
	k.open[cmd.channel]--
	return true
}

// settled reports whether nothing about the channel is queued or unanswered. The caller holds session.mu.
func (k *conn) settled(name string) bool {
	n := k.open[name]
	if n == 0 {
		delete(k.open, name)
	}
	return n == 0
}

// die gives the connection up: its channels are to be placed again. Only the first call counts.
func (k *conn) die(err error) {
	now := time.Now()
	s := k.s
	s.mu.Lock()
	if k.dead {
		s.mu.Unlock()
		return
	}
	k.dead = true
	if s.conns[k.addr] == k {
		delete(s.conns, k.addr)
	}
	b := s.refused[k.addr]
	if b == nil {
		b = &backoff{}
		s.refused[k.addr] = b
	}
	b.fail(now)
	lost := len(k.channels)
	for _, c := range k.channels {
		c.unplace(err, time.Time{})
		c.retry.until = b.until
	}
	k.channels = map[string]*channel{}
	s.mu.Unlock()

	_ = k.ps.Close() // its error is that it is closed
	if s.ctx.Err() != nil {
		return
	}
	s.f.disconnects.Add(1)
	s.f.losses.Do(func() {
		s.f.cfg.Logger.Warn("a subscribing connection to Redis was lost; its channels are subscribed anew",
			"addr", k.addr, "channels", lost, "error", err)
	})
	s.f.nodes.reload(s.ctx)
	s.poke()
}

func (k *conn) alive() { k.heard.Store(int64(time.Since(k.began))) }

func (k *conn) silence() time.Duration {
	return time.Since(k.began) - time.Duration(k.heard.Load())
}
