package gossip

import (
	"bytes"
	"math"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence/route"
)

// few is the most new entries of an exchange of maps that are passed on in packets. More of them travel with
// the exchanges that follow.
const few = 1024

// delegate is what memberlist calls on a node. It implements memberlist.Delegate.
type delegate struct{ *Node }

// NodeMeta implements memberlist.Delegate. It is within the limit, which is 512 bytes.
func (d delegate) NodeMeta(int) []byte { return encodeMeta(d.contact, d.load.get()) }

// NotifyMsg implements memberlist.Delegate.
func (d delegate) NotifyMsg(b []byte) {
	msg, err := decode(b)
	if err != nil {
		d.refuse("packet", len(b), err)
		return
	}
	if msg.leaving != "" {
		if d.members.farewell(msg.leaving) {
			d.queue.say(bytes.Clone(b))
		}
		return
	}
	news := d.table.Learn(msg.entries...)
	d.queue.push(news...)
	d.counts.packets.Add(1)
	d.counts.packetNews.Add(uint64(len(news)))
}

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.queue.take(overhead, limit, retransmits(d.members.count()))
}

// retransmits is how often each member sends what is news to it, by memberlist's own formula.
func retransmits(members int) int {
	return retransmitMult * int(math.Ceil(math.Log10(float64(max(members, 1)+1))))
}

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte { return d.state.encode(d.table) }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	if d.state.same(b) {
		d.counts.states.Add(1)
		return
	}
	msg, err := decode(b)
	if err == nil && msg.leaving != "" {
		err = malformed("a farewell, where a map was expected")
	}
	if err != nil {
		d.refuse("map", len(b), err)
		return
	}
	entries := msg.entries
	if d.table.Known != nil { // or members would remind each other of one that has gone, for ever
		lives := d.members.contacts()
		entries = slices.DeleteFunc(entries, func(e route.Entry) bool { return e.Held() && !lives[e.Contact] })
	}
	news := d.table.Learn(entries...)
	if len(news) <= few {
		d.queue.push(news...)
	}
	d.counts.states.Add(1)
	d.counts.stateNews.Add(uint64(len(news)))
}

// state is the table as it was encoded last. Most exchanges are of maps that have not changed.
type state struct {
	limit int // bytes

	mu   sync.Mutex
	news uint64 // the table's when it was encoded
	msg  []byte // nil: not yet
	part bool   // msg is not the whole map
	from int    // where the next part begins
}

// encode returns the whole map, or the next part of one that is too large for a message. The caller must
// not change it.
func (s *state) encode(table *route.Table) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := table.Stats().News
	if s.msg != nil && s.news == news && !s.part {
		return s.msg
	}
	all := table.Snapshot()
	if s.from >= len(all) {
		s.from = 0
	}
	msg, written := encodeEntries(all[s.from:], s.limit)
	s.from += written
	s.part = written < len(all)
	if !s.part {
		s.from = 0
	}
	s.msg, s.news = msg, news
	return msg
}

// same reports whether b is what this node sent last: then it has nothing that the table has not.
func (s *state) same(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msg != nil && bytes.Equal(b, s.msg)
}
