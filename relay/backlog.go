package relay

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// backlog is what a relay holds for clients that have not taken it yet, over all clients: encoded Syncs, which can be
// large, and frames. Each client is bounded by itself, but strangers can be many, say nothing, and make every Sync a
// different one by what they claim to hold.
//
//   - Syncs are counted once for all clients that are sent the same. When they are too many, the next one waits, and
//     the clients that have been taking the oldest for longer than stall are closed: one that reads has it within
//     moments.
//   - Frames are counted for each client. When they are too many, a client is queued no more than one at a time; what
//     it misses comes as a Sync when it has read the others. Clients that read do not notice.
type backlog struct {
	maxSyncs, maxFrames int
	clients             int // that there may be
	stall               time.Duration
	turns               *overload.Control // to make Syncs: over maxSyncs by as many at most

	frames atomic.Int64 // bytes queued or being written

	mu    sync.Mutex
	syncs map[*byte]*heldSync // being written
	order []*heldSync         // of them, by age; some are written
	bytes int                 // of all
}

// heldSync is one Sync that is being written to some clients.
type heldSync struct {
	key     *byte // nil: it is written
	bytes   int
	clients map[*client]time.Time // since when
}

func newBacklog(cfg *Config) *backlog {
	return &backlog{maxSyncs: cfg.RelaySyncBytes, maxFrames: cfg.RelayQueueBytes,
		clients: cfg.MaxClients, stall: cfg.syncStall,
		turns: overload.New(runtime.GOMAXPROCS(0), cfg.MaxClients, frameTarget), syncs: map[*byte]*heldSync{}}
}

// frameTarget is how long frames may wait to be written. If all of them wait for longer, for an interval in which each
// tile has a tick, Syncs are made one at a time, and new clients are sent away.
const frameTarget = 50 * time.Millisecond

// sync queues the Sync that a client is due, and counts it; ok is false if there is no room for it. It waits for its
// turn, which the actors have one after another.
func (b *backlog) sync(c *client, owed due) (queued []byte, ok bool) {
	turn := overload.Request{Holder: c.sess.Holder(), Class: overload.Owed}
	if b.turns.Enter(context.Background(), turn) != nil {
		return nil, false
	}
	defer func() { b.turns.Leave(time.Now()) }()
	if !b.room(time.Now()) {
		return nil, false
	}
	if queued = owed.sync(); queued != nil {
		b.hold(c, queued)
	}
	return queued, true
}

// room reports whether another Sync may be made. If there is none, clients that have stalled make it.
func (b *backlog) room(now time.Time) bool {
	b.mu.Lock()
	if b.bytes < b.maxSyncs {
		b.mu.Unlock()
		return true
	}
	stalled := b.oldest(now)
	b.mu.Unlock()
	for _, c := range stalled {
		if c.shut(relaypb.CloseTooSlow, "not reading while the relay has no room", false) {
			c.count.slowCloses.Add(1)
		}
		_ = c.wire.Close() // its writer is in the middle of the Sync
	}
	return false
}

// oldest names the clients that have stalled over the oldest Sync that has any. The mutex is held.
func (b *backlog) oldest(now time.Time) (stalled []*client) {
	b.order = slices.DeleteFunc(b.order, (*heldSync).written)
	for _, h := range b.order {
		for c, since := range h.clients {
			if now.Sub(since) >= b.stall {
				stalled = append(stalled, c)
			}
		}
		if len(stalled) > 0 {
			break
		}
	}
	return stalled
}

// hold counts a Sync that is about to be written to a client.
func (b *backlog) hold(c *client, msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.syncs[&msg[0]]
	if h == nil {
		h = &heldSync{key: &msg[0], bytes: len(msg), clients: map[*client]time.Time{}}
		b.syncs[h.key] = h
		b.order = append(b.order, h)
		b.bytes += h.bytes
	}
	h.clients[c] = time.Now()
}

// release counts it out.
func (b *backlog) release(c *client, msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.syncs[&msg[0]]
	if h == nil {
		return
	}
	if delete(h.clients, c); len(h.clients) > 0 {
		return
	}
	delete(b.syncs, h.key)
	b.bytes -= h.bytes
	h.key = nil // which would hold the memory
	if len(b.order) > 2*len(b.syncs)+16 {
		b.order = slices.DeleteFunc(b.order, (*heldSync).written)
	}
}

func (h *heldSync) written() bool { return h.key == nil }

// fairTimes is the part of maxFrames that all clients together may have waiting when it is used up: each the same.
const fairTimes = 8

// full reports whether clients that do not read have too many frames waiting, for one that would have some bytes
// waiting. What is little for a client is never too much.
func (b *backlog) full(bytes int) bool {
	return b != nil && b.frames.Load() > int64(b.maxFrames) && bytes > b.maxFrames/fairTimes/b.clients
}

func (b *backlog) count(bytes int) {
	if b != nil && bytes != 0 {
		b.frames.Add(int64(bytes))
	}
}
