package gossip

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait"
)

// Each load that is spread is a message to every member: loadEvery is the least time between two, and loadChange the
// part by which work must differ from what was spread last.
const (
	loadEvery  = time.Second
	loadChange = 10
)

// load is this process's load, which members have in their meta data.
type load struct {
	changed chan struct{} // has room for one

	mu  sync.Mutex
	now route.Load
}

func (l *load) get() route.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *load) set(now route.Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Tiles == l.now.Tiles && (now.Work-l.now.Work).Abs() <= l.now.Work/loadChange {
		return
	}
	l.now = now
	wait.Wake(l.changed)
}

// spread has memberlist spread the meta data after each change, until ctx ends: not while the node leaves, which it
// would undo.
func (l *load) spread(ctx context.Context, list *memberlist.Memberlist) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		_ = list.UpdateNode(loadEvery) // an error: none has taken it in that time; it stays queued
		if !wait.For(ctx, loadEvery) {
			return
		}
	}
}

// encodeMeta makes a member's meta data: its contact and, if it has announced one, its load, which are tiles and
// microseconds a second; apart by spaces, which no contact has.
func encodeMeta(contact string, l route.Load) []byte {
	if l == (route.Load{}) {
		return []byte(contact)
	}
	return fmt.Appendf(nil, "%s %d %d", contact, l.Tiles, l.Work.Microseconds())
}

// decodeMeta reads meta data. What follows the load is ignored. Errors: a *fence.ArgumentError of the contact or of the
// load, or malformed.
func decodeMeta(meta []byte) (contact string, l route.Load, err error) {
	contact, numbers, loaded := strings.Cut(string(meta), " ")
	if err = route.ValidateContact(contact); err != nil || !loaded {
		return contact, l, err
	}
	fields := strings.Fields(numbers)
	if len(fields) < 2 {
		return contact, l, malformed("meta data without a load after the contact")
	}
	tiles, err := strconv.ParseUint(fields[0], 10, 31)
	if err != nil {
		return contact, l, malformed("meta data whose load has no number of tiles")
	}
	work, err := strconv.ParseUint(fields[1], 10, 40)
	if err != nil {
		return contact, l, malformed("meta data whose load has no microseconds")
	}
	l = route.Load{Tiles: int(tiles), Work: time.Duration(work) * time.Microsecond}
	return contact, l, l.Validate()
}
