package main

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// short is how long a client is given to do what it must not.
const short = 600 * time.Millisecond

func text(s string) string { return hex.EncodeToString([]byte(s)) }

// state is the line about a tile that starts over.
func (h *history) state(blob string) string { return "state " + h.String() + " 0:" + text(blob) }

// shown is the line about a batch that is applied.
func (h *history) shown(events ...string) string {
	line := "batch " + h.String()
	for _, e := range events {
		area, event, _ := strings.Cut(e, ":")
		line += " " + area + ":" + text(event)
	}
	return line
}

// watched begins most cases: the client is connected, and holds a tile at epoch 3.
func (s *trial) watched() (*history, *peer) {
	h := newHistory()
	s.tell("join %s", h)
	s.tell("relay %s%s", s.base, viewPath)
	p := s.arrives(viewPath)
	p.subscribes(held{tile: h.TileID})
	h.jump(3, 7)
	p.sends(h.scratch(h.at, "state"))
	s.sees(h.state("state"))
	return h, p
}

// goesOn shows that the client applies what follows.
func (s *trial) goesOn(h *history, p *peer) {
	p.sends(frame(h.batch("0:on")))
	s.sees(h.shown("0:on"))
}

var viewCases = []testCase{
	{name: "sync", must: "the state starts from the blob, then the tail is applied in order", play: func(s *trial) {
		h := newHistory()
		s.tell("join %s", h)
		s.tell("relay %s%s", s.base, viewPath)
		p := s.arrives(viewPath)
		p.subscribes(held{tile: h.TileID})
		h.jump(3, 7)
		from := h.at
		p.sends(h.scratch(from, "state", h.batch("0:move", "0:stop"), h.batch("0:bell")))
		s.sees(h.state("state"), h.shown("0:move", "0:stop"), h.shown("0:bell"))
		s.goesOn(h, p)
		s.quiet(short, p)
	}},
	{name: "sync of a new tile", must: "a tile without a history starts empty, and its first batch is applied",
		play: func(s *trial) {
			h := newHistory()
			s.tell("join %s", h)
			s.tell("relay %s%s", s.base, viewPath)
			p := s.arrives(viewPath)
			p.subscribes(held{tile: h.TileID})
			p.sends(&relaypb.ServerMessage{Tile: h.String(),
				Body: &relaypb.ServerMessage_Sync{Sync: &relaypb.Sync{Replace: true}}})
			s.sees(h.state(""))
			p.sends(frame(h.takeOver(1, "0:born")))
			s.sees(h.shown("0:born"))
		}},
	{name: "frames", must: "batches are applied in order, with the events of every area, also those without events",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(frame(h.batch("0:bell", "2:move", "2:stop", "200:far")), frame(h.batch()), frame(h.batch("9:late")))
			s.sees(h.shown("0:bell", "2:move", "2:stop", "200:far"), h.shown(), h.shown("9:late"))
			s.quiet(short, p)
		}},
	{name: "frame that came twice", must: "it is ignored, and so is an older one: no Resync", play: func(s *trial) {
		h, p := s.watched()
		one, two := h.batch("0:one"), h.batch("0:two")
		p.sends(frame(one), frame(one), frame(two), frame(one), frame(two))
		s.sees(h.shown("0:one"), h.shown("0:two"))
		s.quiet(short, p)
		s.goesOn(h, p)
	}},
	{name: "gap", must: "what does not follow is not applied; one Resync names position and floor; the tail is applied",
		play: func(s *trial) {
			h, p := s.watched()
			before := *h
			lost, next, later := h.batch("0:lost"), h.batch("0:next"), h.batch("0:later")
			p.sends(frame(next), frame(later))
			p.resyncs(before.holds())
			s.quiet(short, p) // one is enough
			p.sends(h.missed(before.at, lost, next, later))
			s.sees(h.shown("0:lost"), h.shown("0:next"), h.shown("0:later"))
			s.goesOn(h, p)
		}},
	{name: "gap, answered anew", must: "a Sync with replace drops the state and starts from its blob",
		play: func(s *trial) {
			h, p := s.watched()
			before := *h
			h.batch("0:lost")
			p.sends(frame(h.batch("0:next")))
			p.resyncs(before.holds())
			at := h.at
			p.sends(h.scratch(at, "anew", h.batch("0:tail")))
			s.sees(h.state("anew"), h.shown("0:tail"))
			s.goesOn(h, p)
		}},
	{name: "gap, without an answer", must: "the Resync is sent again after a few seconds, and not before",
		play: func(s *trial) {
			h, p := s.watched()
			before := *h
			h.batch("0:lost")
			p.sends(frame(h.batch("0:next")))
			p.resyncs(before.holds())
			for range 4 {
				p.sends(heartbeat(2 * time.Second))
				s.quiet(short, p)
			}
			stop := p.beating()
			defer stop()
			p.resyncsWithin(15*time.Second, before.holds())
		}},
	{name: "take-over", must: "the first batch of the next owner follows like any other; the floor rises to its epoch",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(frame(h.takeOver(4)), frame(h.batch("0:new")))
			s.sees(h.shown(), h.shown("0:new"))
			before := *h
			h.batch("0:lost")
			p.sends(frame(h.batch("0:next")))
			p.resyncs(before.holds()) // with floor 4
		}},
	{name: "another history", must: "equal numbers with another chain do not follow: not applied, but a Resync",
		play: func(s *trial) {
			h, p := s.watched()
			before := *h
			h.at.Chain++ // the same epoch and sequence, reached in another way
			p.sends(frame(h.batch("0:wrong")))
			p.resyncs(before.holds())
			s.quiet(short, p)
		}},
	{name: "rebase", must: "a frame of kind 2 is not applied, but asked about with a Resync", play: func(s *trial) {
		h, p := s.watched()
		before := *h
		e := h.batch()
		m := frame(e)
		m.GetFrame().Kind = 2
		p.sends(m)
		p.resyncs(before.holds())
		s.quiet(short, p)
		p.sends(h.scratch(h.at, "rebased"))
		s.sees(h.state("rebased"))
		s.goesOn(h, p)
	}},
	{name: "damage", must: "a payload that cannot be read is not shown; the tile is asked for anew",
		play: func(s *trial) {
			h, p := s.watched()
			before := *h
			m := frame(h.batch("0:broken"))
			m.GetFrame().Payload = []byte{0, 9, 1} // an area of nine bytes that has one
			p.sends(m)
			p.resyncs(before.holds())
			s.quiet(short, p)
			p.sends(h.scratch(h.at, "mended"))
			s.sees(h.state("mended"))
			s.goesOn(h, p)
		}},
	{name: "later release", must: "messages, fields and codes that the client does not know are ignored",
		play: func(s *trial) {
			h, p := s.watched()
			p.sendsNews()
			p.sends(h.refusal(99))
			s.goesOn(h, p)
			s.quiet(short, p)
		}},
	{name: "forbidden", must: "the refusal is shown, with its code, and nothing is asked again", play: func(s *trial) {
		h := newHistory()
		s.tell("join %s", h)
		s.tell("relay %s%s", s.base, viewPath)
		p := s.arrives(viewPath)
		p.subscribes(held{tile: h.TileID})
		p.sends(h.refusal(relaypb.Code_CODE_FORBIDDEN))
		s.hears("error CODE_FORBIDDEN")
		s.quiet(2*time.Second, p)
	}},
}

// beating sends Heartbeats until stop is called.
func (p *peer) beating() (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		b, _ := p.encoding.Append(nil, heartbeat(2*time.Second))
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			func() {
				defer func() { _ = recover() }() // the connection has ended, which the case notices
				p.write(b)
			}()
		}
	}()
	return func() { close(done); <-over }
}

// staleCases are about relays that are behind the client.
var staleCases = []testCase{
	{name: "frame of an old owner", must: "below the floor it is ignored: the state stays, and no Resync is sent",
		play: func(s *trial) {
			h, p := s.watched()
			old := *h
			p.sends(frame(h.takeOver(5, "0:new")))
			s.sees(h.shown("0:new"))
			p.sends(frame(old.batch("0:old")), frame(old.batch("0:older")))
			s.quiet(short, p)
			s.goesOn(h, p)
		}},
	{name: "relay behind", must: "a Sync below the floor is ignored; a Resync follows after a pause; a Sync that has " +
		"caught up is applied",
		play: func(s *trial) {
			h, p := s.watched()
			old := *h
			p.sends(frame(h.takeOver(5, "0:new")))
			s.sees(h.shown("0:new"))
			before := *h
			h.batch("0:lost")
			p.sends(frame(h.batch("0:next")))
			p.resyncs(before.holds())
			p.sends(old.scratch(old.at, "old"))
			s.quiet(50*time.Millisecond, p) // the pause: 125 to 250 ms
			p.resyncs(before.holds())
			p.sends(h.scratch(h.at, "caught-up"))
			s.sees(h.state("caught-up"))
			s.goesOn(h, p)
			s.quiet(short, p)
		}},
	{name: "relay that stays behind", must: "CODE_STALE is answered by a Resync with growing pauses, and after three " +
		"by " +
		"another connection, with position and floor",
		play: func(s *trial) {
			h, p := s.watched()
			p.sends(h.refusal(relaypb.Code_CODE_STALE))
			for range 2 {
				p.resyncs(h.holds())
				p.sends(h.refusal(relaypb.Code_CODE_STALE))
			}
			select {
			case m, open := <-p.in:
				if open {
					p.s.note("a third question: %s", p.show(m))
					p.sends(h.refusal(relaypb.Code_CODE_STALE))
				}
			case <-time.After(3 * time.Second):
			}
			p.ends(s.patience)
			p = s.arrives(viewPath)
			p.subscribes(h.holds())
			p.sends(h.missed(h.at))
			s.goesOn(h, p)
		}},
	{name: "epoch that never was", slow: true, must: "after half a minute of CODE_UNKNOWN_EPOCH, and not before, the " +
		"client forgets floor and position and asks for everything",
		play: func(s *trial) {
			h, p := s.watched()
			began := time.Now()
			p.sends(h.refusal(relaypb.Code_CODE_UNKNOWN_EPOCH))
			for {
				var floor uint64
				select {
				case b, open := <-p.in:
					m := &relaypb.ClientMessage{}
					switch {
					case !open:
						p = s.arrives(viewPath)
						continue
					case p.encoding.Decode(b, m) != nil:
						s.fail("the client sent what cannot be read")
					case m.GetResync() != nil:
						floor = m.GetResync().GetEpochFloor()
					default:
						for _, t := range m.GetSubscribe().GetHeld() {
							floor = max(t.GetEpochFloor(), t.GetPosition().GetEpoch())
						}
					}
				case <-time.After(20 * time.Second):
					s.fail("the client has given up asking")
				}
				if floor == 0 {
					break
				}
				if time.Since(began) > time.Minute {
					s.fail("after a minute the client still names the floor")
				}
				p.sends(h.refusal(relaypb.Code_CODE_UNKNOWN_EPOCH))
			}
			if past := time.Since(began); past < 29*time.Second {
				s.fail("the client forgot its floor after %v, want 30 s", past)
			}
			h.at = fence.Position{Epoch: 1, Seq: 2, Chain: 3}
			p.sends(h.scratch(h.at, "true"))
			s.sees(h.state("true"))
			s.goesOn(h, p)
		}},
}
