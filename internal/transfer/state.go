// Package transfer is what a tile knows of the entities that cross its border: those that have left it and are not
// settled, and how far it has decided what others present to it. It is a part of the tile's committed state, and pure:
// no I/O, no time. The owner of a tile acts by it, and so does the model of package spec.
//
// Between two tiles there is one channel each way. What follows is said of one, from tile A to tile B.
//
//	departed   A's batch: the entity is out of A's state and in its outbox
//	presented  A tells B what its outbox holds after B's mark, in order and without a gap, any number of times
//	decided    B's batch: B takes or refuses what follows its mark, and the mark moves
//	settled    A's batch: what B has decided leaves the outbox; A's rules take back what was refused
//
// Each of the two speaks only of a state that cannot be undone: see package tile.
package transfer

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// State is a tile's part of its channels, by the other tile. It is not changed: Fold makes another one. The zero value
// is that of a new tile.
type State struct {
	channels map[fence.TileID]*Channel
	bytes    int // that the outboxes take in a snapshot, at most
}

// Channel is what a tile knows of its two channels with another tile. It is not changed.
type Channel struct {
	Outbox  []stream.Transfer // that have departed for the other tile and are not settled, in order
	Settled stream.TransferID // the last that was settled
	Parked  []Return          // those that came back and that the rules could not take
	bytes   int               // that the outbox takes in a snapshot, at most

	Mark    stream.TransferID // the last that was decided of what the other tile has presented
	Refused []stream.Refusal  // of those that were decided, which the other tile has not settled
}

// Return is a transfer that its destination has refused.
type Return struct {
	stream.Transfer
	Reason string
}

var none Channel

// With is the channel with a tile.
func (s *State) With(peer fence.TileID) *Channel {
	if c := s.channels[peer]; c != nil {
		return c
	}
	return &none
}

// Peers are the tiles that there is a channel with, ascending.
func (s *State) Peers() []fence.TileID { return slices.Sorted(maps.Keys(s.channels)) }

// All are the channels, in no order.
func (s *State) All() iter.Seq2[fence.TileID, *Channel] { return maps.All(s.channels) }

// Bytes is what the transfers take in a snapshot, at most.
func (s *State) Bytes() int { return s.bytes }

// Empty reports whether nothing was ever sent or received.
func (s *State) Empty() bool { return len(s.channels) == 0 }

// UnderWay is how many transfers have departed and are not settled, those that are parked included.
func (s *State) UnderWay() (n int) {
	for _, c := range s.channels {
		n += len(c.Outbox) + len(c.Parked)
	}
	return n
}

// Rests reports whether the owner has nothing to present and to settle. What is parked waits for other rules, and what
// the tile has refused is its peers' to settle.
func (s *State) Rests() bool {
	for _, c := range s.channels {
		if len(c.Outbox) > 0 {
			return false
		}
	}
	return true
}

// Fold is the state after a batch that was committed at a position, as that of a tick. The error says what of the batch
// does not follow the state.
func (s *State) Fold(at fence.Position, tick fence.Tick, b *stream.Batch) (State, error) {
	if len(b.Departures)+len(b.Decisions)+len(b.Settlements) == 0 {
		return *s, nil
	}
	f := fold{State: State{channels: maps.Clone(s.channels), bytes: s.bytes}, changed: map[fence.TileID]*Channel{}}
	if f.channels == nil {
		f.channels = map[fence.TileID]*Channel{}
	}
	for i := range b.Settlements { // before departures: they make room
		if err := f.settle(&b.Settlements[i]); err != nil {
			return *s, err
		}
	}
	for i := range b.Decisions {
		if err := f.decide(&b.Decisions[i]); err != nil {
			return *s, err
		}
	}
	for i := range b.Departures {
		f.depart(stream.Transfer{ID: stream.TransferID{Epoch: at.Epoch, Seq: at.Seq, Index: i + 1},
			Tick: min(tick, fence.FarTick), Departure: b.Departures[i]})
	}
	return f.State, nil
}

// fold is a state that is being made.
type fold struct {
	State
	changed map[fence.TileID]*Channel // which may be changed; their outboxes have arrays of their own
}

func (f *fold) change(peer fence.TileID) *Channel {
	if c := f.changed[peer]; c != nil {
		return c
	}
	if f.channels[peer] == nil {
		f.bytes += channelSize
	}
	c := *f.With(peer)
	c.Outbox = slices.Clone(c.Outbox)
	f.channels[peer], f.changed[peer] = &c, &c
	return &c
}

func (f *fold) depart(t stream.Transfer) {
	t.Payload = bytes.Clone(t.Payload) // it may be a part of a larger buffer, or the game's
	c := f.change(t.To)
	c.Outbox = append(c.Outbox, t)
	c.bytes += size(&t)
	f.bytes += size(&t)
}

func (f *fold) decide(d *stream.Decision) error {
	c := f.change(d.From)
	switch {
	case !d.Mark.IsZero() && d.Mark.Compare(c.Mark) <= 0:
		return fmt.Errorf("transfer %s of tile %s is decided, and %s was before", d.Mark, d.From, c.Mark)
	case len(d.Refused) > 0 && d.Refused[len(d.Refused)-1].ID.Compare(d.Mark) > 0,
		len(d.Refused) > 0 && d.Refused[0].ID.Compare(c.Mark) <= 0:
		return fmt.Errorf("refusals of tile %s that are not of what is decided", d.From)
	}
	if !d.Mark.IsZero() {
		c.Mark = d.Mark
	}
	kept := slices.DeleteFunc(slices.Clone(c.Refused),
		func(r stream.Refusal) bool { return r.ID.Compare(d.Forget) <= 0 })
	c.Refused = append(kept, d.Refused...)
	return nil
}

func (f *fold) settle(s *stream.Settlement) error {
	c := f.change(s.To)
	if err := f.retake(c, s); err != nil || s.UpTo.IsZero() {
		return err
	}
	n := slices.IndexFunc(c.Outbox, func(t stream.Transfer) bool { return t.ID == s.UpTo }) + 1
	if n == 0 {
		return fmt.Errorf("transfer %s to tile %s is settled, and is not under way", s.UpTo, s.To)
	}
	for _, p := range s.Parked {
		i := slices.IndexFunc(c.Outbox[:n], func(t stream.Transfer) bool { return t.ID == p.ID })
		if i < 0 {
			return fmt.Errorf("transfer %s to tile %s is parked, and is not settled", p.ID, s.To)
		}
		c.Parked = append(slices.Clip(c.Parked), Return{c.Outbox[i], p.Reason})
		f.bytes += size(&c.Outbox[i])
	}
	for i := range c.Outbox[:n] {
		c.bytes -= size(&c.Outbox[i])
		f.bytes -= size(&c.Outbox[i])
	}
	c.Outbox, c.Settled = slices.Delete(c.Outbox, 0, n), s.UpTo
	return nil
}

// retake takes out of the parked ones what the game has taken back.
func (f *fold) retake(c *Channel, s *stream.Settlement) error {
	if len(s.Retaken) == 0 {
		return nil
	}
	left := slices.Clone(c.Parked)
	for _, id := range s.Retaken {
		i := slices.IndexFunc(left, func(r Return) bool { return r.ID == id })
		if i < 0 {
			return fmt.Errorf("transfer %s to tile %s is taken back, and is not parked", id, s.To)
		}
		f.bytes -= size(&left[i].Transfer)
		left = slices.Delete(left, i, i+1)
	}
	c.Parked = left
	return nil
}
