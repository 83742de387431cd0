package gossip

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/tilefence/tilefence/fence/route"
)

// Waits are the times of a Timing that only tests change. Zero leaves one as it is.
type Waits struct{ Rejoin, Stream, Leave time.Duration }

// With is the timing with such times.
func (t Timing) With(w Waits) Timing {
	t.rejoin, t.stream, t.leave = cmp.Or(w.Rejoin, t.rejoin), cmp.Or(w.Stream, t.stream), cmp.Or(w.Leave, t.leave)
	return t
}

// Between puts something between a node and the network.
func (n *Node) Between(wrap func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport) {
	n.between = wrap
}

// Lookup resolves the names of seeds.
func (n *Node) Lookup(f func(ctx context.Context, host string) ([]string, error)) { n.lookup = f }

// LimitState makes maps travel in parts of limit bytes.
func (n *Node) LimitState(limit int) { n.state.limit = limit }

// LimitQueue changes the most entries of the queue, and returns what it was.
func (n *Node) LimitQueue(most int) (was int) {
	was, n.queue.most = n.queue.most, most
	return was
}

// Receive gives a node the bytes of a packet, and Merge those of a map.
func (n *Node) Receive(b []byte) { delegate{n}.NotifyMsg(b) }
func (n *Node) Merge(b []byte)   { delegate{n}.MergeRemoteState(b, false) }

// Packet is what a node would put into a packet, and State what it would send as its map.
func (n *Node) Packet(limit int) [][]byte { return delegate{n}.GetBroadcasts(3, limit) }
func (n *Node) State() []byte             { return delegate{n}.LocalState(false) }

// The codec.
var (
	EncodeEntries  = encodeEntries
	EncodeFarewell = encodeFarewell
	ErrMalformed   = errMalformed
)

func Decode(b []byte) ([]route.Entry, string, error) {
	m, err := decode(b)
	return m.entries, m.leaving, err
}

// Seal appends the right sum to anything.
func Seal(b []byte) []byte { return seal(b) }

// ForgetTheDead makes memberlist forget them after d.
func (n *Node) ForgetTheDead(d time.Duration) { n.toTheDead = d }
