package gate

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/internal/fairshare"
)

// ErrFull means that every place is taken, and by those that hold no more than the connection would.
var ErrFull = errors.New("the server is full")

// places are the connections that a server may have. A connection takes one when the game has said who it is.
//
// A full server does not refuse a newcomer for the sake of an actor that holds many. If the actor that holds most
// places would still hold as many as the connection's actor after one of its own was taken away, its newest connection
// makes place. Strangers count by their address, and those whose address is not known count as one. If no actor holds
// more than others, an address that holds more than its share of the server gives one in the same way. So no
// connection is ever taken from an actor that has one alone, unless its address has more than a 64th of the server.
type places struct {
	most    int // places
	share   int // of them, from which on an address gives one
	taken   int
	parting int // connections that were taken a place and have not ended

	actors    fairshare.Pool[*Session]
	addresses fairshare.Pool[*Session]
}

// Shares of a full server.
const (
	addressShare = 64 // the part of the server that no address must give of
	partingShare = 16 // the part of the server that may be on its way out at once
)

func newPlaces(most int) places {
	return places{most: most, share: max(most/addressShare, defaultPerActor)}
}

// enter gives a connection a place. If another one made it, the caller ends that.
func (p *places) enter(s *Session) (ended *Session, err error) {
	if p.taken >= p.most {
		if ended = p.heaviest(s); ended == nil {
			return nil, fmt.Errorf("%w: %d connections", ErrFull, p.taken)
		}
		p.drop(ended)
		ended.shed = true
		p.parting++
	}
	p.taken++
	s.placed = true
	p.actors.Add(s.holder(), s)
	if s.address != "" {
		p.addresses.Add(s.address, s)
	}
	return ended, nil
}

// heaviest is the connection that makes place for a connection; nil: none does.
func (p *places) heaviest(s *Session) *Session {
	if p.parting >= max(1, p.most/partingShare) {
		return nil
	}
	if _, of := p.actors.Heaviest(); len(of) >= p.actors.Held(s.holder())+2 {
		return newest(of)
	}
	if _, of := p.addresses.Heaviest(); len(of) > max(p.share, p.addresses.Held(s.address)+1) {
		return newest(of)
	}
	return nil
}

// newest is the last of some connections that can be ended by now; nil: none can.
func newest(of []*Session) *Session {
	for i := len(of) - 1; i >= 0; i-- {
		if of[i].end != nil {
			return of[i]
		}
	}
	return nil
}

func (p *places) drop(s *Session) {
	p.taken--
	p.actors.Remove(s.holder(), s)
	p.addresses.Remove(s.address, s)
}

// leave counts a connection out.
func (p *places) leave(s *Session) {
	switch {
	case !s.placed:
	case s.shed:
		p.parting--
	default:
		p.drop(s)
	}
	s.placed = false
}

// holder is the name under which a connection's places are counted.
func (s *Session) holder() string {
	if s.actor != "" {
		return "actor " + s.actor
	}
	return "address " + s.address
}
