package check

import (
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// Census counts the travellers of a run at rest, in the committed states of all tiles.
type Census struct {
	Born, Crossings int
	Lost            []string // in no tile
	Doubled         []string // in more tiles than they were born in
	Coins           int      // that travellers have beyond those that they were given; negative: so many are missing
}

// Count takes the census. ok is false if the history does not say how a tile ended; another check says so.
func Count(h *history.History) (c Census, ok bool) {
	places := map[string]int{} // less those in which a traveller was born
	for _, id := range h.Tiles() {
		f := NewTile(h, id).Final
		if f == nil {
			return c, false
		}
		c.Born, c.Crossings, c.Coins = c.Born+len(f.Born), c.Crossings+f.Arrived, c.Coins+f.Coins-f.Given
		for _, name := range f.Born {
			places[name]--
		}
		for _, name := range f.Here {
			places[name]++
		}
	}
	for name, n := range places {
		switch {
		case n < 0:
			c.Lost = append(c.Lost, name)
		case n > 0:
			c.Doubled = append(c.Doubled, name)
		}
	}
	slices.Sort(c.Lost)
	slices.Sort(c.Doubled)
	return c, true
}

// TravellersInOnePlace is the census of a run at rest: each traveller that was born is in the committed state of
// exactly one tile, and they have the coins that they were born with.
//
// It is broken when a tile speaks of a departure or a decision that can still be lost, or forgets one too early.
func TravellersInOnePlace(h *history.History) (found []Violation) {
	c, ok := Count(h)
	if !ok {
		return nil
	}
	breaks := func(format string, args ...any) {
		found = append(found, Violation{Check: "travellers in one place", Detail: fmt.Sprintf(format, args...)})
	}
	for _, name := range c.Lost {
		breaks("traveller %s is in no tile", name)
	}
	for _, name := range c.Doubled {
		breaks("traveller %s is in a tile too many", name)
	}
	if c.Coins != 0 {
		breaks("travellers have %+d coins beyond those that they were given", c.Coins)
	}
	return found
}
