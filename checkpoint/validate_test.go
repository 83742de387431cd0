package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

const tooHigh = fence.MaxNumber + 1

func TestValidatePut(t *testing.T) {
	t.Parallel()
	valid := fence.Snapshot{Position: fence.Position{Epoch: 1, Seq: 1},
		Contact: string(make([]byte, fence.MaxContact)), Blob: []byte("state")}
	valid.Sum = fence.Checksum(valid.Blob)
	require.NoError(t, checkpoint.ValidatePut(1, &valid))
	require.ErrorIs(t, checkpoint.ValidatePut(0, &valid), fence.ErrInvalidArgument)
	for name, change := range map[string]func(*fence.Snapshot){
		"epoch zero":     func(s *fence.Snapshot) { s.Epoch = 0 },
		"epoch too high": func(s *fence.Snapshot) { s.Epoch = tooHigh },
		"seq zero":       func(s *fence.Snapshot) { s.Seq = 0 },
		"seq too high":   func(s *fence.Snapshot) { s.Seq = tooHigh },
		"tick too high":  func(s *fence.Snapshot) { s.Tick = tooHigh },
		"taken negative": func(s *fence.Snapshot) { s.Taken = time.UnixMilli(-1) },
		"contact":        func(s *fence.Snapshot) { s.Contact = string(make([]byte, fence.MaxContact+1)) },
		"blob": func(s *fence.Snapshot) {
			s.Blob = make([]byte, fence.MaxSnapshot+1)
			s.Sum = fence.Checksum(s.Blob)
		},
	} {
		s := valid
		change(&s)
		require.ErrorIs(t, checkpoint.ValidatePut(1, &s), fence.ErrInvalidArgument, name)
	}
}

func TestValidateEntry(t *testing.T) {
	t.Parallel()
	valid := fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: fence.Position{Epoch: 1, Seq: 5},
		Prev: fence.Position{Epoch: 1, Seq: 4}, Payload: []byte("x")}
	whole := fence.NewEntry(valid)
	require.NoError(t, checkpoint.ValidateEntry(1, &whole))
	require.ErrorIs(t, checkpoint.ValidateEntry(0, &whole), fence.ErrInvalidArgument)
	for name, change := range map[string]func(*fence.Entry){
		"kind":            func(e *fence.Entry) { e.Kind = 0 },
		"tile":            func(e *fence.Entry) { e.Tile++ },
		"epoch zero":      func(e *fence.Entry) { e.Epoch = 0 },
		"epoch too high":  func(e *fence.Entry) { e.Epoch = tooHigh },
		"seq zero":        func(e *fence.Entry) { e.Seq = 0 },
		"seq too high":    func(e *fence.Entry) { e.Seq = tooHigh },
		"prev not before": func(e *fence.Entry) { e.Prev.Seq = e.Seq },
		"prev epoch":      func(e *fence.Entry) { e.Prev.Epoch = tooHigh },
		"tick too high":   func(e *fence.Entry) { e.Tick = tooHigh },
		"time too high":   func(e *fence.Entry) { e.At = time.UnixMilli(tooHigh) },
		"payload":         func(e *fence.Entry) { e.Payload = make([]byte, fence.MaxFrame) },
	} {
		e := valid
		change(&e)
		e = fence.NewEntry(e)
		require.ErrorIs(t, checkpoint.ValidateEntry(1, &e), fence.ErrInvalidArgument, name)
	}
	for name, change := range map[string]func(*fence.Entry){
		"not encoded":         func(e *fence.Entry) { e.Frame = nil },
		"another's frame":     func(e *fence.Entry) { e.Seq++ },
		"follows another one": func(e *fence.Entry) { e.Prev.Chain++ },
	} {
		e := whole
		change(&e)
		require.ErrorIs(t, checkpoint.ValidateEntry(1, &e), fence.ErrInvalidArgument, name)
	}
}

func TestValidateJournal(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkpoint.ValidateSeal(1, fence.MaxNumber))
	require.NoError(t, checkpoint.ValidateJournalSeq(1, fence.MaxNumber))
	for what, err := range map[string]error{
		"seal of no tile":     checkpoint.ValidateSeal(0, 1),
		"seal for no epoch":   checkpoint.ValidateSeal(1, 0),
		"seal, too high":      checkpoint.ValidateSeal(1, tooHigh),
		"sequence of no tile": checkpoint.ValidateJournalSeq(0, 1),
		"sequence, too high":  checkpoint.ValidateJournalSeq(1, tooHigh),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
	}
}
