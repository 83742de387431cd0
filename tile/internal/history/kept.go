package history

import "github.com/tilefence/tilefence/fence"

// Kept are the batches of this owner that may not be on every replica yet, oldest first. If a failover loses
// the end of the stream, the owner appends them again.
type Kept struct {
	Limit     int // bytes, with entryOverhead for each batch
	Batches   []fence.Commit
	Bytes     int
	forgetful bool // batches were forgotten since all were confirmed
}

func keptSize(c *fence.Commit) int { return len(c.Payload) + len(c.Private) + entryOverhead }

// Add keeps a committed batch. It returns the positions that it had to forget to stay within bounds, and whether they
// are the first since every batch was confirmed.
func (k *Kept) Add(c fence.Commit) (forgotten []fence.Position, first bool) {
	k.Batches = append(k.Batches, c)
	k.Bytes += keptSize(&c)
	for len(k.Batches) > 1 && k.Bytes > k.Limit {
		forgotten = append(forgotten, k.Batches[0].Next())
		k.drop(1)
	}
	first = len(forgotten) > 0 && !k.forgetful
	k.forgetful = k.forgetful || first
	return forgotten, first
}

// After lists the batches that follow a position of this owner's history; ok is false if the position is not one
// that it knows.
func (k *Kept) After(p fence.Position) (lost []fence.Commit, ok bool) {
	for i := range k.Batches {
		if k.Batches[i].Prev == p {
			return k.Batches[i:], true
		}
	}
	return nil, false
}

// Clear forgets everything: every replica has it, or the history was replaced.
func (k *Kept) Clear() {
	k.drop(len(k.Batches))
	k.Batches, k.forgetful = nil, false
}

func (k *Kept) drop(n int) {
	for i := range k.Batches[:n] {
		k.Bytes -= keptSize(&k.Batches[i])
		k.Batches[i].Payload, k.Batches[i].Private = nil, nil // the array outlives the slice
	}
	k.Batches = k.Batches[n:]
}
