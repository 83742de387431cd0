// Package measure is what a process of the battle measures, and the report that it makes of it at the end.
package measure

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/tile"
)

// Meters are what one process measures beside the library's metrics: distributions of which every value counts, what
// its bots do, and what the page shows. Everything in it may be used from any goroutine.
type Meters struct {
	// Tile hosts.
	commitLatency, tickLatency *figures.Histogram
	lateness                   *figures.Histogram // of ticks
	encodeLatency              *figures.Histogram
	Players                    *players.Measures

	Gateway atomic.Pointer[tilefence.GatewayServer] // of this process, or nil

	Log     *statuspoller.Log
	Tracker *chaos.Tracker
}

// NewMeters returns meters of nothing.
func NewMeters() *Meters {
	return &Meters{commitLatency: figures.NewHistogram(), Players: players.NewMeasures(),
		tickLatency: figures.NewHistogram(), encodeLatency: figures.NewHistogram(), lateness: figures.NewHistogram(),
		Log: &statuspoller.Log{}, Tracker: chaos.NewTracker()}
}

// Hooks feeds the meters from a tile processor of the host at a contact.
func (m *Meters) Hooks(host string) tile.Hooks {
	return tile.Hooks{
		Transition: func(i tile.TransitionInfo) { m.Tracker.Moved(host, i) },
		Ticked: func(i tile.TickInfo) {
			m.tickLatency.Record(i.Took)
			m.lateness.Record(i.Late)
		},
		Committed: func(i tile.CommitInfo) {
			m.Tracker.Committed(i.Tile, host, i.Position.Epoch)
			if !i.Refresh {
				m.commitLatency.Record(i.Took)
			}
		},
		Refused: func(i tile.RefusalInfo) {
			if refused, ok := errors.AsType[*fence.RefusedError](i.Err); ok && errors.Is(i.Err, fence.ErrStale) {
				m.Log.Add(statuspoller.KindRefused, i.Tile, host, refused.Epoch,
					"a commit of %s under epoch %d was refused: epoch %d is at %s",
					host, refused.Epoch, refused.Current.Epoch, refused.Current.Contact)
			}
		},
		Healed: func(i tile.HealInfo) {
			switch {
			case i.Rebased:
				m.Log.Add(statuspoller.KindFault, i.Tile, host, i.At.Epoch,
					"%s healed a fork: rebased on its own state under epoch %d", host, i.At.Epoch)
			case i.Reclaimed:
				m.Log.Add(statuspoller.KindFault, i.Tile, host, i.At.Epoch,
					"%s went above a claim that was not taken up: epoch %d", host, i.At.Epoch)
			default:
				m.Log.Add(statuspoller.KindFault, i.Tile, host, i.At.Epoch,
					"%s re-appended %d batches that a failover had lost", host, i.Reappended)
			}
		},
		Restored: func(i tile.RestoredInfo) {
			what := fmt.Sprintf("at most %d ticks, %v, are lost", i.LostTicks, i.LostFor)
			if i.LostTicks == 0 {
				what = "nothing is lost"
			}
			m.Log.Add(statuspoller.KindNote, i.Tile, host, i.At.Epoch,
				"coordination had lost the tile; it goes on from tick %d: %s", i.SnapshotTick, what)
		},
		Snapshotted: func(i tile.SnapshotInfo) {
			if i.Err == nil {
				m.encodeLatency.Record(i.Encode)
			}
		},
	}
}

// Routing is how the gateway of this process has found the owners so far; nil without a gateway.
func (m *Meters) Routing() *statuspoller.Routing {
	gateway := m.Gateway.Load()
	if gateway == nil {
		return nil
	}
	s := gateway.Stats().Router
	return &statuspoller.Routing{Gossip: statuspoller.Source(s.Gossip), Store: statuspoller.Source(s.Store),
		Redirect: statuspoller.Source(s.Redirect), StoreReads: s.StoreReads, Failures: s.Failures}
}
