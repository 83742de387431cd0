package main

import (
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

const second fence.TileID = 0x85283447fffffff

// tileCases are about tiles that come and go on one connection.
var tileCases = []testCase{
	{name: "two tiles", must: "a tile joined later is subscribed on the open connection; each has its own position",
		play: func(s *trial) {
			h, p := s.watched()
			other := &history{TileID: second}
			s.tell("join %s", other)
			p.subscribes(held{tile: second})
			other.jump(9, 90)
			p.sends(frame(h.batch("0:one")), other.scratch(other.at, "other"), frame(h.batch("0:two")),
				frame(other.batch("0:else")))
			s.sees(h.shown("0:one"), other.state("other"), h.shown("0:two"), other.shown("0:else"))
			before := *other
			other.batch("0:lost")
			p.sends(frame(other.batch("0:next")), frame(h.batch("0:three"))) // a gap of one is none of the other
			s.sees(h.shown("0:three"))
			p.resyncs(before.holds())
		}},
	{name: "tile that is left", must: "an Unsubscribe is sent; what still comes of the tile is not shown",
		play: func(s *trial) {
			h, p := s.watched()
			s.tell("leave %s", h)
			p.unsubscribes(h)
			p.sends(frame(h.batch("0:late")))
			s.quiet(short, p)
		}},
	{name: "tile that is joined again", must: "it is subscribed without a position, and starts over",
		play: func(s *trial) {
			h, p := s.watched()
			s.tell("leave %s", h)
			p.unsubscribes(h)
			s.tell("join %s", h)
			m := p.message(p.s.patience, "a Subscribe").GetSubscribe()
			var got []held // a client may keep the floor, or forget it
			for _, t := range m.GetTiles() {
				got = append(got, toHeld(t, nil, 0, nil))
			}
			for _, t := range m.GetHeld() {
				got = append(got, toHeld(t.GetTile(), t.GetPosition(), t.GetEpochFloor(), t.GetAreas()))
			}
			if len(got) != 1 || !got[0].at.IsZero() || got[0].floor > h.at.Epoch {
				s.fail("want a Subscribe of %s without a position, got %v", h, got)
			}
			p.sends(h.missed(h.at, h.batch("0:late"))) // of the first subscription
			s.quiet(short, p)
			p.sends(h.scratch(h.at, "again"))
			s.sees(h.state("again"))
			s.goesOn(h, p)
		}},
	{name: "tile joined in between", must: "while there is no connection it is noted, and subscribed with the next one",
		play: func(s *trial) {
			h, p := s.watched()
			came := s.denies(503, 1013, "later")
			p.cut()
			s.hears("lost")
			s.tries(came)
			s.tell("join %s", second)
			time.Sleep(100 * time.Millisecond) // until the adapter has read it
			s.answers(nil)
			p = s.arrives(viewPath)
			p.subscribes(h.holds(), held{tile: second})
		}},
}

// divided is the blob of a divided tile: its areas, and the state of each.
func divided(parts ...string) string {
	var list []byte
	for _, p := range parts {
		area, state := areaOf(p)
		list = fence.AppendPart(list, area, []byte(state))
	}
	return string(list)
}

func areaOf(part string) (fence.Area, string) {
	name, content, _ := strings.Cut(part, ":")
	var area fence.Area
	for _, digit := range name {
		area = 10*area + fence.Area(digit-'0')
	}
	return area, content
}

// part changes a Sync to one of some areas.
func part(m *relaypb.ServerMessage, watch uint32, areas ...uint32) *relaypb.ServerMessage {
	m.GetSync().Areas, m.GetSync().Watch, m.GetSync().Divided = areas, watch, true
	return m
}

// opens changes a Sync from scratch to one that opens areas at the position held.
func opens(m *relaypb.ServerMessage) *relaypb.ServerMessage {
	m.GetSync().Replace, m.GetSync().Opens = false, true
	return m
}

// partly begins the cases about areas: of 0, 2, 5 and 9 the client watches 0 and 2.
func (s *trial) partly() (*history, *peer) {
	h := newHistory()
	s.tell("join %s 0,2,5,9 0,2", h)
	s.tell("relay %s%s", s.base, viewPath)
	p := s.arrives(viewPath)
	p.subscribes(held{tile: h.TileID, areas: []uint32{0, 2}})
	h.jump(3, 7)
	p.sends(part(h.scratch(h.at, divided("0:all", "2:two")), 0, 0, 2))
	s.sees("state " + h.String() + " 0:" + text("all") + " 2:" + text("two"))
	return h, p
}

// opened is the line about an area that is watched newly.
func (h *history) opened(area, state string) string {
	return "open " + h.String() + " " + area + ":" + text(state)
}

var areaCases = []testCase{
	{name: "areas", must: "some areas are subscribed, and their events are shown; a batch without them moves " +
		"the position",
		play: func(s *trial) {
			h, p := s.partly()
			p.sends(frame(h.batch("0:bell", "2:move", "9:far"), 0, 2), frame(h.batch("9:far"), 0, 2),
				frame(h.batch("2:stop"), 0, 2))
			s.sees(h.shown("0:bell", "2:move"), h.shown(), h.shown("2:stop"))
			s.quiet(short, p)
		}},
	{name: "area opened", must: "Watch 1 names the areas; the Sync that opens one gives its state and events alone",
		play: func(s *trial) {
			h, p := s.partly()
			from := h.at
			missed := h.batch("2:move", "9:old")
			p.sends(frame(missed, 0, 2))
			s.sees(h.shown("2:move"))
			s.tell("watch %s 0,2,9", h)
			p.watches(h, 1, 0, 2, 9)
			end := h.at
			answer := opens(part(h.scratch(from, divided("9:nine"), missed), 1, 9))
			w := missed.Watched(fence.Areas(9))
			answer.GetSync().Tail = []*relaypb.Frame{relaypb.FromEntry(&w)}
			answer.GetSync().Position = relaypb.FromPosition(end)
			p.sends(answer)
			s.sees(h.opened("9", "nine"), "batch "+h.String()+" 9:"+text("old"))
			p.sends(frame(h.batch("2:stop", "9:new"), 0, 2, 9))
			s.sees(h.shown("2:stop", "9:new"))
			s.quiet(short, p)
		}},
	{name: "area closed", must: "a Watch without it is sent; what still comes of it is not shown",
		play: func(s *trial) {
			h, p := s.partly()
			s.tell("watch %s 0", h)
			p.watches(h, 1, 0)
			p.sends(frame(h.batch("0:bell", "2:late"), 0, 2), frame(h.batch("0:ring", "2:later"), 0))
			s.sees(h.shown("0:bell"), h.shown("0:ring"))
			s.quiet(short, p)
		}},
	{name: "area left and watched again", must: "a Sync made before the second Watch does not give its state; " +
		"the next does",
		play: func(s *trial) {
			h, p := s.partly()
			s.tell("watch %s 0,2,9", h)
			p.watches(h, 1, 0, 2, 9)
			s.tell("watch %s 0,2", h)
			p.watches(h, 2, 0, 2)
			s.tell("watch %s 0,2,9", h)
			p.watches(h, 3, 0, 2, 9)
			p.sends(opens(part(h.scratch(h.at, divided("9:old")), 1, 9)))
			s.quiet(short, p)
			p.sends(opens(part(h.scratch(h.at, divided("9:nine")), 3, 9)))
			s.sees(h.opened("9", "nine"))
			p.sends(frame(h.batch("9:new"), 0, 2, 9))
			s.sees(h.shown("9:new"))
		}},
	{name: "area opened elsewhere", must: "a Sync that opens at another position than the one held is answered by a " +
		"Resync without a position",
		play: func(s *trial) {
			h, p := s.partly()
			s.tell("watch %s 0,2,9", h)
			p.watches(h, 1, 0, 2, 9)
			forgot := h.forgot()
			lost := h.batch("9:lost")
			p.sends(opens(part(h.scratch(lost.Position, divided("9:nine")), 1, 9)))
			p.resyncs(forgot)
			s.quiet(short, p)
			p.sends(part(h.scratch(h.at, divided("0:a", "2:b", "9:c")), 1, 0, 2, 9))
			s.sees("state " + h.String() + " 0:" + text("a") + " 2:" + text("b") + " 9:" + text("c"))
		}},
	{name: "areas after a reconnect", must: "position and areas are named; a position only if the state of " +
		"all is there",
		play: func(s *trial) {
			h, p := s.partly()
			p.cut()
			s.hears("lost")
			p = s.arrives(viewPath)
			p.subscribes(h.holds().watching(0, 2))
			p.sends(part(h.missed(h.at, h.batch("2:missed")), 0, 0, 2))
			s.sees(h.shown("2:missed"))
			s.tell("watch %s 0,2,9", h)
			p.watches(h, 1, 0, 2, 9) // numbers begin anew with a connection
			p.cut()                  // before the state of 9 has come
			s.hears("lost")
			s.arrives(viewPath).subscribes(h.forgot().watching(0, 2, 9))
		}},
}
