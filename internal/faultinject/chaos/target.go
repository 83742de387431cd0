// Package chaos injects faults into a deployment that runs in one process, one after another, and times how long the
// tiles that suffer need to recover.
//
// A [Runner] picks a fault, breaks something, waits, repairs it, and waits until all is well. A tile that a fault hit
// has recovered when it commits again: after the repair, or before it under another owner. If the fault breaks what
// clients see, a tile has recovered when a batch that was committed after the repair has reached a client. All is well
// when every tile has recovered and each other one has committed since the repair. A host that was cut off may commit
// nothing to tiles that others have taken meanwhile: that is an error, as is a tile that does not recover.
//
// What is broken, and how that is undone, is in packages faultinject and serverfault.
package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/wait"
)

// Target is a deployment in one process. A part that is nil does not exist, and its faults are left out; parts that
// say nothing of that are required.
type Target struct {
	Tiles        []fence.TileID
	Watched      int           // how many of Tiles, from the first, a client of this process watches
	Tick         time.Duration // between ticks
	SuspectAfter time.Duration // how long an owner may be silent before a follower asks for its tile
	Tracker      *Tracker

	Owner    func(fence.TileID) Host // the host that serves a tile; nil: none does
	Kill     func(Host)              // as kill -9 does
	Restart  func(Host) error        // starts a host in the place of one that was killed
	TakeOver func(context.Context, fence.TileID) error

	Backends          tilefence.Backends
	Store             *faultinject.Line     // every process's way to the coordination store
	Bridge            *faultinject.Line     // the bridge's way to its back ends
	Watchers, Players *faultinject.Listener // of the relay and the gateway
	DeleteOwner       func(context.Context, fence.TileID) error
	LoseTile          func(fence.TileID)    // empties the store of a tile; nil with servers
	Throttle          *faultinject.Throttle // the way to DynamoDB, or nil
	Servers           *Servers              // that this process started, or nil

	// View connects a client that watches a tile. It calls seen when the client has the tile.
	View func(ctx context.Context, id fence.TileID, seen func()) (leave func(), err error)
}

// Host is a tile server of the process, with what a fault breaks of it.
type Host interface {
	Contact() string
	Line() *faultinject.Line // to its back ends
	Serves(fence.TileID) (fence.Epoch, bool)
	Part()         // the host and the other members presume each other dead
	Rejoin() error // ends what Part began
}

// Servers are those of a devstack, with clients for its clusters. World is that of the tiles.
type Servers struct {
	Stack                *devstack.Stack
	Coordination, Fanout *redis.ClusterClient
	World                fence.World
}

// cluster is the coordination cluster. It is closed after use.
func (s *Servers) cluster() *serverfault.Cluster {
	return &serverfault.Cluster{Cluster: s.Stack.Cluster(), Client: s.Coordination, World: s.World}
}

// System is one part of a deployment that can break, besides the hosts.
type System struct {
	Name  string
	Nodes []string // its servers that this process started
}

// Names of the systems.
const (
	Authority    = "authority"
	Coordination = "coordination"
	Fanout       = "fan-out"
	Bridge       = "bridge"
	Relay        = "relay"
	Gateway      = "gateway"
	Matchmaking  = "matchmaking"
	Planning     = "planners"
	Durable      = "durable store"
)

// nodePrefixes are how a devstack names the servers of the systems.
var nodePrefixes = []struct{ system, prefix string }{{Authority, "postgres"}, {Coordination, "coord-"},
	{Fanout, "fanout-"}, {Bridge, ""}, {Relay, ""}, {Gateway, ""}, {Matchmaking, ""}, {Durable, "dynamodb"}}

// Systems lists what can break besides the hosts.
func (t *Target) Systems() (all []System) {
	for _, n := range nodePrefixes {
		s := System{Name: n.system}
		for _, p := range t.nodes(n.system) {
			s.Nodes = append(s.Nodes, p.Name())
		}
		all = append(all, s)
	}
	return all
}

// nodes are the servers of a system that this process started.
func (t *Target) nodes(system string) (nodes []*devstack.Process) {
	if t.Servers == nil {
		return nil
	}
	for _, p := range t.Servers.Stack.Processes() {
		for _, n := range nodePrefixes {
			if n.system == system && n.prefix != "" && strings.HasPrefix(p.Name(), n.prefix) {
				nodes = append(nodes, p)
			}
		}
	}
	return nodes
}

// served lists the tiles that a host serves.
func (t *Target) served(h Host) []fence.TileID {
	return slices.DeleteFunc(slices.Clone(t.Tiles), func(id fence.TileID) bool { return t.Owner(id) != h })
}

// watched lists the tiles that a client of this process watches.
func (t *Target) watched() []fence.TileID { return t.Tiles[:min(len(t.Tiles), t.Watched)] }

// Until waits for a condition.
func Until(ctx context.Context, what string, done func() bool) error {
	for !done() {
		if !wait.For(ctx, watchEvery*10) {
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// Intn draws a number below n. A fault that draws by it is the same again with the same seed.
func (r *Runner) Intn(n int) int { return r.rng.IntN(n) }

// between is a random duration.
func (r *Runner) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

// Always is for what cannot fail.
func Always(f func()) func(context.Context) error {
	return func(context.Context) error {
		f()
		return nil
	}
}
