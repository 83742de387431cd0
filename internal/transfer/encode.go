package transfer

import (
	"bytes"
	"encoding/binary"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// channelSize is what a channel takes in a snapshot beside its transfers, and transferSize what one does beside its
// names and payload, at most.
const (
	channelSize  = 10 + 2*30 + 3*5
	transferSize = 30 + 10 + 3*5 + 10 + 2 + stream.MaxRefusal
)

func size(t *stream.Transfer) int {
	return transferSize + len(t.Entity) + len(t.Actor) + len(t.Payload)
}

// Append appends the state: nothing if it is empty.
//
//	channels  varint count, then for each, ascending by tile:
//	tile      varint
//	settled   ID: three varints, epoch, sequence and place
//	outbox    varint count, transfers
//	parked    varint count, transfers, each followed by a varint length and the reason
//	mark      ID
//	refused   varint count, and for each its ID, a varint length and the reason
//
// A transfer is its ID, its tick and the destination (varints), and, each with its varint length, entity, actor and
// payload.
func (s *State) Append(b []byte) []byte {
	if s.Empty() {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(s.channels)))
	for _, peer := range s.Peers() {
		c := s.channels[peer]
		b = stream.AppendTransferID(binary.AppendUvarint(b, uint64(peer)), c.Settled)
		b = binary.AppendUvarint(b, uint64(len(c.Outbox)))
		for i := range c.Outbox {
			b = stream.AppendTransfer(b, &c.Outbox[i])
		}
		b = binary.AppendUvarint(b, uint64(len(c.Parked)))
		for i := range c.Parked {
			p := &c.Parked[i]
			b = stream.AppendTransfer(b, &p.Transfer)
			b = append(binary.AppendUvarint(b, uint64(len(p.Reason))), p.Reason...)
		}
		b = stream.AppendRefusals(stream.AppendTransferID(b, c.Mark), c.Refused)
	}
	return b
}

// Decode reads what Append wrote, all of b. The error is a *fence.FormatError. Payloads alias b.
func Decode(b []byte) (State, error) {
	s := State{}
	if len(b) == 0 {
		return s, nil
	}
	r := reader{p: b}
	s.channels = map[fence.TileID]*Channel{}
	last := fence.TileID(0)
	for n := r.count(); n > 0 && r.err == nil; n-- {
		peer := fence.TileID(r.number())
		if peer <= last {
			r.fail("channels that are not in order")
		}
		last = peer
		c := r.channel(peer)
		s.channels[peer] = c
		s.bytes += channelSize
		for i := range c.Outbox {
			c.bytes += size(&c.Outbox[i])
		}
		s.bytes += c.bytes
		for i := range c.Parked {
			s.bytes += size(&c.Parked[i].Transfer)
		}
	}
	if len(r.p) > 0 {
		r.fail("bytes after the end")
	}
	if r.err != nil {
		return State{}, r.err
	}
	return s, nil
}

// reader takes a state apart; after the first error it gives zeros.
type reader struct {
	p   []byte
	err error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = &fence.FormatError{What: "transfers", Detail: why}
	}
	r.p = nil
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 {
		r.fail("cut short")
		return 0
	}
	r.p = r.p[n:]
	return v
}

// count is a number of things, each of which takes a byte at least.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.p)) {
		r.fail("more items than bytes")
		return 0
	}
	return int(n)
}

func (r *reader) id() (id stream.TransferID) {
	if r.err == nil {
		id, r.p, r.err = stream.DecodeTransferID(r.p)
	}
	return id
}

func (r *reader) transfer(to fence.TileID) (t stream.Transfer) {
	if r.err == nil {
		t, r.p, r.err = stream.DecodeTransfer(r.p)
	}
	if r.err == nil && t.To != to {
		r.fail("a transfer in the channel of another tile")
	}
	t.Payload = bytes.Clone(t.Payload) // the snapshot is larger, and kept as long
	return t
}

func (r *reader) channel(peer fence.TileID) *Channel {
	c := &Channel{Settled: r.id()}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		c.Outbox = append(c.Outbox, r.transfer(peer))
	}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		p := Return{Transfer: r.transfer(peer)}
		length := r.count()
		if length > stream.MaxRefusal {
			r.fail("a reason that is too long")
			break
		}
		p.Reason, r.p = string(r.p[:length]), r.p[length:]
		c.Parked = append(c.Parked, p)
	}
	if r.err == nil && Check(peer, c.Settled, c.Outbox) != nil {
		r.fail("an outbox that is not in order")
	}
	if c.Mark = r.id(); r.err == nil {
		c.Refused, r.p, r.err = stream.DecodeRefusals(r.p)
	}
	if n := len(c.Refused); n > 0 && c.Refused[n-1].ID.Compare(c.Mark) > 0 {
		r.fail("a refusal of what is not decided")
	}
	return c
}
