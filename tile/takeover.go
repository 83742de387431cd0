package tile

import (
	"context"
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
	OwnerDied   Suspicion = 2 // gossip holds the owner's process for dead
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

// Handover is an owner's wish that another process take its tile over.
type Handover struct {
	Tile     fence.TileID
	Epoch    fence.Epoch    // the giver's
	Position fence.Position // the giver's last batch, confirmed by every replica; it commits nothing after it
	From, To string         // contacts
}

// TakeOver makes a follower claim the tile now; it returns at once. A processor that is no follower, or no
// longer one, ignores it.
func (p *TileProcessor) TakeOver(why Suspicion) {
	select {
	case p.takeOver <- why:
	default: // it has been told
	}
}

// Drain hands the tile over: it plays a last tick, confirms it on every replica, and asks the process at
// successor to take over (Config.Handover). Intents that arrive meanwhile wait; when the successor serves
// they are redirected to it, so that none is lost. Run then returns nil. If the successor does not take
// the tile, the processor goes on serving, and Drain returns why. An empty successor drains as the end of
// Run's context does: last tick, snapshot, release.
//
// Other errors: a *fence.ArgumentError when the successor is this processor, or there is no
// Config.Handover; a *RedirectError when this processor does not own the tile; ctx's error, after which
// the hand-over may still happen.
func (p *TileProcessor) Drain(ctx context.Context, successor string) error {
	return p.drainTo(ctx, successor)
}
