package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TravellersInOnePlace is the census of a run at rest: each traveller that was born is in the committed state of
// exactly one tile.
//
// It is broken when a tile speaks of a departure or a decision that can still be lost, or forgets one too early.
func TravellersInOnePlace(h *history.History) (found []Violation) {
	born, places := map[string]int{}, map[string]int{}
	for _, id := range h.Tiles() {
		f := NewTile(h, id).Final
		if f == nil {
			return nil // another check says so
		}
		for _, name := range f.Born {
			born[name]++
			places[name] += 0
		}
		for _, name := range f.Here {
			places[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if born[name] != places[name] {
			found = append(found, Violation{Check: "travellers in one place",
				Detail: fmt.Sprintf("traveller %s was born in %d tiles and is in %d", name, born[name], places[name])})
		}
	}
	return found
}
