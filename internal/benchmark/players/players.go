// Package players holds bots that play the battle, its load and its measure: ordinary clients of a relay and a gateway.
// At the end of a battle the view of each bot must equal the state of its tile's owner, and each card that it played
// must have in the ledger the outcome that the bot got.
package players

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/figures"
)

// TokenFunc returns a token that is valid now.
type TokenFunc = func(context.Context) (string, error)

// Config is what bots know of a deployment, and what they report to. Delivered may be nil.
type Config struct {
	Relay, Gateway string        // URLs
	Tick           time.Duration // between ticks
	Seed           uint64        // of the bots' decisions
	DrawEvery      int           // ticks until a bot draws the next card
	DealLater      bool          // bots draw the first card at different times
	AtHome         int           // so many bots, from the first, stay in their tiles: their ships do not sail to others

	HTTP        *http.Client // for relay and gateway
	Credentials func(address, actor string) (string, TokenFunc)
	Owner       func(context.Context, fence.TileID) (OwnerState, error) // the state of a tile, as its owner has it
	Delivered   func(id fence.TileID, committed time.Time)              // a batch has reached a bot
	Fail        func(error)                                             // ends the battle
	Failed      func(context.Context) bool                              // the battle's context ended because it failed
	Measures    *Measures
	Logger      *slog.Logger
}

// Measures are what bots count and time. All may be used from any goroutine.
type Measures struct {
	Latency                                 *figures.Histogram // from a commit to the client
	OrderLatency                            *figures.Histogram // from sending an order to its outcome
	Frames, Joined                          atomic.Int64
	Crossings                               atomic.Int64 // ships that bots have followed into another tile
	Moves, MovesFailed, MovesRefused, Cards atomic.Int64
	Outcomes                                Outcomes
}

// NewMeasures returns measures of nothing.
func NewMeasures() *Measures {
	return &Measures{Latency: figures.NewHistogram(), OrderLatency: figures.NewHistogram()}
}

// Outcomes counts actions by the outcome that their clients got.
type Outcomes struct {
	mu     sync.Mutex
	counts map[string]int64
}

// Add counts an outcome.
func (o *Outcomes) Add(outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = map[string]int64{}
	}
	o.counts[outcome]++
}

// Counts returns the counts so far. It is never nil.
func (o *Outcomes) Counts() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		return map[string]int64{}
	}
	return maps.Clone(o.counts)
}

// OwnerState is the owner's own view of its tile, as GET /state of a tile host answers.
type OwnerState struct {
	Tile    fence.TileID               `json:"tile"`
	State   string                     `json:"state"`
	Epoch   fence.Epoch                `json:"epoch"`
	Seq     fence.Seq                  `json:"seq"`
	Chain   fence.Chain                `json:"chain"`
	Digest  string                     `json:"digest"` // of the whole tile
	Areas   map[fence.Area]game.Digest `json:"areas"`
	Serving bool                       `json:"serving"`

	UnderWay int  `json:"under_way"` // ships that have left the tile and may come back
	Waits    bool `json:"waits"`     // a fleet waits for the tile, or in it
}

// agrees reports whether areas that a client sees are as the owner has them.
func (s *OwnerState) agrees(seen map[fence.Area]game.Digest) bool {
	for a, d := range seen {
		if s.Areas[a] != d {
			return false
		}
	}
	return len(seen) > 0
}

// ReadState gets the state of a tile from GET /state of a host, whose URL this is.
func ReadState(ctx context.Context, client *http.Client, host string, id fence.TileID) (s OwnerState, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/state?tile="+id.String(), nil)
	if err != nil {
		return s, err
	}
	response, err := client.Do(request)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s answers %s", host, response.Status)
	}
	return s, json.NewDecoder(response.Body).Decode(&s)
}
