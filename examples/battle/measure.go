package main

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/tile"
)

// meters counts what one process sees. Everything in it may be used from any goroutine.
type meters struct {
	// Tile hosts.
	ticks, late, missed, intents  atomic.Int64
	commits, refreshes, events    atomic.Int64
	refusals, reappended, rebases atomic.Int64
	lostTicks                     atomic.Int64 // reported by owners that began from the durable store
	snapshots, snapshotsFailed    atomic.Int64
	trimmed, takeovers, handovers atomic.Int64
	commitLatency, tickLatency    *figures.Histogram
	lateness                      *figures.Histogram // of ticks
	encodeLatency                 *figures.Histogram
	// Checkpointer and relay.
	checkpoints, relayRepairs atomic.Int64
	// Bots.
	watchers                  atomic.Int64
	clientLatency             *figures.Histogram
	clientFrames, joined      atomic.Int64
	moves, movesFailed, cards atomic.Int64
	orderLatency              *figures.Histogram // from sending an order to its outcome
	outcomes                  outcomeCounts

	router atomic.Pointer[route.Router] // of the gateway in this process, or nil

	// Ownership.
	installs, supersessions atomic.Int64
	refusedFor              outcomeCounts // refused attempts, by reason

	log    *battleLog
	vitals *vitals
}

func newMeters() *meters {
	return &meters{commitLatency: figures.NewHistogram(), clientLatency: figures.NewHistogram(),
		tickLatency:   figures.NewHistogram(),
		encodeLatency: figures.NewHistogram(), lateness: figures.NewHistogram(),
		orderLatency: figures.NewHistogram(), log: &battleLog{}, vitals: newVitals(),
		outcomes: outcomeCounts{counts: map[string]int64{}}, refusedFor: outcomeCounts{counts: map[string]int64{}}}
}

// outcomeCounts counts by kind: actions by the outcome that their clients were told, refusals by reason.
type outcomeCounts struct {
	mu     sync.Mutex
	counts map[string]int64
}

func (o *outcomeCounts) add(kind string) {
	o.mu.Lock()
	o.counts[kind]++
	o.mu.Unlock()
}

func (o *outcomeCounts) snapshot() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// hooks feeds the meters from a tile processor of the host at a contact.
func (m *meters) hooks(host string) tile.Hooks {
	return tile.Hooks{
		Transition: func(i tile.TransitionInfo) {
			m.vitals.moved(host, i)
			switch {
			case i.From == tile.Following && i.To == tile.Claiming:
				m.takeovers.Add(1)
			case i.From == tile.Installing && i.To == tile.Serving:
				m.installs.Add(1)
			case i.To == tile.StoodDown:
				m.supersessions.Add(1)
			}
		},
		Ticked: func(i tile.TickInfo) {
			m.ticks.Add(1)
			m.missed.Add(int64(i.Missed))
			m.intents.Add(int64(i.Intents))
			m.tickLatency.Record(i.Took)
			m.lateness.Record(i.Late)
			if i.Late > slowTick {
				m.late.Add(1)
			}
		},
		Committed: func(i tile.CommitInfo) {
			m.vitals.committed(i.Tile, host)
			if i.Refresh {
				m.refreshes.Add(1)
				return
			}
			m.commits.Add(1)
			m.events.Add(int64(i.Events))
			m.commitLatency.Record(i.Took)
		},
		Refused: func(i tile.RefusalInfo) {
			m.refusals.Add(1)
			m.refusedFor.add(reason(i.Err))
			var refused *fence.RefusedError
			if errors.As(i.Err, &refused) && errors.Is(i.Err, fence.ErrStale) {
				m.log.add(spectator.KindRefused, i.Tile, host, refused.Epoch,
					"a commit of %s under epoch %d was refused: epoch %d is at %s",
					host, refused.Epoch, refused.Current.Epoch, refused.Current.Contact)
			}
		},
		Healed: func(i tile.HealInfo) {
			m.reappended.Add(int64(i.Reappended))
			if i.Rebased {
				m.rebases.Add(1)
				m.log.add(spectator.KindFault, i.Tile, host, i.At.Epoch,
					"%s healed a fork: rebased on its own state under epoch %d", host, i.At.Epoch)
			} else {
				m.log.add(spectator.KindFault, i.Tile, host, i.At.Epoch,
					"%s re-appended %d batches that a failover had lost", host, i.Reappended)
			}
		},
		Restored: func(i tile.RestoredInfo) {
			m.lostTicks.Add(int64(i.LostTicks))
			what := fmt.Sprintf("at most %d ticks, %v, are lost", i.LostTicks, i.LostFor)
			if i.LostTicks == 0 {
				what = "nothing is lost"
			}
			m.log.add(spectator.KindNote, i.Tile, host, i.At.Epoch,
				"coordination had lost the tile; it goes on from tick %d: %s", i.SnapshotTick, what)
		},
		Snapshotted: func(i tile.SnapshotInfo) {
			if i.Err != nil {
				m.snapshotsFailed.Add(1)
				return
			}
			m.snapshots.Add(1)
			if i.Trimmed != nil {
				m.trimmed.Add(int64(i.Trimmed.Removed))
			}
			m.encodeLatency.Record(i.Encode)
		},
	}
}

// slowTick is how late a tick may begin before it counts as late.
const slowTick = 50 * time.Millisecond
