package tile

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// watch is what a follower knows of a tile's owner. It is empty in a processor that does not follow.
type watch struct {
	owner  fence.Owner   // the owner hash when it was last present
	rival  fence.Grant   // the authority's record that this follower's last claim lost to
	wrote  fence.Epoch   // of the stream's last entry
	answer time.Time     // of the last answer of the store; zero: the last reading failed
	silent time.Duration // how long the owner hash has been seen not to move
	there  time.Time     // when it was last seen
	gone   time.Time     // when it was first found missing since; zero: it was not
}

// epoch is the highest epoch under which the follower knows the tile to be owned, or to have been: the one that it
// takes over from.
func (w *watch) epoch() fence.Epoch { return max(w.owner.Epoch, w.rival.Epoch, w.wrote) }

// latest is the owner as far as the follower knows: the one that it lost to may not be in the owner hash yet.
func (w *watch) latest() fence.Owner {
	if w.rival.Epoch > w.owner.Epoch && w.rival.Held() {
		return ownerOf(w.rival)
	}
	return w.owner
}

// saw notes an owner hash that has just been read. Only time between two answers counts as silence, and no more of it
// than most: a store that does not answer, and a follower that was paused, say nothing about the owner. That the hash
// is gone is no movement.
func (w *watch) saw(o fence.Owner, most time.Duration) {
	now := time.Now()
	if o.Present() && o != w.owner {
		w.owner, w.silent = o, 0
	} else if !w.answer.IsZero() {
		w.silent += min(now.Sub(w.answer), most)
	}
	if o.Present() {
		w.there, w.gone = now, time.Time{}
	} else if w.gone.IsZero() {
		w.gone = now
	}
	w.answer = now
}

// played bounds the ticks that the owner can have played after a tick: to the last that the follower saw, and what can
// have come between then and when it found the owner hash gone. An owner whose hash is gone is refused, or installs
// it again: it has acknowledged nothing since. ok is false if the follower has seen nothing after that tick.
func (w *watch) played(since fence.Tick, between func(from, to time.Time) fence.Tick) (ticks fence.Tick, ok bool) {
	if w.owner.Tick < since || w.there.IsZero() {
		return 0, false
	}
	end := time.Now()
	if !w.gone.IsZero() {
		end = w.gone
	}
	return w.owner.Tick - since + between(w.there, end), true
}

func ownerOf(g fence.Grant) fence.Owner {
	return fence.Owner{Tile: g.Tile, Epoch: g.Epoch, Contact: g.Contact}
}
