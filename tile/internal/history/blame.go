package history

import (
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// without is the events of a batch, less those of Skip.
func (h *History) without(seq fence.Seq, events [][]byte) [][]byte {
	var left [][]byte
	for i, e := range events {
		if !slices.Contains(h.Skip, fence.EventRef{Seq: seq}) &&
			!slices.Contains(h.Skip, fence.EventRef{Seq: seq, Index: i + 1}) {
			left = append(left, e)
		}
	}
	return left
}

// Blame says what of a snapshot and entries made Replay fail: an event without which their batch can be folded, if one
// is found within a time; else the batch; zero: the snapshot. The state may be anything afterwards.
func (h *History) Blame(s *fence.Snapshot, entries []fence.Entry, within time.Duration) fence.EventRef {
	n, skip, began := h.failed, h.Skip, time.Now()
	if n < 0 {
		return fence.EventRef{}
	}
	culprit := fence.EventRef{Seq: entries[n].Seq}
	b, err := stream.DecodeBatch(&entries[n])
	if err != nil {
		return culprit
	}
	for i := range b.Events {
		one := fence.EventRef{Seq: culprit.Seq, Index: i + 1}
		h.Skip = append(slices.Clone(skip), one)
		if err = h.Replay(s, entries[:n+1]); err == nil {
			culprit = one
		}
		if err == nil || time.Since(began) > within {
			break
		}
	}
	h.Skip = skip
	return culprit
}
