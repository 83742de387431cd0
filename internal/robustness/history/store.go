package history

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// Store returns a store that passes every call on to s and records the writes as the client's.
func (r *Recorder) Store(client string, s fence.Store) fence.Store {
	return &store{Store: s, recorder: r, client: client}
}

type store struct {
	fence.Store // Owner is read through; nothing is promised of what one look shows
	recorder    *Recorder
	client      string
}

func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	end := s.recorder.call(Record{Client: s.client, Kind: Commit, Tile: c.Tile, Commit: commitCall(&c)})
	receipt, err := s.Store.Commit(ctx, c)
	end(receiptResult(receipt, err))
	return receipt, err
}

func (s *store) Rebase(ctx context.Context, b fence.Rebase) (fence.Receipt, error) {
	end := s.recorder.call(Record{Client: s.client, Kind: Rebase, Tile: b.Tile, Rebase: &RebaseCall{
		Epoch: b.Epoch, Contact: b.Contact, Next: Position(b.Next()), Tick: b.Tick, Replicas: b.Replicas,
		ExpectEmpty: b.ExpectEmpty, State: fence.Checksum(b.Blob)}})
	receipt, err := s.Store.Rebase(ctx, b)
	end(receiptResult(receipt, err))
	return receipt, err
}

func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	end := s.recorder.call(Record{Client: s.client, Kind: Snapshot, Tile: w.Tile, Snapshot: &SnapshotCall{
		Position: Position(w.Position), Tick: w.Tick, State: fence.Checksum(w.Blob)}})
	err := s.Store.SaveSnapshot(ctx, w)
	end(resultOf(err))
	return err
}

func commitCall(c *fence.Commit) *CommitCall {
	digest, actions := payload(c.Payload)
	return &CommitCall{Epoch: c.Epoch, Contact: c.Contact, Prev: Position(c.Prev), Next: Position(c.Next()),
		Tick: c.Tick, Events: c.Events, Install: c.Install, Replicas: c.Replicas, Payload: digest, Actions: actions}
}

func receiptResult(receipt fence.Receipt, err error) Result {
	result := resultOf(err)
	if err == nil {
		result.receipt(receipt)
	}
	return result
}

// payload gives a payload's digest and the actions it decided, if it is a batch.
func payload(p []byte) (digest string, actions []Action) {
	if len(p) == 0 {
		return "", nil
	}
	if b, err := stream.DecodeBatch(p); err == nil {
		for _, r := range b.Resolutions {
			actions = append(actions, Action{ID: r.ActionID, Outcome: r.Outcome.String()})
		}
	}
	return fence.Checksum(p), actions
}
