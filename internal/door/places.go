package door

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/internal/fairshare"
)

// ErrFull means that every place is taken, and by those that hold no more than the guest would.
var ErrFull = errors.New("the server is full")

// places are the connections that a server may have. A guest takes one when the game has said who it is.
//
// A full server does not refuse those who come later for the sake of those who hold many. If the actor that holds most
// places would still hold as many as the guest's actor after one of its own was taken away, its newest connection makes
// place. Strangers count by their address, and those whose address is not known count as one. If no actor holds more
// than others, an address that holds more than its share of the server gives one in the same way. So no connection is
// ever taken from an actor that has one alone, unless its address has more than a 64th of the server.
type places struct {
	most    int // places
	share   int // of them, from which on an address gives one
	taken   int
	parting int // connections that were taken a place and have not ended

	actors    fairshare.Pool[*Guest]
	addresses fairshare.Pool[*Guest]
}

// Shares of a full server.
const (
	addressShare = 64 // the part of the server that no address must give of
	partingShare = 16 // the part of the server that may be on its way out at once
)

func newPlaces(most int) places {
	return places{most: most, share: max(most/addressShare, defaultPerActor)}
}

// enter gives a guest a place. If another one made it, the caller ends that.
func (p *places) enter(g *Guest) (ended *Guest, err error) {
	if p.taken >= p.most {
		if ended = p.heaviest(g); ended == nil {
			return nil, fmt.Errorf("%w: %d connections", ErrFull, p.taken)
		}
		p.drop(ended)
		ended.shed = true
		p.parting++
	}
	p.taken++
	g.placed = true
	p.actors.Add(g.holder(), g)
	if g.address != "" {
		p.addresses.Add(g.address, g)
	}
	return ended, nil
}

// heaviest is the connection that makes place for a guest; nil: none does.
func (p *places) heaviest(g *Guest) *Guest {
	if p.parting >= max(1, p.most/partingShare) {
		return nil
	}
	if _, of := p.actors.Heaviest(); len(of) >= p.actors.Held(g.holder())+2 {
		return newest(of)
	}
	if _, of := p.addresses.Heaviest(); len(of) > max(p.share, p.addresses.Held(g.address)+1) {
		return newest(of)
	}
	return nil
}

// newest is the last of some connections that can be ended by now; nil: none can.
func newest(of []*Guest) *Guest {
	for i := len(of) - 1; i >= 0; i-- {
		if of[i].end != nil {
			return of[i]
		}
	}
	return nil
}

func (p *places) drop(g *Guest) {
	p.taken--
	p.actors.Remove(g.holder(), g)
	p.addresses.Remove(g.address, g)
}

// leave counts a guest out.
func (p *places) leave(g *Guest) {
	switch {
	case !g.placed:
	case g.shed:
		p.parting--
	default:
		p.drop(g)
	}
	g.placed = false
}

// holder is the name under which a guest's places are counted.
func (g *Guest) holder() string {
	if g.actor != "" {
		return "actor " + g.actor
	}
	return "address " + g.address
}
