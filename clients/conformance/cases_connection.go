package main

import (
	"net/http"
	"time"

	"github.com/tilefence/tilefence/internal/relaypb"
)

var connectionCases = []testCase{
	{name: "reconnect", must: "position and floor are named, and a Sync without replace keeps the state",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(frame(h.batch("0:one")))
			s.sees(h.shown("0:one"))
			p.cut()
			s.hears("lost")
			p = s.arrives(viewPath)
			p.subscribes(h.holds())
			p.sends(h.missed(h.at, h.batch("0:missed")))
			s.sees(h.shown("0:missed"))
			s.goesOn(h, p)
		}},
	{name: "reconnect to nothing", must: "attempts come at growing distances, also if each is accepted and " +
		"closed at once",
		play: func(s *trial) {
			h, p := s.watched()
			came := make(chan time.Time, 256)
			s.answers(func(w http.ResponseWriter, r *http.Request) bool {
				came <- time.Now()
				if p := s.upgrade(w, r); p != nil {
					_ = p.ws.Close(relaypb.CloseTryLater, "no room")
				}
				return true
			})
			p.cut()
			first := s.tries(came)
			var last time.Time
			for range 4 {
				last = s.tries(came)
			}
			// At random between 125 and 250 ms at first, twice as much each time: 2 to 4 s in all.
			if took := last.Sub(first); took < 1500*time.Millisecond {
				s.fail("5 attempts within %v: each pause should be twice the one before", took)
			}
			s.answers(nil)
			p = s.arrives(viewPath)
			p.subscribes(h.holds())
		}},
	{name: "old relay", must: "if a relay does not take the subscription in the URL, it is sent as a message",
		play: func(s *trial) {
			s.answers(func(_ http.ResponseWriter, r *http.Request) bool {
				r.Header.Set("Old-Relay", "1")
				return false
			})
			h := newHistory()
			s.tell("join %s", h)
			s.tell("relay %s%s", s.base, viewPath)
			s.arrives(viewPath).subscribes(held{tile: h.TileID})
		}},
	{name: "silence", must: "after 2.5 intervals of the Heartbeat without a message the connection counts as lost",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(heartbeat(time.Second))
			s.quiet(2*time.Second, p)
			p.ends(s.patience)
			s.hears("lost")
			s.arrives(viewPath).subscribes(h.holds())
		}},
	{name: "heartbeats", must: "as long as Heartbeats come, the connection is kept", play: func(s *trial) {
		h, p := s.watched()
		for range 7 {
			p.sends(heartbeat(2 * time.Second))
			s.quiet(time.Second, p)
		}
		s.goesOn(h, p)
	}},
	{name: "silence from the beginning", slow: true, must: "a connection that brings nothing within 30 s is given up",
		play: func(s *trial) {
			h := newHistory()
			s.tell("join %s", h)
			s.tell("relay %s%s", s.base, viewPath)
			p := s.arrives(viewPath)
			p.subscribes(held{tile: h.TileID})
			s.quiet(20*time.Second, p)
			p.ends(20 * time.Second)
			s.arrives(viewPath).subscribes(held{tile: h.TileID})
		}},
	{name: "relay that leaves", must: "after a GoAway and a close with 1001 the client connects again",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(&relaypb.ServerMessage{
				Body: &relaypb.ServerMessage_GoAway{GoAway: &relaypb.GoAway{WithinMs: 1000}}})
			s.goesOn(h, p) // until it is closed
			p.closes(relaypb.CloseGoingAway, "stopping")
			s.hears("lost")
			s.arrives(viewPath).subscribes(h.holds())
		}},
	{name: "player who is refused", must: "after 401, or a close with 1008, there is no other attempt",
		play: func(s *trial) {
			_, p := s.watched()
			s.refusesForGood(p)
		}},
	{name: "relay without room", must: "after 503 or 429, or a close with 1013, the client tries again",
		play: func(s *trial) {
			h, p := s.watched()
			came := s.denies(http.StatusTooManyRequests, relaypb.CloseTryLater, "too many connections")
			p.cut()
			s.tries(came)
			s.tries(came)
			s.answers(nil)
			s.arrives(viewPath).subscribes(h.holds())
		}},
	{name: "session", must: "the token is in the handshake, and a new one is sent before the session is over",
		play: func(s *trial) {
			h := newHistory()
			s.tell("token first")
			s.tell("join %s", h)
			s.tell("relay %s%s", s.base, viewPath)
			p := s.arrives(viewPath)
			if p.token != "first" {
				s.fail("the handshake has the token %q, want %q", p.token, "first")
			}
			p.subscribes(held{tile: h.TileID})
			s.tell("token other")
			p.sends(session8s)
			if m := p.message(8*time.Second, "a Refresh"); m.GetRefresh().GetToken() != "other" {
				s.fail("want a Refresh with the token %q, got %v", "other", m)
			}
			p.sends(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_Session{Session: &relaypb.Session{}}})
			h.jump(3, 7)
			p.sends(h.scratch(h.at, "state"))
			s.sees(h.state("state"))
			s.quiet(2*time.Second, p)
		}},
	{name: "session that is over", must: "after a close with 4003 the client connects again, with a new token",
		play: func(s *trial) {
			s.tell("token first")
			h, p := s.watched()
			s.tell("token other")
			time.Sleep(100 * time.Millisecond) // until the adapter has read it
			p.closes(relaypb.CloseExpired, "the session has expired")
			p = s.arrives(viewPath)
			if p.token != "other" {
				s.fail("the handshake has the token %q, want %q", p.token, "other")
			}
			p.subscribes(h.holds())
		}},
}

// tries expects another attempt to connect.
func (s *trial) tries(came <-chan time.Time) (at time.Time) {
	select {
	case at = <-came:
	case <-time.After(s.patience):
		s.fail("the client has given up connecting")
	}
	return at
}

// refusesForGood ends a connection, refuses the player, and expects that the client accepts that.
func (s *trial) refusesForGood(p *peer) {
	came := s.denies(http.StatusUnauthorized, relaypb.ClosePolicy, "no valid token")
	p.cut()
	s.tries(came)
	s.hears("ended")
	select {
	case <-came:
		s.fail("the client has tried again")
	case <-time.After(3 * time.Second):
	}
}

var session8s = &relaypb.ServerMessage{
	Body: &relaypb.ServerMessage_Session{Session: &relaypb.Session{ExpiresInMs: 8000}}}
