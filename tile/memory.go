package tile

import (
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// streamMemory keeps a tile's stream within Config.MaxStreamBytes. What consumers hold of it is the trim's to take
// from them. What lies after the snapshot nobody may remove, so when no snapshot can be saved and the bound is
// reached, the tile stops to commit events: one tile stands still, where a node without memory would stop all that
// are on it.
type streamMemory struct {
	limit    int64
	measured int64 // by the store, at the last trim; zero before this owner's first
	added    int64 // committed since then, or found at the beginning, about
	stands   bool  // the tile commits no events because the stream is full
}

// entryOverhead is about what the store takes for an entry beside its payload.
const entryOverhead = 160

func (m *streamMemory) grow(payload int) { m.added += int64(payload) + entryOverhead }

// followed books an entry that was committed by somebody else, whose trims are not seen here. It comes to no more than
// makes the first snapshot after a take-over due, with which the stream is measured.
func (m *streamMemory) followed(payload int) {
	m.grow(payload)
	m.added = min(m.added, m.limit/8)
}

// pressing reports whether the stream has grown by enough for a snapshot and a trim out of turn: an eighth of the
// bound, so that the alarm at three quarters comes before anything is taken from anybody.
func (m *streamMemory) pressing() bool { return m.added >= m.limit/8 || m.full() }

func (m *streamMemory) full() bool { return m.measured+m.added > m.limit }

// alarming is the alarm of a trim, while nothing is trimmed because there is no snapshot.
func (m *streamMemory) alarming() bool {
	t := stream.Trimmed{Bytes: m.measured + m.added}
	return t.Alarming(m.limit)
}

// trimmed books what a trim that began when the stream had grown by added has left.
func (m *streamMemory) trimmed(t *stream.Trimmed, added int64) {
	m.measured, m.added = t.Bytes, m.added-added
}

// trimStream trims, on behalf of a snapshot that was saved or could not be.
func (p *TileProcessor) trimStream(trim func() (stream.Trimmed, error), info *SnapshotInfo) {
	if _, refused := errors.AsType[*fence.RefusedError](info.Err); refused {
		return // somebody else's tile, or somebody else's snapshot
	}
	t, err := trim()
	if err != nil {
		info.Err = errors.Join(info.Err, err)
		return
	}
	info.Trimmed, info.Alarm = &t, t.Alarming(p.cfg.MaxStreamBytes)
	log := p.cfg.Logger
	for _, c := range t.Expired {
		log.Warn("consumer stopped moving and no longer holds the stream; it has to resync", "tile", p.tile, "consumer", c)
	}
	for _, c := range t.Evicted {
		log.Error("stream was out of bounds, and its slowest consumer no longer holds it; it has to resync", "tile", p.tile, "consumer", c,
			"limit", p.cfg.MaxStreamBytes)
	}
	if info.Alarm {
		log.Error("stream comes near the bound of its memory", "tile", p.tile, "bytes", t.Bytes, "limit", p.cfg.MaxStreamBytes,
			"entries", t.Entries, "held by", t.Held)
	}
}

// standStill reports whether the tile may commit no events now, and says so when that begins and when it ends.
func (p *TileProcessor) standStill() bool {
	full := p.memory.full()
	if full != p.memory.stands {
		p.memory.stands = full
		p.mu.Lock()
		p.status.StreamFull = full
		p.mu.Unlock()
		if full {
			p.cfg.Logger.Error("stream is full and no snapshot covers it: the tile stands still", "tile", p.tile, "limit", p.cfg.MaxStreamBytes)
		} else {
			p.cfg.Logger.Warn("stream is within bounds again: the tile goes on", "tile", p.tile)
		}
	}
	return full
}
