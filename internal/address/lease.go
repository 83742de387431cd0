package address

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/share"
)

// Lease keeps two processes from running at one address: each is on a list of members that is the address's own,
// for as long as it is heard. It is not what keeps a tile from having two owners; the authority and the store do.
//
//	start ──▶ waiting ──(those that were there before are gone)──▶ held ──(silent for a TTL, and another came)──▶ lost
//	             │
//	             └──(one of them is alive)──▶ refused
type Lease struct {
	list    share.Members
	contact string
	group   string
	name    string
	log     *slog.Logger

	entered bool      // a heartbeat was answered
	before  []string  // those that were there at the first, and have been heard since
	since   time.Time // of the first
}

// NewLease returns the lease of a contact; list may be one of other addresses, too.
func NewLease(list share.Members, contact string, log *slog.Logger) *Lease {
	sum := sha256.Sum256([]byte(contact))
	return &Lease{list: list, contact: contact, group: "address-" + hex.EncodeToString(sum[:16]),
		name: contact + "-" + rand.Text()[:13], log: log}
}

// A process that is not heard for leaseTTL has lost the address. It makes a heartbeat every leaseBeat.
const (
	leaseTTL  = 3 * time.Second
	leaseBeat = leaseTTL / 3
)

// beat makes a heartbeat and returns the other processes at the address.
func (a *Lease) beat(ctx context.Context) (others []string, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseBeat)
	defer cancel()
	all, known, err := a.list.Beat(ctx, a.group, a.name, leaseTTL)
	return slices.DeleteFunc(all, func(name string) bool { return name == a.name }), known, err
}

// look makes a heartbeat and judges what the list says. rivals are the processes that came later. taken: one that was
// there before is alive, or this one was silent for so long that another has the address. An error of the list says
// neither; the next heartbeat goes on from the last that was answered.
func (a *Lease) look(ctx context.Context) (rivals int, taken bool, err error) {
	others, known, err := a.beat(ctx)
	switch {
	case err != nil:
		return 0, false, err
	case !a.entered:
		a.entered, a.before, a.since = true, others, time.Now()
	case !known && len(others) > 0:
		return 0, true, nil
	}
	gone := func(name string) bool { return !slices.Contains(others, name) }
	a.before = slices.DeleteFunc(slices.Clone(a.before), gone)
	return len(others) - len(a.before), len(a.before) > 0 && time.Since(a.since) > leaseTTL, nil
}

// Acquire returns when the processes that had the address before are not heard any more, after leaseTTL and a heartbeat
// at most. A *fence.ArgumentError if one of them is alive. A list that cannot be reached keeps no server
// from starting: that is logged, and Keep goes on looking.
func (a *Lease) Acquire(ctx context.Context) error {
	for {
		_, taken, err := a.look(ctx)
		switch {
		case taken:
			a.leave(ctx)
			return a.taken()
		case err != nil && ctx.Err() == nil:
			a.log.Warn("not known whether another process has this server's address: the list is not reached",
				"contact", a.contact, "error", err)
		}
		if err != nil || len(a.before) == 0 {
			return nil //nolint:nilerr // Keep goes on looking
		}
		if !wait.For(ctx, leaseBeat) {
			a.leave(ctx)
			return nil
		}
	}
}

func (a *Lease) taken() error {
	return &fence.ArgumentError{Field: "contact", Value: a.contact,
		Want: "an address of its own: another process has it, and is alive"}
}

// Keep holds the address until ctx ends. It fails if another process has it.
func (a *Lease) Keep(ctx context.Context) error {
	defer a.leave(ctx)
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	before := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		rivals, taken, err := a.look(ctx)
		switch {
		case err != nil: // of the same list, bridges and checkpoint servers say so
			continue
		case taken:
			return a.taken()
		case rivals > before:
			a.log.Error("another process tries to run at this server's address", "contact", a.contact)
		}
		before = rivals
	}
}

func (a *Lease) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseBeat)
	defer cancel()
	_ = a.list.Leave(ctx, a.group, a.name) // it ends by itself
}
