package tile

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/stream"
)

func TestWhoHasGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gone{}
		leave := func(i int) {
			actor := fmt.Sprint(i)
			g.left(&stream.Transfer{ID: stream.TransferID{Epoch: 1, Seq: 1, Index: i + 1},
				Departure: stream.Departure{To: 2, Entity: "ship", Actor: actor}})
			g.keep(g.actors[actor])
		}
		for i := range 2 * mostGone {
			leave(i)
		}
		assert.Len(t, g.actors, mostGone)
		assert.Len(t, g.taken, mostGone)
		assert.Zero(t, g.with(&Intent{Actor: "0"}), "the oldest first")
		assert.NotZero(t, g.with(&Intent{Actor: fmt.Sprint(mostGone)}))
		time.Sleep(goneFor + time.Millisecond)
		assert.Zero(t, g.with(&Intent{Actor: fmt.Sprint(mostGone)}))
		leave(2 * mostGone)
		assert.Len(t, g.actors, 1)
	})
}
