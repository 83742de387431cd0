package tilefence

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"github.com/tilefence/tilefence/stream/share"
)

// addressLease keeps two processes from running at one address: each is on a list of members that is the address's own,
// for as long as it is heard. It is not what keeps a tile from having two owners; the authority and the store do.
//
//	start ──▶ waiting ──(those that were there before are gone)──▶ held ──(silent for a TTL, and another came)──▶ lost
//	             │
//	             └──(one of them is alive)──▶ refused
type addressLease struct {
	list    share.Members
	contact string
	group   string
	name    string
	log     *slog.Logger
}

func newAddressLease(list share.Members, contact string, log *slog.Logger) *addressLease {
	sum := sha256.Sum256([]byte(contact))
	return &addressLease{list: list, contact: contact, group: "address-" + hex.EncodeToString(sum[:16]),
		name: contact + "-" + rand.Text()[:13], log: log}
}

// A process that is not heard for leaseTTL has lost the address. It makes a heartbeat every leaseBeat.
const (
	leaseTTL  = 3 * time.Second
	leaseBeat = leaseTTL / 3
)

// beat makes a heartbeat and returns the other processes at the address.
func (a *addressLease) beat(ctx context.Context) (others []string, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseBeat)
	defer cancel()
	all, known, err := a.list.Beat(ctx, a.group, a.name, leaseTTL)
	return slices.DeleteFunc(all, func(name string) bool { return name == a.name }), known, err
}

// acquire returns when the processes that had the address before are not heard any more, after leaseTTL and a heartbeat
// at most. A *fence.ArgumentError if one of them is alive. A list that cannot be reached keeps no server
// from starting: that is logged.
func (a *addressLease) acquire(ctx context.Context) error {
	before, _, err := a.beat(ctx)
	for began := time.Now(); err == nil && len(before) > 0; {
		if time.Since(began) > leaseTTL {
			a.leave(ctx)
			return a.taken()
		}
		select {
		case <-ctx.Done():
			a.leave(ctx)
			return nil
		case <-time.After(leaseBeat):
		}
		var now []string
		now, _, err = a.beat(ctx)
		before = slices.DeleteFunc(before, func(name string) bool { return !slices.Contains(now, name) })
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("not known whether another process has this server's address: the list is not reached", "contact",
			a.contact, "error", err)
	}
	return nil
}

func (a *addressLease) taken() error {
	return argument("contact", a.contact, "an address of its own: another process has it, and is alive")
}

// keep holds the address until ctx ends. It fails if it was silent for so long that another process has it.
func (a *addressLease) keep(ctx context.Context) error {
	defer a.leave(ctx)
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	rivals := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		others, known, err := a.beat(ctx)
		switch {
		case err != nil: // of the same list, bridges and checkpoint servers say so
		case !known && len(others) > 0:
			return a.taken()
		case len(others) > rivals:
			a.log.Error("another process tries to run at this server's address", "contact", a.contact)
		}
		rivals = len(others)
	}
}

func (a *addressLease) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseBeat)
	defer cancel()
	_ = a.list.Leave(ctx, a.group, a.name) // it ends by itself
}
