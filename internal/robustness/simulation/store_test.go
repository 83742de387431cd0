package simulation

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// store is one client's way to the cluster: a fence.Store.
type store struct {
	cluster *cluster
	host    *host
}

var _ fence.Store = (*store)(nil)

// at runs f on a tile's copy at the node that the client takes for the master. f may run long after at has
// returned, when no caller reads its result any more. The node and its reign are what a confirmation needs.
func (s *store) at(
	ctx context.Context, op string, tile fence.TileID, write bool, f func(*tileCopy),
) (node, reign int, err error) {
	n, met := s.find(op), new(int) // the reign; the request may outlive the results
	err = s.host.ask(ctx, op, tile, func() (bool, error) {
		c := s.cluster
		c.mu.Lock()
		defer c.mu.Unlock()
		*met = c.reign
		at := c.nodes[n]
		switch {
		case at.down:
			return false, errDown
		case at.paused:
			at.inbox = append(at.inbox, func() { c.run(n, tile, write, f) })
			return false, nil
		case n != c.master && n != c.old:
			return false, errDown // a replica redirects; the client finds the master with its next request
		}
		c.run(n, tile, write, f)
		return true, nil
	})
	if err != nil {
		s.lose(op)
		return n, 0, err
	}
	return n, *met, nil
}

// find is the node that this client takes for the master. It learns of a failover by chance, and when a
// request fails.
func (s *store) find(op string) int {
	learns := s.host.intN(op, 8) == 0
	master, _ := s.cluster.masterNow()
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if learns && !s.host.parted {
		s.host.route = master
	}
	return s.host.route
}

func (s *store) lose(op string) {
	if s.host.intN(op, 3) == 0 {
		return
	}
	master, _ := s.cluster.masterNow()
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if !s.host.parted {
		s.host.route = master
	}
}

// answer is what one request found. It is written once, at the node.
type answer struct {
	receipt fence.Receipt
	reason  error
	current fence.Owner
}

func (s *store) write(ctx context.Context, op string, tile fence.TileID, epoch fence.Epoch, replicas int,
	f func(*tileCopy) (fence.Receipt, error)) (fence.Receipt, error) {
	a := &answer{}
	n, reign, err := s.at(ctx, op, tile, true, func(t *tileCopy) {
		a.receipt, a.reason = f(t)
		if a.reason != nil {
			a.current = t.Owner
			a.current.Tile, a.current.Position = tile, t.Last()
			return
		}
		t.version++
		if op != "snapshot" {
			t.expires = time.Now().Add(s.cluster.ttl)
		}
	})
	switch {
	case err != nil:
		return fence.Receipt{}, err
	case a.reason != nil:
		return fence.Receipt{}, &fence.RefusedError{Reason: a.reason, Tile: tile, Epoch: epoch, Current: a.current}
	case replicas == 0:
		return a.receipt, nil
	}
	if s.host.travel(ctx, op) != nil {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: tile, Receipt: a.receipt, Want: nodes - 1}
	}
	got, want := s.cluster.confirm(n, reign)
	a.receipt.Replicas = got
	if replicas > 0 {
		want = replicas
	}
	if got < want {
		s.lose(op)
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: tile, Receipt: a.receipt, Want: want}
	}
	return a.receipt, nil
}

// Commit implements fence.Store.
func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	if err := c.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	return s.write(ctx, "commit", c.Tile, c.Epoch, c.Replicas, func(t *tileCopy) (fence.Receipt, error) {
		return s.cluster.mutant.commit(&t.State, &c)
	})
}

// Rebase implements fence.Store.
func (s *store) Rebase(ctx context.Context, r fence.Rebase) (fence.Receipt, error) {
	if err := r.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	return s.write(ctx, "rebase", r.Tile, r.Epoch, r.Replicas, func(t *tileCopy) (fence.Receipt, error) {
		return s.cluster.mutant.rebase(&t.State, &r, time.Now())
	})
}

// SaveSnapshot implements fence.Store.
func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	if err := w.Validate(); err != nil {
		return err
	}
	_, err := s.write(ctx, "snapshot", w.Tile, w.Position.Epoch, 0, func(t *tileCopy) (fence.Receipt, error) {
		return fence.Receipt{}, t.SaveSnapshot(&w, time.Now())
	})
	return err
}

// Owner implements fence.Store.
func (s *store) Owner(ctx context.Context, tile fence.TileID) (fence.Owner, error) {
	return look(ctx, s, "owner", tile, func(t *tileCopy) fence.Owner { return t.owner(tile) })
}

// Confirm implements fence.Store.
func (s *store) Confirm(ctx context.Context, tile fence.TileID, at fence.Position) error {
	held := new(bool)
	n, reign, err := s.at(ctx, "confirm", tile, false, func(t *tileCopy) { *held = t.Holds(at) })
	if err != nil {
		return unread(err)
	}
	got, want := s.cluster.confirm(n, reign)
	if !*held || got < want {
		s.lose("confirm")
		return &fence.UnconfirmedError{Tile: tile, Receipt: fence.Receipt{Position: at, Replicas: got}, Want: want}
	}
	return nil
}
