package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

var (
	errMiscount = errors.New("the log answered another number of tiles")
	errShort    = errors.New("the publisher handed over less than it was given, without an error")
)

const (
	// storeTimeout bounds one call to the log.
	storeTimeout = 2 * time.Second

	// hastyRead bounds the reads of healthy tiles while a node of the log is known to hang: ten times what a busy
	// store takes. Tiles that need longer are read apart from the others, with all of storeTimeout.
	hastyRead = 200 * time.Millisecond
)

// clusters is what a bridge stands between. It bounds every call.
type clusters struct {
	log stream.Log
	pub fanout.Publisher
	cfg *Config
}

func (c *clusters) read(
	ctx context.Context, cursors []stream.Cursor, timeout time.Duration,
) ([]stream.Chunk, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	chunks, err := c.log.Read(ctx, cursors)
	if err == nil && len(chunks) != len(cursors) {
		err = fmt.Errorf("%w: %d of %d", errMiscount, len(chunks), len(cursors))
	}
	return chunks, err
}

func (c *clusters) deadLetter(ctx context.Context, p stream.Poison) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.log.DeadLetter(ctx, p)
}

// publish returns which messages were handed over. exact is false if that is known up to the first failure only.
func (c *clusters) publish(ctx context.Context, m []fanout.Message) (handed func(int) bool, exact bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.PublishTimeout)
	defer cancel()
	sent, err := c.pub.Publish(ctx, m)
	if err == nil && sent < len(m) {
		err = errShort
	}
	if known, ok := errors.AsType[*fanout.PublishError](err); ok {
		return func(i int) bool { return known.Handed[i] }, true, err
	}
	return func(i int) bool { return i < sent }, err == nil, err
}

// mark is one tile's watermarks, to be read or written.
type mark struct {
	id     fence.TileID
	seq    fence.Seq
	last   fence.Position // the entry at seq; zero if it is not known
	shown  fence.Epoch
	rewind bool
	err    error

	trimmed fence.Seq // read only: entries below it are gone
}

// readMarks reads where forwarding of tiles ended.
func (c *clusters) readMarks(ctx context.Context, marks []mark) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ids := make([]fence.TileID, len(marks))
	for i := range marks {
		ids[i] = marks[i].id
	}
	all, err := c.log.Marks(ctx, ids)
	if err == nil && len(all) != len(ids) {
		err = fmt.Errorf("%w: %d of %d", errMiscount, len(all), len(ids))
	}
	for i := range marks {
		if marks[i].err = err; err == nil {
			marks[i].err, marks[i].trimmed = all[i].Err, all[i].Trimmed
			acked := all[i].Marks[stream.BridgeAcked] // zero without one: from the oldest entry
			marks[i].seq, marks[i].last = acked.Seq, acked.Last
		}
	}
}

// writeMarks writes both watermarks of each tile: everything at or below seq is published, nothing above it is
// known to be, and both say so.
func (c *clusters) writeMarks(ctx context.Context, marks []mark) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	writes := make([]stream.MarkWrite, 0, 2*len(marks))
	for i := range marks {
		m := &marks[i]
		w := stream.MarkWrite{Tile: m.id, Consumer: stream.BridgePending, Seq: m.seq, Shown: m.shown,
			Rewind: m.rewind}
		writes = append(writes, w)
		w.Consumer, w.Last = stream.BridgeAcked, m.last
		writes = append(writes, w)
	}
	for i, err := range c.log.Mark(ctx, writes) {
		if m := &marks[i/2]; m.err == nil || errors.Is(m.err, stream.ErrResync) {
			m.err = err // of two that say the same, one is enough; a failure counts more
		}
	}
}
