//go:build linux

package benchmark

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// window is what an owner measured between two moments.
type window struct {
	Commit    spans // from forming a batch to its receipt
	Late      spans // from when a tick was due to its beginning: what the processors are short of
	Encode    spans // of snapshots, on the tick loop
	Save      spans // of snapshots, beside it
	Snapshots int   // saved
	Bytes     int   // of the last of them
	Missed    int   // ticks
	Unsettled int   // ticks that ended with the fate of their batch unknown
}

// spans sums up durations.
type spans struct {
	N             int
	P50, P99, Max time.Duration
}

func spansOf(all []time.Duration) (s spans) {
	if s.N = len(all); s.N == 0 {
		return s
	}
	slices.Sort(all)
	s.P50, s.P99, s.Max = all[s.N/2], all[s.N*99/100], all[s.N-1]
	return s
}

// partMeter collects what the tiles of an owner report.
type partMeter struct {
	mu                         sync.Mutex
	commit, late, encode, save []time.Duration
	w                          window
}

func (m *partMeter) hooks() tile.Hooks {
	locked := func(f func()) {
		m.mu.Lock()
		defer m.mu.Unlock()
		f()
	}
	return tile.Hooks{
		Committed: func(i tile.CommitInfo) { locked(func() { m.commit = append(m.commit, i.Took) }) },
		Ticked: func(i tile.TickInfo) {
			locked(func() {
				m.late = append(m.late, i.Late)
				m.w.Missed += i.Missed
				if i.Pending {
					m.w.Unsettled++
				}
			})
		},
		Snapshotted: func(i tile.SnapshotInfo) {
			locked(func() {
				m.encode, m.save = append(m.encode, i.Encode), append(m.save, i.Save)
				if i.Err == nil {
					m.w.Snapshots++
					m.w.Bytes = i.Bytes
				}
			})
		},
	}
}

// cut returns what came since the last cut.
func (m *partMeter) cut() window {
	m.mu.Lock()
	w, commit, late, encode, save := m.w, m.commit, m.late, m.encode, m.save
	m.w, m.encode, m.save = window{}, nil, nil
	m.commit, m.late = make([]time.Duration, 0, cap(commit)), make([]time.Duration, 0, cap(late))
	m.mu.Unlock()
	w.Commit, w.Late, w.Encode, w.Save = spansOf(commit), spansOf(late), spansOf(encode), spansOf(save)
	return w
}

// steady is a game in which every tick has one event of the same size, and whose state has one size.
type steady struct {
	tally
	event, state []byte
}

// Resolve implements tile.Rules.
func (g *steady) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	return [][]byte{g.event}, nil
}

// Restore implements tile.Rules.
func (g *steady) Restore([]byte) error { return nil }

// Snapshot implements tile.Rules.
func (g *steady) Snapshot() ([]byte, error) { return g.state, nil }

// full is the battle's game on a tile that fills up in its first tick and is busy ever after.
type full struct {
	*game.Rules
	cells   int
	spawned bool
}

func newFull(fence.TileID) (tile.Rules, error) {
	ground, err := game.GroundOf(0x85283083fffffff, nil)
	if err != nil {
		return nil, err
	}
	rules, err := game.NewRules(ground)
	return &full{Rules: rules, cells: ground.Len()}, err
}

// Resolve implements tile.Rules.
func (g *full) Resolve(tick fence.Tick, _ []tile.Intent) ([][]byte, []stream.Outcome) {
	ships := shipsOn(g.cells)
	var orders []tile.Intent
	for i := range ships {
		if !g.spawned {
			orders = append(orders, tile.Intent{Actor: longName(i),
				Body: game.Order{Kind: game.Spawn, Cell: uint16(i * g.cells / ships)}.Encode()})
		} else if rand.IntN(ships) < busyShips {
			orders = append(orders, tile.Intent{Actor: longName(i), ActionID: fmt.Sprint(tick, "/", i),
				Body: game.Order{Kind: game.Warp, Cell: uint16(rand.IntN(g.cells))}.Encode()})
		}
	}
	g.spawned = true
	events, _ := g.Rules.Resolve(tick, orders)
	return events, nil
}

// busyShips is how many ships of a full tile do something in a tick, on average.
const busyShips = 50

// shipsOn is how many ships a full tile has: some room must be left to move.
func shipsOn(cells int) int { return cells * 9 / 10 }

func shipName(i int) string { return fmt.Sprintf("bot%04d", i) }

// longName makes the snapshot of a full tile about 100 KB.
func longName(i int) string { return fmt.Sprintf("player-%016x-%04d", uint64(i)*0x9e3779b97f4a7c15, i) }
