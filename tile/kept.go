package tile

import "github.com/tilefence/tilefence/fence"

// keptBatches are the batches of this owner that may not be on every replica yet, oldest first. If a failover loses
// the end of the stream, the owner appends them again.
type keptBatches struct {
	limit     int // bytes, with entryOverhead for each batch
	batches   []fence.Commit
	bytes     int
	forgetful bool // batches were forgotten since all were confirmed
}

func keptSize(c *fence.Commit) int { return len(c.Payload) + len(c.Private) + entryOverhead }

// add keeps a committed batch. It returns the positions that it had to forget to stay within bounds.
func (k *keptBatches) add(c fence.Commit) (forgotten []fence.Position) {
	k.batches = append(k.batches, c)
	k.bytes += keptSize(&c)
	for len(k.batches) > 1 && k.bytes > k.limit {
		forgotten = append(forgotten, k.batches[0].Next())
		k.drop(1)
	}
	return forgotten
}

// after lists the batches that follow a position of this owner's history; ok is false if the position is not one
// that it knows.
func (k *keptBatches) after(p fence.Position) (lost []fence.Commit, ok bool) {
	for i := range k.batches {
		if k.batches[i].Prev == p {
			return k.batches[i:], true
		}
	}
	return nil, false
}

// clear forgets everything: every replica has it, or the history was replaced.
func (k *keptBatches) clear() {
	k.drop(len(k.batches))
	k.batches, k.forgetful = nil, false
}

func (k *keptBatches) drop(n int) {
	for i := range k.batches[:n] {
		k.bytes -= keptSize(&k.batches[i])
		k.batches[i].Payload, k.batches[i].Private = nil, nil // the array outlives the slice
	}
	k.batches = k.batches[n:]
}
