// Package watch holds what a follower sees of a tile's owner. It does no I/O.
package watch

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Owner is what a follower knows of a tile's owner. It is empty in a processor that does not follow.
type Owner struct {
	Last   fence.Owner   // the owner hash when it was last present
	Rival  fence.Grant   // the authority's record that this follower's last claim lost to
	Wrote  fence.Epoch   // of the stream's last entry
	answer time.Time     // of the last answer of the store; zero: the last reading failed
	Silent time.Duration // how long the owner hash has been seen not to move
	there  time.Time     // when it was last seen
	gone   time.Time     // when it was first found missing since; zero: it was not
}

// Epoch is the highest epoch under which the follower knows the tile to be owned, or to have been: the one that it
// takes over from.
func (w *Owner) Epoch() fence.Epoch { return max(w.Last.Epoch, w.Rival.Epoch, w.Wrote) }

// Latest is the owner as far as the follower knows: the one that it lost to may not be in the owner hash yet.
func (w *Owner) Latest() fence.Owner {
	if w.Rival.Epoch > w.Last.Epoch && w.Rival.Held() {
		return OwnerOf(w.Rival)
	}
	return w.Last
}

// Saw notes an owner hash that has just been read. Only time between two answers counts as silence, and no more of it
// than most: a store that does not answer, and a follower that was paused, say nothing about the owner. That the hash
// is gone is no movement.
func (w *Owner) Saw(o fence.Owner, most time.Duration) {
	now := time.Now()
	if o.Present() && o != w.Last {
		w.Last, w.Silent = o, 0
	} else if !w.answer.IsZero() {
		w.Silent += min(now.Sub(w.answer), most)
	}
	if o.Present() {
		w.there, w.gone = now, time.Time{}
	} else if w.gone.IsZero() {
		w.gone = now
	}
	w.answer = now
}

// Failed notes that the store did not answer.
func (w *Owner) Failed() { w.answer = time.Time{} }

// Played bounds the ticks that the owner can have played after a tick: to the last that the follower saw, and what can
// have come between then and when it found the owner hash gone. An owner whose hash is gone is refused, or installs
// it again: it has acknowledged nothing since. ok is false if the follower has seen nothing after that tick.
func (w *Owner) Played(since fence.Tick, between func(from, to time.Time) fence.Tick) (ticks fence.Tick, ok bool) {
	if w.Last.Tick < since || w.there.IsZero() {
		return 0, false
	}
	end := time.Now()
	if !w.gone.IsZero() {
		end = w.gone
	}
	return w.Last.Tick - since + between(w.there, end), true
}

// OwnerOf is the owner that a grant names. That of a quarantine has no contact.
func OwnerOf(g fence.Grant) fence.Owner {
	if _, ok := fence.ParseQuarantine(g.Contact); ok {
		g.Contact = ""
	}
	return fence.Owner{Tile: g.Tile, Epoch: g.Epoch, Contact: g.Contact}
}
