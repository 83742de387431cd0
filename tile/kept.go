package tile

import "github.com/tilefence/tilefence/fence"

// keptBatches are the batches of this owner that may not be on every replica yet, oldest first. If a
// failover loses the end of the stream, they are what is put back.
type keptBatches struct {
	limit, limitBytes int
	batches           []fence.Commit
	bytes             int
}

// add keeps a committed batch. It returns the positions it had to forget to stay within bounds.
func (k *keptBatches) add(c fence.Commit) (forgotten []fence.Position) {
	k.batches = append(k.batches, c)
	k.bytes += len(c.Payload)
	for len(k.batches) > 1 && (len(k.batches) > k.limit || k.bytes > k.limitBytes) {
		forgotten = append(forgotten, k.batches[0].Next())
		k.drop(1)
	}
	return forgotten
}

// forgetKept drops all kept batches: every replica has them, or history was rebased.
func (p *TileProcessor) forgetKept() {
	p.kept.clear()
	p.forgetting = false
}

// keep keeps a committed batch, and says what it had to forget for it.
func (p *TileProcessor) keep(c fence.Commit) {
	forgotten := p.kept.add(c)
	if len(forgotten) == 0 {
		return
	}
	if !p.forgetting {
		p.forgetting = true
		p.cfg.Logger.Warn("tile forgets batches that no replica has confirmed; a failover that loses them ends in a rebase",
			"tile", p.tile, "kept", len(p.kept.batches), "bytes", p.kept.bytes, "forgotten", forgotten[0])
	}
	p.mu.Lock()
	p.status.Forgotten += int64(len(forgotten))
	p.mu.Unlock()
	for _, at := range forgotten {
		p.cfg.Hooks.Forgotten(p.tile, at)
	}
}

// after lists the batches that follow a position of this owner's history; ok is false if the position is
// not one it knows.
func (k *keptBatches) after(p fence.Position) (lost []fence.Commit, ok bool) {
	for i := range k.batches {
		if k.batches[i].Prev == p {
			return k.batches[i:], true
		}
	}
	return nil, false
}

// clear forgets everything: it is confirmed, or history was rebased.
func (k *keptBatches) clear() {
	k.drop(len(k.batches))
	k.batches = nil
}

func (k *keptBatches) drop(n int) {
	for i := range k.batches[:n] {
		k.bytes -= len(k.batches[i].Payload)
		k.batches[i].Payload = nil // the array outlives the slice
	}
	k.batches = k.batches[n:]
}
