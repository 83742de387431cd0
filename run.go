package tilefence

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/taskgroup"
)

// Server is a part of a process that runs until its context ends: the servers of this package, and anything of
// the caller's with the same method.
type Server interface {
	// Run runs until ctx ends or something fails, stops in good order and returns; nil if nothing failed.
	Run(ctx context.Context) error
}

// Run runs servers in one process until ctx ends or one of them ends by itself. It starts them from the last to
// the first and stops them from the first to the last, each after the one before has ended.
//
// Servers of this package are put in the direction that data flows: match servers, gateways, tile servers, bridges,
// relays, checkpoint servers, plan servers, whose calls may take long to end. So every intent that was admitted reaches
// its tile, every batch its watchers, and the checkpointer's last pass comes after the tiles' last snapshots. A server
// of the caller's keeps its place behind the one it is listed after. A nil server is a *fence.ArgumentError, and
// nothing is started.
//
// The error joins those of all servers, each under the name of its type. A server that ends by itself without an
// error ends Run as ctx does. Run returns within StopTimeout of that, whatever hangs: a server that takes too long no
// longer delays those after it, and is an ErrUnfinished if it has not ended by then. Tiles that were not released are
// an *UnreleasedError.
func Run(ctx context.Context, servers ...Server) error {
	servers, err := inOrder(servers)
	if err != nil {
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForServer)
	for i := len(servers) - 1; i >= 0; i-- {
		c.Start(nameOf(servers[i]), servers[i].Run)
	}
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// staged is a server that has a place in the order of stopping.
type staged interface{ stage() int }

func (*MatchServer) stage() int      { return 1 }
func (*GatewayServer) stage() int    { return 2 }
func (*TileServer) stage() int       { return 3 }
func (*BridgeServer) stage() int     { return 4 }
func (*RelayServer) stage() int      { return 5 }
func (*CheckpointServer) stage() int { return 6 }
func (*PlanServer) stage() int       { return 7 }

// inOrder returns servers in the order in which they stop.
func inOrder(servers []Server) ([]Server, error) {
	type placed struct {
		Server
		stage int
	}
	var all []placed
	stage := 0
	for _, s := range servers {
		if s == nil || reflect.ValueOf(s).Kind() == reflect.Pointer && reflect.ValueOf(s).IsNil() {
			return nil, argument("servers", s, "no nil server")
		}
		if st, ok := s.(staged); ok {
			stage = st.stage()
		}
		all = append(all, placed{s, stage})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.stage - b.stage })
	ordered := make([]Server, len(all))
	for i, p := range all {
		ordered[i] = p.Server
	}
	return ordered, nil
}

func nameOf(s Server) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// StopTimeout bounds the end of a process: so long after its context has ended, Run and each server's Run have
// returned, whatever hangs. It leaves 5 s of the 30 s that Kubernetes gives before it kills.
const StopTimeout = 25 * time.Second

// ErrUnfinished: a part of a server did not end within its time, and was left behind. Its goroutines end with the
// process.
var ErrUnfinished = taskgroup.ErrUnfinished

func argument(field string, value any, want string) error {
	return &fence.ArgumentError{Field: field, Value: value, Want: want}
}

// alreadyRun is the error of a second Run.
func alreadyRun(server string) error { return fmt.Errorf("%s: %w", server, fence.ErrAlreadyRun) }
