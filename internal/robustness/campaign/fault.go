//go:build unix

package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
)

// Fault is one way to break the system.
type Fault struct {
	Name  string // as -fault takes it
	About string // what it does, for the report

	// within names a fault that does all that this one does, and more. A brief campaign leaves this one out.
	within string
	// parts says that hosts are separated by the network, which not every machine allows.
	parts bool
	// failover says that another copy of a shard may become the one that answers.
	failover bool
	// alone says that tiles move to a promoted master while it has no replica. Stores must then allow that.
	alone bool
	// moves says that the fault shows only while tiles move between workers.
	moves bool
	// loses says that what every copy has may be lost: no class of tiles keeps its answers then.
	loses bool
	// appendOnly says that every node of the coordination store has an append-only file. Else nothing is kept on disk.
	appendOnly bool
	// staged says that the fault decides which claimant comes when: there are no warm followers, which would know what
	// the fault makes a claimant forget, and no tile moves unless its worker is silent.
	staged bool
	// single says that the fault is for runs of one fault: an unbroken run lacks what it breaks, or would not outlast
	// it, since it gives a store another state.
	single bool
	// frozen says that tiles have to be taken from owners that answer but make no progress.
	frozen bool
	// hold is how long the fault lasts, minimum and maximum.
	hold [2]time.Duration

	// inject breaks something of the victim and says what in r.damage. The repairs are also made when the campaign is
	// cancelled, with a context of their own: other runs use the servers.
	inject func(ctx context.Context, r *run, v victim) error
}

// victim is what a run has drawn for its fault: a tile, its owner, and its shard.
type victim struct {
	tile  fence.TileID
	owner *workerSlot
	serverfault.Shard
}

// Faults returns every kind of fault, in the order of the report.
func Faults() []*Fault {
	return slices.Concat(processFaults(), serverFaults(), storeFaults(), forgottenFaults(), networkFaults(),
		clockFaults(), forgedFaults(), partFaults())
}

// FindFault returns the fault called name.
func FindFault(name string) (*Fault, error) {
	var names []string
	for _, f := range append(Faults(), coordinationLost) {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("no fault is called %q; there are %v", name, names)
}

// seconds makes a range of how long a fault lasts.
func seconds(from, to float64) [2]time.Duration {
	return [2]time.Duration{time.Duration(from * float64(time.Second)), time.Duration(to * float64(time.Second))}
}

// Faults that kill and restart a node wait for its replica first, unless nodes have append-only files: a master that
// came back at once would come back empty and empty its replica too.
const promotionTime = 15 * time.Second
