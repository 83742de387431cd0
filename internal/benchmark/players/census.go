package players

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream"
)

// ErrCensus is a battle that has lost ships at its borders, or has doubled them.
var ErrCensus = errors.New("the ships do not add up")

// Census is where the ships of a world are, by what is committed: each that was born is afloat in one tile, or has sunk
// in one.
type Census struct {
	Born      int      `json:"born"`
	Afloat    int      `json:"afloat"`
	Sunk      int      `json:"sunk"`
	UnderWay  int      `json:"under_way"` // 0, or they did not come to rest
	Lost      []string `json:"lost,omitempty"`
	Doubled   []string `json:"doubled,omitempty"`
	Crossings int64    `json:"crossings"` // that bots have seen

	Fleets    uint64 `json:"fleets"` // that have gone, and that were called off
	CalledOff uint64 `json:"fleets_called_off"`
	Split     bool   `json:"fleets_split,omitempty"` // some ships of a fleet have gone, and others have not
}

// Err is an ErrCensus unless each ship is in one place.
func (c *Census) Err() error {
	if c.UnderWay == 0 && len(c.Lost)+len(c.Doubled) == 0 && !c.Split && c.Born == c.Afloat+c.Sunk {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrCensus, c)
}

// String is the equation, and what contradicts it.
func (c *Census) String() string {
	s := fmt.Sprintf("%d born = %d afloat + %d sunk + %d under way, after %d crossings; %d fleets have gone, %d "+
		"were called off", c.Born, c.Afloat, c.Sunk, c.UnderWay, c.Crossings, c.Fleets, c.CalledOff)
	if c.Split {
		s += "; A FLEET IS SPLIT"
	}
	if len(c.Lost)+len(c.Doubled) > 0 {
		s += fmt.Sprintf("; LOST %v, DOUBLED %v", c.Lost, c.Doubled)
	}
	return s
}

// Census counts the ships of a world once none is under way, which takes convergeWithin at most. No bot plays any more.
func (f *Fleet) Census(ctx context.Context, log stream.Log, world []fence.TileID) (*Census, error) {
	c := &Census{Crossings: f.cfg.Measures.Crossings.Load()}
	limited, cancel := context.WithTimeout(ctx, convergeWithin)
	defer cancel()
	for rested := 0; rested < 2; { // twice: the tiles are asked one after the other
		resting := true
		c.UnderWay = 0
		for _, id := range world {
			owner, err := f.cfg.Owner(limited, id)
			resting = resting && err == nil && owner.Serving && owner.UnderWay == 0 && !owner.Waits
			c.UnderWay += owner.UnderWay
		}
		if rested++; !resting {
			rested = 0
		}
		if !wait.For(limited, 100*time.Millisecond) {
			break
		}
	}
	var all game.Census
	for _, id := range world {
		ground, err := game.GroundOf(id, world)
		if err != nil {
			return nil, err
		}
		view, err := ReadTile(ctx, log, id, ground)
		if err != nil {
			return nil, err
		}
		all.Add(view)
	}
	c.Born, c.Afloat, c.Sunk = all.Born, all.Afloat, all.Sunk
	c.Lost, c.Doubled = all.Wrong()
	gone, calledOff, whole := all.Fleets()
	c.Fleets, c.CalledOff, c.Split = gone, calledOff, !whole
	return c, nil
}

// ReadTile reads what is committed of a tile.
func ReadTile(ctx context.Context, log stream.Log, id fence.TileID, ground game.Ground) (*game.View, error) {
	view, err := game.NewView(ground)
	if err != nil {
		return nil, err
	}
	history, err := stream.Recover(ctx, log, id)
	if err != nil {
		return nil, err
	}
	if history.HasSnapshot {
		state, _, err := stream.OpenSnapshot(history.Snapshot.Blob)
		if err != nil {
			return nil, err
		}
		if err := view.Restore(state, fence.AreaSet{}); err != nil {
			return nil, err
		}
	}
	for i := range history.Entries {
		if err := view.Apply(&history.Entries[i]); err != nil {
			return nil, err
		}
	}
	return view, nil
}
