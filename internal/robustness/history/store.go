package history

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/stream"
)

// Store returns a store that passes every call on to s and records the writes as the client's.
func (r *Recorder) Store(client string, s fence.Store) fence.Store {
	return &store{Store: s, recorder: r, client: always(client)}
}

type store struct {
	fence.Store // Owner is read through; nothing is promised of what one look shows
	recorder    *Recorder
	client      clientOf
}

func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	end := s.recorder.call(Record{Client: s.client(c.Tile), Kind: Commit, Tile: c.Tile, Commit: commitCall(&c)})
	receipt, err := s.Store.Commit(ctx, c)
	end(resultOf(decision.Received(receipt, err), err))
	return receipt, err
}

func (s *store) Rebase(ctx context.Context, b fence.Rebase) (fence.Receipt, error) {
	c := &RebaseCall{Epoch: b.Epoch, Contact: b.Contact, Next: Position(b.Next()), Tick: b.Tick, Replicas: b.Replicas,
		State: fence.Checksum(b.Blob)}
	if b.Replaces != nil {
		at := Position(*b.Replaces) // the caller's may change
		c.Replaces = &at
	}
	end := s.recorder.call(Record{Client: s.client(b.Tile), Kind: Rebase, Tile: b.Tile, Rebase: c})
	receipt, err := s.Store.Rebase(ctx, b)
	end(resultOf(decision.Received(receipt, err), err))
	return receipt, err
}

func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	end := s.recorder.call(Record{Client: s.client(w.Tile), Kind: Snapshot, Tile: w.Tile, Snapshot: &SnapshotCall{
		Position: Position(w.Position), Tick: w.Tick, State: fence.Checksum(w.Blob)}})
	err := s.Store.SaveSnapshot(ctx, w)
	end(resultOf(decision.Judge(err), err))
	return err
}

func commitCall(c *fence.Commit) *CommitCall {
	call := &CommitCall{Epoch: c.Epoch, Contact: c.Contact, Prev: Position(c.Prev), Next: Position(c.Next()),
		Tick: c.Tick, Install: c.Install, Replicas: c.Replicas}
	if !c.Refresh() {
		e := c.Entry()
		call.Payload, call.Events, call.Actions = parts(&e)
	}
	return call
}

// parts gives a digest of what an entry holds, how many events that is, and the actions it decided. What
// is hidden from watchers is part of the digest by its sum; of a rebase the digest is the snapshot's checksum.
func parts(e *fence.Entry) (digest string, events int, actions []Action) {
	if e.Kind == fence.KindRebase {
		return string(e.Private), 0, nil
	}
	if b, err := stream.DecodeBatch(e); err == nil {
		events = len(b.Events)
		for _, r := range b.Resolutions {
			actions = append(actions, Action{ID: r.ActionID, Outcome: r.Outcome.String()})
		}
	}
	hidden := e.Hidden
	if len(e.Private) > 0 {
		hidden = fence.Sum(e.Private)
	}
	return fence.Checksum(binary.BigEndian.AppendUint64(slices.Clone(e.Payload), hidden)), events, actions
}
