package inspect

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// TestAnInspectedOwnerHasItsOwnEpoch: a server that takes a tile holds the next epoch already, and must not be read as
// saying that the owner before it has that epoch.
func TestAnInspectedOwnerHasItsOwnEpoch(t *testing.T) {
	ann, bob := fence.Owner{Epoch: 1, Contact: "ann:1"}, fence.Owner{Epoch: 2, Contact: "bob:1"}
	for _, c := range []struct {
		name string
		is   tile.Status
		want fence.Owner
	}{
		{"it follows", tile.Status{State: tile.Following, Owner: ann}, ann},
		{"it installs itself", tile.Status{State: tile.Installing, Epoch: 2, Contact: "bob:1", Owner: ann}, ann},
		{"it serves", tile.Status{State: tile.Serving, Epoch: 2, Contact: "bob:1"}, bob},
		{"it serves where it followed", tile.Status{State: tile.Serving, Epoch: 2, Contact: "bob:1", Owner: ann}, bob},
		{"it heals", tile.Status{State: tile.Healing, Epoch: 2, Contact: "bob:1"}, bob},
		{"it drains", tile.Status{State: tile.Draining, Epoch: 2, Contact: "bob:1"}, bob},
		{"the store names another", tile.Status{State: tile.Serving, Epoch: 1, Contact: "ann:1", Owner: bob}, bob},
		{"it was superseded", tile.Status{State: tile.StoodDown, Epoch: 1, Contact: "ann:1", Successor: bob}, bob},
		{"it follows since", tile.Status{State: tile.Following, Epoch: 1, Contact: "ann:1", Owner: bob}, bob},
		{"it has just begun", tile.Status{State: tile.Claiming, Contact: "bob:1"}, fence.Owner{}},
	} {
		row := rowOf(&c.is)
		assert.Equal(t, c.want, fence.Owner{Epoch: row.Epoch, Contact: row.Owner}, c.name)
		assert.Equal(t, c.is.Epoch, row.Held, c.name)
	}
}
