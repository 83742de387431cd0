package tile

import (
	"fmt"
	"math"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// NeverSuspect as Config.SuspectAfter makes a follower wait for TakeOver however silent the owner is.
const NeverSuspect = time.Duration(math.MaxInt64)

// Suspicion is why a follower tries to take a tile over. Suspicion never decides: it makes the follower
// ask the authority, whose conditional update does.
type Suspicion int

// The suspicions. Zero is none of them.
const (
	SilentOwner Suspicion = 1 // the owner hash stopped moving or is gone
	OwnerDied   Suspicion = 2 // gossip presumes the owner's process dead
	HandedOver  Suspicion = 3 // the owner asked for it
	Ordered     Suspicion = 4 // an operator, a test or a rebalancer asked for it
)

var suspicionNames = [...]string{"none", "silent owner", "owner died", "handed over", "ordered"}

// String returns the suspicion in lower-case words.
func (s Suspicion) String() string {
	if s >= 0 && int(s) < len(suspicionNames) {
		return suspicionNames[s]
	}
	return fmt.Sprintf("suspicion(%d)", int(s))
}

// Handover is an owner's request that another process take its tile over.
type Handover struct {
	Tile     fence.TileID
	Epoch    fence.Epoch    // the giver's
	Position fence.Position // the giver's last batch, confirmed by every replica; it commits nothing after it
	From, To string         // contacts
}
