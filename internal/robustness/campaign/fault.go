package campaign

import (
	"context"
	"fmt"
	"time"
)

// Fault is one way to break the system.
type Fault struct {
	Name  string // as -fault takes it
	About string // what it does, for the report

	// parts says that hosts are separated by the network, which not every machine allows.
	parts bool
	// failover says that another copy of a shard may become the one that answers.
	failover bool
	// alone says that tiles move to a promoted master while it has no replica. Stores must then allow that.
	alone bool
	// moves says that the fault shows only while tiles move between workers.
	moves bool
	// frozen says that tiles have to be taken from owners that answer but make no progress.
	frozen bool
	// hold is how long the fault lasts, minimum and maximum.
	hold [2]time.Duration

	// inject breaks something and returns what repairs it. The repair is also called when the campaign is
	// cancelled, with a context of its own.
	inject func(ctx context.Context, r *run) (target string, heal func(context.Context) error, err error)
}

// Faults returns every kind of fault, in the order of the report.
func Faults() []*Fault {
	return append(append(processFaults(), storeFaults()...), networkFaults()...)
}

// FindFault returns the fault called name.
func FindFault(name string) (*Fault, error) {
	var names []string
	for _, f := range Faults() {
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

// Faults that kill and restart a node wait for its replica first: nothing is kept on disk, so a master that
// came back at once would come back empty and empty its replica too.
const promotionTime = 15 * time.Second
