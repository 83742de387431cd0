package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// intent is what a client sends to a gateway.
type intent struct {
	ID     string `json:"id"`
	Tile   string `json:"tile"`
	Kind   string `json:"kind"`
	Action string `json:"action"`
	Move   string `json:"move"`
	Asset  string `json:"asset"`
	Cost   int64  `json:"cost"`
	Body   string `json:"body"`
	Token  string `json:"token"`
	Within int64  `json:"within"`
}

// asks expects an intent of a kind.
func (p *peer) asks(within time.Duration, kind string) intent {
	b := p.next(within, "an intent of kind "+kind)
	var in intent
	switch err := json.Unmarshal(b, &in); {
	case err != nil:
		p.s.fail("the client sent what cannot be read: %w", err)
	case in.ID == "" || len(in.ID) > 64:
		p.s.fail("the id %q has not 1 to 64 bytes", in.ID)
	case in.Kind != kind:
		p.s.fail("want an intent of kind %s, got %s", kind, b)
	}
	return in
}

// answers sends an answer to an intent; more is what stands behind its id.
func (p *peer) answers(in intent, more string) {
	id, _ := json.Marshal(in.ID)
	line := fmt.Sprintf(`{"id":%s,%s}`, id, more)
	p.s.note("send     %s", line)
	p.write([]byte(line))
}

// silent expects nothing from the client for a time.
func (p *peer) silent(over time.Duration) {
	select {
	case m := <-p.in:
		p.s.fail("the client sent %s, and nothing is due", p.show(m))
	case <-time.After(over):
	}
}

// refuses sends an error.
func (p *peer) refuses(in intent, code string, retryable bool, after time.Duration) {
	more := ""
	if after > 0 {
		more = fmt.Sprintf(`,"retry_after":%d`, after.Milliseconds())
	}
	p.answers(in, fmt.Sprintf(`"error":{"code":%q,"message":"for a log","retryable":%t%s}`, code, retryable, more))
}

// playing begins the cases of a gateway.
func (s *trial) playing() *peer {
	s.tell("gateway %s%s", s.base, intentPath)
	return s.arrives(intentPath)
}

const (
	home   = "85283473fffffff"
	away   = "85283447fffffff"
	spell  = "act a " + home + " 0b54 card:fireball 3 66697265"
	player = "move m " + home + " 6e6f727468"
)

// acts expects the action that spell asks for.
func (p *peer) acts(within time.Duration) intent {
	in := p.asks(within, "act")
	want := intent{ID: in.ID, Tile: home, Kind: "act", Action: "0b54", Asset: "card:fireball", Cost: 3,
		Body: base64.StdEncoding.EncodeToString([]byte("fire"))}
	if in != want {
		p.s.fail("want the action %+v, got %+v", want, in)
	}
	return in
}

// repeats is a case in which the action is sent again, with the same ID, not before a time.
func repeats(code string, after time.Duration) func(s *trial) {
	return func(s *trial) {
		p := s.playing()
		s.tell(spell)
		in, began := p.acts(s.patience), time.Now()
		p.refuses(in, code, true, after)
		in = p.acts(s.patience)
		if waited := time.Since(began); waited < after {
			s.fail("the action was sent again after %v, want %v", waited, after)
		}
		p.answers(in, `"outcome":"applied","admission":"6f0c","at":1785585600123`)
		s.sees("answer a applied")
		s.quiet(short, p)
	}
}

var gatewayCases = []testCase{
	{name: "movement", must: "tile, kind and body are sent, and the answer is shown, with what the rules say",
		play: func(s *trial) {
			p := s.playing()
			s.tell(player)
			in := p.asks(s.patience, "move")
			want := intent{ID: in.ID, Tile: home, Kind: "move",
				Body: base64.StdEncoding.EncodeToString([]byte("north"))}
			if in != want {
				s.fail("want %+v, got %+v", want, in)
			}
			p.answers(in, `"outcome":"fizzled","why":"the door is locked"`)
			s.sees("answer m fizzled the door is locked")
		}},
	{name: "answers in any order", must: "each goes to the intent with its id; ids are all different",
		play: func(s *trial) {
			p := s.playing()
			var all []intent
			for i := range 3 {
				s.tell("move m%d %s 00", i, home)
				in := p.asks(s.patience, "move")
				for _, other := range all {
					if other.ID == in.ID {
						s.fail("two intents under way have the id %q", in.ID)
					}
				}
				all = append(all, in)
			}
			p.answers(all[2], `"outcome":"applied"`)
			s.sees("answer m2 applied")
			p.answers(all[0], `"outcome":"rejected"`)
			s.sees("answer m0 rejected")
			p.answers(all[1], `"outcome":"fizzled"`)
			s.sees("answer m1 fizzled")
		}},
	{name: "action", must: "action, asset and cost are sent, and the outcome is shown once", play: func(s *trial) {
		p := s.playing()
		s.tell(spell)
		p.answers(p.acts(s.patience), `"outcome":"rejected","admission":"6f0c","reason":"balance","at":1785585600123`)
		s.sees("answer a rejected")
		s.quiet(short, p)
	}},
	{name: "outcome pending", must: "the action is sent again, with the same ID, after retry_after",
		play: repeats("pending", time.Second)},
	{name: "rate limited", must: "the action is sent again, with the same ID, after retry_after",
		play: repeats("limited", time.Second)},
	{name: "overloaded", must: "the action is sent again, with the same ID, not before retry_after",
		play: repeats("overloaded", 2*time.Second)},
	{name: "movements of an overloaded gateway", must: "no movement is sent before retry_after; actions are",
		play: func(s *trial) {
			p := s.playing()
			s.tell(player)
			in, began := p.asks(s.patience, "move"), time.Now()
			const after = 2 * time.Second
			p.refuses(in, "overloaded", true, after)
			time.Sleep(short) // until the client has read it
			s.tell("move m2 %s 00", home)
			s.tell(spell)
			p.answers(p.acts(s.patience), `"outcome":"applied"`)
			p.silent(after - time.Since(began))
			s.mu.Lock()
			defer s.mu.Unlock()
			s.view = nil // what became of the movements may be shown at once, or when they are sent
		}},
	{name: "unknown code", must: "one that is retryable is sent again, whatever the code",
		play: repeats("moonlight", 0)},
	{name: "refused", must: "an error that is not retryable is shown, and nothing is sent again", play: func(s *trial) {
		p := s.playing()
		s.tell(spell)
		p.refuses(p.acts(s.patience), "refused", false, 0)
		s.sees("answer a error refused")
		s.quiet(2*time.Second, p)
	}},
	{name: "redirected", must: "the outcome is final, and the tile that the player went to is shown",
		play: func(s *trial) {
			p := s.playing()
			s.tell(spell)
			p.answers(p.acts(s.patience), `"outcome":"redirected","refunded":true,`+
				`"crossed":{"to":"`+away+`","entity":"ann"}`)
			s.sees("answer a redirected")
			s.hears("crossed a " + away)
			s.quiet(short, p)
		}},
	{name: "crossed", must: "the error crossed is shown, with the tile; the intent is not sent again",
		play: func(s *trial) {
			p := s.playing()
			s.tell(player)
			p.answers(p.asks(s.patience, "move"), `"error":{"code":"crossed","message":"for a log","retryable":false},`+
				`"crossed":{"to":"`+away+`","entity":"ann"}`)
			s.sees("answer m error crossed")
			s.hears("crossed m " + away)
			s.quiet(short, p)
		}},
	{name: "connection lost with an action", must: "the client connects again and sends the action again, with the " +
		"same " +
		"ID; its outcome is shown once",
		play: func(s *trial) {
			p := s.playing()
			s.tell(spell)
			p.acts(s.patience)
			p.cut()
			p = s.arrives(intentPath)
			p.answers(p.acts(s.patience), `"outcome":"applied"`)
			s.sees("answer a applied")
			s.quiet(short, p)
		}},
	{name: "connection lost with a movement", must: "its outcome is unknown; it is not sent again",
		play: func(s *trial) {
			p := s.playing()
			s.tell(player)
			p.asks(s.patience, "move")
			p.cut()
			s.sees("answer m unknown")
			s.tell("move n %s 00", home)
			p = s.arrives(intentPath)
			p.answers(p.asks(s.patience, "move"), `"outcome":"applied"`)
			s.sees("answer n applied")
		}},
	{name: "no answer", slow: true, must: "an intent without an answer for 25 s has none: an action is sent again",
		play: func(s *trial) {
			p := s.playing()
			s.tell(spell)
			p.acts(s.patience)
			s.quiet(20*time.Second, p)
			for late := time.Now().Add(20 * time.Second); ; {
				select {
				case next := <-s.arrivals: // perhaps over another connection
					p = next
				case b, open := <-p.in:
					if open {
						in := intent{}
						if err := json.Unmarshal(b, &in); err != nil || in.Action != "0b54" {
							s.fail("want the action again, got %s", b)
						}
						p.answers(in, `"outcome":"applied"`)
						s.sees("answer a applied")
						return
					}
					p = s.arrivesWithin(time.Until(late), intentPath)
				case <-time.After(time.Until(late)):
					s.fail("the action was not sent again within 40 s")
				}
			}
		}},
	{name: "session of a gateway", must: "the token is in the handshake, and a new one is sent before the " +
		"session is over",
		play: func(s *trial) {
			s.tell("token first")
			p := s.playing()
			if p.token != "first" {
				s.fail("the handshake has the token %q, want %q", p.token, "first")
			}
			s.tell("token other")
			p.answers(intent{}, `"session":{"expires_in":8000}`)
			in := p.asks(8*time.Second, "refresh")
			if in.Token != "other" {
				s.fail("want a refresh with the token %q, got %q", "other", in.Token)
			}
			p.answers(in, `"session":{}`)
			s.tell(player)
			p.answers(p.asks(s.patience, "move"), `"outcome":"applied"`)
			s.sees("answer m applied")
			s.quiet(2*time.Second, p)
		}},
	{name: "word of the game", must: "a message for the player is shown; fields that the client does not know " +
		"are ignored",
		play: func(s *trial) {
			p := s.playing()
			p.write([]byte(`{"id":"","message":"aGVsbG8="}`))
			s.sees("told " + text("hello"))
			p.write([]byte(`{"id":"","weather":{"rain":[1,2.5e3,null,true,"\u00e4\n"]}}`))
			s.tell(player)
			p.answers(p.asks(s.patience, "move"), `"outcome":"applied","wind":{"from":"north"}`)
			s.sees("answer m applied")
		}},
	{name: "player whom a gateway refuses", must: "after 401, or a close with 1008, there is no other attempt",
		play: func(s *trial) {
			p := s.playing()
			s.tell(spell) // so that the client has a reason to connect again
			p.acts(s.patience)
			s.refusesForGood(p)
			s.sees("answer a unknown")
		}},
}
