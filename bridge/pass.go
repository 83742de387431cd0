package bridge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// lettersAPass bounds the dead letters one tile writes in one pass: each is a round trip that the other
// tiles wait for.
const lettersAPass = 8

// letterSlow is from when on a dead letter counts as slow. After a slow one the tile is taken for one that fails, so
// that the healthy ones wait for no other, and the failing ones for one in each pass: a round trip takes a few
// milliseconds.
const letterSlow = 100 * time.Millisecond

var errSlowLetters = errors.New("dead letters take long; the rest of the tile's are written apart from healthy tiles")

// letterAttempts is how often a poison entry is offered to the dead letters before the bridge goes on
// without: a store that refuses nothing but dead letters must not stop the tile.
const letterAttempts = 3

// pass is one read of many tiles and one publish of what they had. It touches nothing but its own parts
// and is the same for healthy and for failing tiles.
type pass struct {
	retry bool
	hasty bool // a node of the log hangs: it is not waited for long
	began time.Time
	parts []part

	info      PassInfo
	readErr   error // the read failed as a whole
	pubErr    error
	pubFailed int // the part of the first message not handed over, if pubErr does not say more; else -1

	cursors  []stream.Cursor
	messages []fanout.Message
}

// part is one tile's share of a pass.
type part struct {
	cursor cursor
	limit  int
	woken  bool // read because of a hint
	slow   bool // a dead letter took long

	entries   int // read
	bytes     int // of their payloads
	more      bool
	frames    []frame
	published PublishedInfo // Batches zero: nothing
	unsent    int           // frames not handed over
	oldest    time.Time     // commit time of the first of them, or else of the last entry read

	drops     []dropInfo
	letters   []deadLetterInfo
	gaps      []gapInfo
	regressed *regressInfo

	op  Op // what failed, if err is not nil
	err error
}

// frame is an entry on its way.
type frame struct {
	position fence.Position
	at       time.Time // of its commit, by the owner's clock; zero: unknown
	before   place     // where the tile stands if this is not handed over
	data     []byte
}

// clear empties p for its next use and lets go of what it refers to.
func (p *pass) clear() {
	parts := p.parts
	for i := range parts {
		pt := &parts[i]
		clear(pt.frames)
		*pt = part{frames: pt.frames[:0]}
	}
	clear(p.messages)
	*p = pass{parts: parts, cursors: p.cursors, messages: p.messages[:0]}
}

// run reads and publishes.
func (p *pass) run(ctx context.Context, c *clusters) {
	p.began, p.pubFailed = time.Now(), -1
	p.cursors = p.cursors[:0]
	for i := range p.parts {
		pt := &p.parts[i]
		p.cursors = append(p.cursors, stream.Cursor{Tile: pt.cursor.id, After: pt.cursor.read, Limit: pt.limit})
	}
	timeout := storeTimeout
	if p.hasty {
		timeout = hastyRead
	}
	chunks, err := c.read(ctx, p.cursors, timeout)
	p.info = PassInfo{Tiles: len(p.parts), Retry: p.retry, Read: time.Since(p.began)}
	p.readErr = err
	for i := range p.parts {
		pt := &p.parts[i]
		if err != nil {
			pt.fail(OpRead, err)
			continue
		}
		damage := beyond(&chunks[i])
		if pt.sift(ctx, c, &chunks[i]); damage != nil && pt.err == nil && pt.regressed == nil {
			pt.fail(OpRead, damage)
		}
		p.info.Entries += pt.entries
	}
	p.publish(ctx, c)
}

// met reports whether the read of a pass met a node of the log that hangs. If all of it failed in haste, the log may
// just be slow.
func (p *pass) met() bool {
	if p.retry || p.info.Read < hastyRead || p.hasty && p.readErr != nil {
		return false
	}
	return slices.ContainsFunc(p.parts, func(pt part) bool {
		_, unanswered := errors.AsType[*fence.StoreError](pt.err)
		return pt.op == OpRead && unanswered
	})
}

// beyond cuts off a chunk from the first entry of a sequence that no tile comes to, and returns it as damage: to go on
// after it would leave nothing to read.
func beyond(chunk *stream.Chunk) error {
	for i := range chunk.Entries {
		if e := &chunk.Entries[i]; e.Seq > fence.FarSeq {
			p := poisonOf(e, "no tile comes to this sequence")
			chunk.Entries, chunk.Poison = chunk.Entries[:i], nil
			return p.Damage()
		}
	}
	if p := chunk.Poison; p != nil && p.Seq > fence.FarSeq {
		chunk.Poison = nil
		return p.Damage()
	}
	return nil
}

// sift decides the fate of every entry of a chunk and moves the tile's cursor past them.
func (pt *part) sift(ctx context.Context, to *clusters, chunk *stream.Chunk) {
	if chunk.Err != nil {
		pt.fail(OpRead, chunk.Err)
		return
	}
	c := &pt.cursor
	from := c.read
	if c.regressed(chunk) {
		pt.regressed = &regressInfo{Tile: c.id, Read: from, Last: chunk.Owner.Position}
		pt.more = true
		return
	}
	defects := make([]string, len(chunk.Entries))
	for i := range chunk.Entries {
		defects[i] = defect(&chunk.Entries[i])
	}
	current := c.current(&chunk.Owner, chunk.Entries, defects)
	for i := range chunk.Entries {
		e := &chunk.Entries[i]
		if defects[i] != "" {
			if !pt.bury(ctx, to, poisonOf(e, defects[i])) {
				return
			}
		} else {
			pt.take(e, current)
			pt.oldest = e.At
		}
		pt.entries++
		pt.bytes += len(e.Frame)
	}
	if chunk.Poison != nil && chunk.Poison.Seq > c.read {
		if !pt.bury(ctx, to, *chunk.Poison) {
			return
		}
		pt.entries++
		pt.more = true
	}
	full := len(chunk.Entries) >= pt.limit && !(chunk.Owner.Present() && chunk.Owner.Position.Seq == c.read)
	pt.more = c.read > from && (pt.more || full)
}

// take forwards or drops a sound entry.
func (pt *part) take(e *fence.Entry, current fence.Epoch) {
	c := &pt.cursor
	if !c.follows(e) && c.once(notice{seq: e.Seq, gap: true}) {
		have := c.last
		have.Seq = c.read
		pt.gaps = append(pt.gaps, gapInfo{Tile: c.id, Have: have, Next: e.Position, Prev: e.Prev})
	}
	before := c.place
	reason := c.judge(e, current)
	c.settle(e.Position)
	switch {
	case reason == 0:
		pt.frames = append(pt.frames, frame{position: e.Position, at: e.At, before: before, data: e.Frame})
	case c.once(notice{seq: e.Seq}):
		pt.drops = append(pt.drops, dropInfo{Tile: c.id, Position: e.Position, Reason: reason})
	}
}

// bury dead-letters a poison entry and moves past it. It is false if the rest of the chunk has to wait.
func (pt *part) bury(ctx context.Context, to *clusters, p stream.Poison) bool {
	c := &pt.cursor
	if !slices.Contains(c.counted, notice{seq: p.Seq}) {
		switch {
		case pt.slow:
			pt.fail(OpDeadLetter, errSlowLetters)
			return false
		case len(pt.letters) == lettersAPass:
			pt.more = true
			return false
		}
		began := time.Now()
		err := to.deadLetter(ctx, p)
		pt.slow = pt.slow || time.Since(began) > letterSlow
		if err != nil {
			if c.letters++; c.letters < letterAttempts {
				pt.fail(OpDeadLetter, err)
				return false
			}
		}
		pt.letters = append(pt.letters, deadLetterInfo{Tile: p.Tile, Epoch: p.Epoch, Seq: p.Seq, Reason: p.Reason,
			Err: err})
		c.letters = 0
		c.once(notice{seq: p.Seq})
	}
	c.settle(fence.Position{Seq: p.Seq})
	return true
}

// publish sends the frames of all parts in one call, and takes back what was not handed over.
func (p *pass) publish(ctx context.Context, c *clusters) {
	for i := range p.parts {
		for _, f := range p.parts[i].frames {
			p.messages = append(p.messages, fanout.Message{Tile: p.parts[i].cursor.id, Data: f.data})
		}
	}
	if len(p.messages) == 0 {
		for i := range p.parts {
			p.parts[i].cursor.forget()
		}
		return
	}
	began := time.Now()
	handed, exact, err := c.publish(ctx, p.messages)
	now := time.Now()
	p.info.Publish, p.pubErr = now.Sub(began), err
	first := 0
	for i := range p.parts {
		pt := &p.parts[i]
		n := 0
		for n < len(pt.frames) && handed(first+n) {
			n++
		}
		first += len(pt.frames)
		if n < len(pt.frames) && !exact && p.pubFailed < 0 {
			p.pubFailed = i
		}
		pt.settlePublished(n, now, err)
		p.info.Sent += n
		p.info.Unsent += pt.unsent
		p.info.Bytes += pt.published.Bytes
	}
}

// settlePublished books that the first n frames were handed over at now, and takes the others back.
func (pt *part) settlePublished(n int, now time.Time, err error) {
	c := &pt.cursor
	if n > 0 {
		first, last := &pt.frames[0], &pt.frames[n-1]
		var lag time.Duration
		if !first.at.IsZero() { // the owner said when
			lag = max(0, now.Sub(first.at))
		}
		pt.published = PublishedInfo{Tile: c.id, Last: last.position, Batches: n, Lag: lag}
		for i := range pt.frames[:n] {
			pt.published.Bytes += len(pt.frames[i].data)
			if i < n-1 {
				pt.published.Earlier = append(pt.published.Earlier, pt.frames[i].position)
			}
		}
		c.sent, c.marked = last.position, false
	}
	if n < len(pt.frames) {
		c.place = pt.frames[n].before
		pt.unsent, pt.oldest = len(pt.frames)-n, pt.frames[n].at
		pt.more = false
		pt.fail(OpPublish, err)
	}
	c.forget()
}

// waiting is how many entries are known to wait, and the commit time of the oldest of them, or one a little
// before it. What was not read is counted by the owner's sequence.
func (pt *part) waiting() (n int, oldest time.Time) {
	n = pt.unsent
	if c := &pt.cursor; (pt.err != nil || pt.more) && c.end.Seq > c.read && pt.entries >= pt.limit {
		n = max(n, int(c.end.Seq-c.read))
	}
	return n, pt.oldest
}

// fail notes why the tile has to try again.
func (pt *part) fail(op Op, err error) { pt.op, pt.err = op, err }
