package fence

import "strconv"

// Keys of a tile in the coordination store. All share the hash tag {tile:X}, so they lie in one slot
// and one function call may touch them together. They are part of the wire contract (docs/wire.md).
type Keys struct {
	Owner    string // hash with a time to live: epoch, contact, seq, chain, tick
	Stream   string // stream: one entry a committed batch, id <seq>-0
	Snapshot string // hash: the last snapshot
	Marks    string // hash: the consumers' watermarks
	Dead     string // stream: entries the bridge could not decode
}

// KeysOf returns the keys of a tile in the world without a name; see World.Keys.
func KeysOf(t TileID) Keys { return World{}.Keys(t) }

// Keys returns the keys of a tile in the world. The hash tag is that of the tile alone.
func (w World) Keys(t TileID) Keys {
	var room [len("{tile:ffffffffffffffff}:") + MaxWorld + 1]byte
	b := room[:0]
	if w.Name != "" {
		b = append(append(b, w.Name...), ':')
	}
	b = append(strconv.AppendUint(append(b, "{tile:"...), uint64(t), 16), "}:"...)
	p := string(b)
	all := p + "owner" + p + "stream" + p + "snapshot" + p + "marks" + p + "dead" // one allocation for all of them
	next := func(name string) string {
		key := all[:len(p)+len(name)]
		all = all[len(key):]
		return key
	}
	return Keys{Owner: next("owner"), Stream: next("stream"), Snapshot: next("snapshot"), Marks: next("marks"),
		Dead: next("dead")}
}

// Channel is the channel on which the frames of a tile are published, in the world.
func (w World) Channel(t TileID) string {
	if w.Name == "" {
		return "{tile:" + t.String() + "}:frames"
	}
	return w.Name + ":{tile:" + t.String() + "}:frames"
}
