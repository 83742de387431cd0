package transfer

import (
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// The most that a channel holds of what is not settled; see Room.
const (
	Window      = 4096
	windowBytes = 2 << 20
	// MaxBytes is the most that all channels of a tile take in a snapshot.
	MaxBytes = 4 << 20
)

// Room is how many more transfers, of bytes each at most, may depart for a tile.
func (s *State) Room(peer fence.TileID, each int) int {
	c := s.With(peer)
	left := min(windowBytes-c.bytes, MaxBytes-s.bytes)
	return max(0, min(Window-len(c.Outbox), left/(transferSize+2*stream.MaxEntity+each)))
}

// Waiting are the first of the transfers that follow one in the outbox: as many as take bytes at most, and at least
// one.
func (c *Channel) Waiting(after stream.TransferID, bytes int) []stream.Transfer {
	from, _ := slices.BinarySearchFunc(c.Outbox, after, func(t stream.Transfer, id stream.TransferID) int {
		if t.ID.Compare(id) <= 0 {
			return -1
		}
		return 1
	})
	to := from
	for ; to < len(c.Outbox) && (to == from || bytes >= size(&c.Outbox[to])); to++ {
		bytes -= size(&c.Outbox[to])
	}
	return c.Outbox[from:to:to]
}

// Fresh are those of the transfers presented that this tile has not decided: what follows its mark. The transfers
// follow after without a gap. ok is false if they cannot be joined to the mark: the other tile has to begin from there.
func (c *Channel) Fresh(after stream.TransferID, all []stream.Transfer) (fresh []stream.Transfer, ok bool) {
	if after == c.Mark {
		return all, true
	}
	for i := range all {
		if all[i].ID == c.Mark {
			return all[i+1:], true
		}
	}
	return nil, false
}

// Decided is what this tile can settle, now that the other has decided all up to mark and has refused some: up to which
// transfer, and those that come back, most of them at most. upTo is zero if there is nothing.
func (c *Channel) Decided(mark stream.TransferID, refused []stream.Refusal, most int) (upTo stream.TransferID,
	returns []Return) {
	for i := range c.Outbox {
		t := &c.Outbox[i]
		if t.ID.Compare(mark) > 0 {
			break
		}
		for len(refused) > 0 && refused[0].ID.Compare(t.ID) < 0 {
			refused = refused[1:]
		}
		if len(refused) > 0 && refused[0].ID == t.ID {
			if len(returns) == most {
				break
			}
			returns = append(returns, Return{*t, refused[0].Reason})
		}
		upTo = t.ID
	}
	return upTo, returns
}

// Forgets is up to which transfer the refusals are no longer needed, when the other tile has settled some; zero if none
// can be forgotten.
func (c *Channel) Forgets(settled stream.TransferID) stream.TransferID {
	if len(c.Refused) == 0 || c.Refused[0].ID.Compare(settled) > 0 {
		return stream.TransferID{}
	}
	return settled
}

// Check says what is wrong with transfers that were presented to a tile as those that follow after; nil: nothing.
func Check(to fence.TileID, after stream.TransferID, all []stream.Transfer) error {
	for i := range all {
		t := &all[i]
		if t.To != to {
			return fmt.Errorf("transfer %s is for tile %s", t.ID, t.To)
		}
		if t.ID.Compare(after) <= 0 {
			return fmt.Errorf("transfer %s does not follow %s", t.ID, after)
		}
		after = t.ID
	}
	return nil
}
