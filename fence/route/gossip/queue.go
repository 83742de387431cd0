package gossip

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

// maxQueued is the most entries that wait in the queue. One that it drops arrives with the next exchange of maps.
const maxQueued = 1 << 16

// queue holds what is to be spread in packets: entries, one a tile, and farewells. Those sent least often go
// first, and among them the newest; each is removed when it was sent often enough.
//
// memberlist has such a queue, of ready messages: a message for each entry fits about 40 of them into a packet
// of 1,400 bytes, and one for many entries does not fit once memberlist has put something of its own into the
// packet. This queue encodes the entries for the room that is left, more than 200 to a packet, since they
// share contacts; and it never sends an entry that was superseded meanwhile.
type queue struct {
	most int // entries

	mu        sync.Mutex
	tiles     map[fence.TileID]*list.Element
	sent      []*list.List // of *queued, by how often they were sent; newest first
	farewells []farewell
}

type queued struct {
	entry route.Entry
	sent  int
}

type farewell struct {
	msg  []byte
	sent int
}

func newQueue() *queue {
	return &queue{most: maxQueued, tiles: make(map[fence.TileID]*list.Element)}
}

// push queues entries. An entry of a tile that is queued replaces it if it supersedes it.
func (q *queue) push(entries ...route.Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		if was, ok := q.tiles[e.Tile]; ok {
			if !e.Supersedes(was.Value.(*queued).entry) { // nothing else is in the lists
				continue
			}
			q.drop(was)
		}
		q.put(&queued{entry: e})
		if len(q.tiles) > q.most {
			q.dropOldest()
		}
	}
}

// put and drop need the lock, and the functions below them, too.
func (q *queue) put(i *queued) {
	for len(q.sent) <= i.sent {
		q.sent = append(q.sent, list.New())
	}
	q.tiles[i.entry.Tile] = q.sent[i.sent].PushFront(i)
}

func (q *queue) drop(e *list.Element) {
	i := e.Value.(*queued) // as above
	q.sent[i.sent].Remove(e)
	delete(q.tiles, i.entry.Tile)
}

func (q *queue) dropOldest() {
	for _, l := range slices.Backward(q.sent) {
		if oldest := l.Back(); oldest != nil {
			q.drop(oldest)
			return
		}
	}
}

// say queues a farewell.
func (q *queue) say(msg []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.farewells = append(q.farewells, farewell{msg: msg})
}

// take returns messages for one packet of limit bytes, each of which costs overhead bytes more. It counts
// them as sent, and removes what was sent that many times.
func (q *queue) take(overhead, limit, times int) [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	var msgs [][]byte
	for i := range q.farewells {
		if f := &q.farewells[i]; overhead+len(f.msg) <= limit {
			msgs = append(msgs, f.msg)
			limit -= overhead + len(f.msg)
			f.sent++
		}
	}
	q.farewells = slices.DeleteFunc(q.farewells, func(f farewell) bool { return f.sent >= times })
	if msg := q.pack(limit-overhead, times); msg != nil {
		msgs = append(msgs, msg)
	}
	return msgs
}

// pack makes a message of at most limit bytes, nil if not even one entry fits.
func (q *queue) pack(limit, times int) []byte {
	if limit < envelope+minEntry {
		return nil
	}
	next := q.next(limit / 4) // an entry takes hardly less
	var msg []byte
	for written := -1; written < len(next); {
		if written >= 0 {
			next = next[:written] // those that were sent least, not those with the lowest tiles
		}
		msg, written = encodeEntries(byTile(next), limit)
	}
	if len(next) == 0 {
		return nil
	}
	for _, i := range next {
		q.drop(q.tiles[i.entry.Tile])
		if i.sent++; i.sent < times {
			q.put(i)
		}
	}
	return msg
}

func byTile(items []*queued) []route.Entry {
	entries := make([]route.Entry, len(items))
	for i, item := range items {
		entries[i] = item.entry
	}
	slices.SortFunc(entries, func(a, b route.Entry) int { return cmp.Compare(a.Tile, b.Tile) })
	return entries
}

// next returns the first n of the queue.
func (q *queue) next(n int) []*queued {
	var next []*queued
	for _, l := range q.sent {
		for e := l.Front(); e != nil && len(next) < n; e = e.Next() {
			next = append(next, e.Value.(*queued)) // as above
		}
	}
	return next
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tiles)
}
