package tile

import (
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
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
func (s Suspicion) String() string { return enum.In(s, "suspicion", suspicionNames[:], 0) }

// LogValue implements slog.LogValuer with the form of String.
func (s Suspicion) LogValue() slog.Value { return slog.StringValue(s.String()) }

// ErrHostEnded means: the process that was asked to run or to take over a tile is ending, and takes no more tiles.
var ErrHostEnded = errors.New("tile host has ended")

// Handover is an owner's request that another process take its tile over.
type Handover struct {
	Tile     fence.TileID
	Epoch    fence.Epoch    // the giver's
	Position fence.Position // the giver's last batch, confirmed by every replica; it commits nothing after it
	From, To string         // contacts
}

// Validate checks the hand-over without any I/O: nil, or a *fence.ArgumentError.
func (o *Handover) Validate() error {
	switch {
	case o.Tile == 0:
		return errNoTile
	case o.Epoch == 0 || o.Epoch > fence.MaxNumber:
		return &fence.ArgumentError{Field: "epoch", Value: o.Epoch, Want: "the giver's, from 1 to 2^53-1"}
	case o.Position.Epoch > o.Epoch || o.Position.Seq > fence.MaxNumber:
		return &fence.ArgumentError{Field: "position", Value: o.Position,
			Want: "the giver's last, no epoch above its own"}
	case !isAddress(o.To):
		return &fence.ArgumentError{Field: "to", Value: o.To, Want: "the successor's address, 1 to 255 bytes"}
	case !isAddress(o.From):
		return &fence.ArgumentError{Field: "from", Value: o.From, Want: "the giver's address, 1 to 255 bytes"}
	}
	return nil
}

// isAddress reports whether s can be a contact.
func isAddress(s string) bool { return fence.IsName(s, fence.MaxContact) }

// takeOverCalls are calls of TakeOver and OwnerLives, on their way to a follower's loop.
type takeOverCalls struct {
	calls chan Suspicion // capacity 1

	mu       sync.Mutex
	reported time.Time // the owner's death, by gossip, the last time; zero: never, or a member lives at its contact
}

func newTakeOverCalls() *takeOverCalls { return &takeOverCalls{calls: make(chan Suspicion, 1)} }

// order is TakeOver. Of two that wait, the one that is sure to make the follower ask for the tile stays.
func (c *takeOverCalls) order(why Suspicion) {
	if why == OwnerDied {
		c.mu.Lock()
		c.reported = time.Now()
		c.mu.Unlock()
	}
	for {
		select {
		case c.calls <- why:
			return
		default:
		}
		if why == OwnerDied {
			return // one is waiting
		}
		select {
		case waiting := <-c.calls:
			if waiting != OwnerDied {
				why = waiting
			}
		default:
		}
	}
}

// trust is OwnerLives.
func (c *takeOverCalls) trust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = time.Time{}
}

// deathReported reports for how long a report of the owner's death stands.
func (c *takeOverCalls) deathReported() (stands time.Duration, standing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.reported), !c.reported.IsZero()
}
