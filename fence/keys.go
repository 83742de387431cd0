package fence

// Keys of a tile in the coordination store. All share the hash tag {tile:X}, so they lie in one slot
// and one function call may touch them together. They are part of the wire contract (docs/wire.md).
type Keys struct {
	Owner    string // hash with a time to live: epoch, contact, seq, chain, tick
	Stream   string // stream: one entry a committed batch, id <seq>-0
	Snapshot string // hash: the last snapshot
	Marks    string // hash: the consumers' watermarks
	Dead     string // stream: entries the bridge could not decode
}

// KeysOf returns the keys of a tile.
func KeysOf(t TileID) Keys {
	p := "{tile:" + t.String() + "}:"
	all := p + "owner" + p + "stream" + p + "snapshot" + p + "marks" + p + "dead" // one allocation for all of them
	next := func(name string) string {
		key := all[:len(p)+len(name)]
		all = all[len(key):]
		return key
	}
	return Keys{Owner: next("owner"), Stream: next("stream"), Snapshot: next("snapshot"), Marks: next("marks"),
		Dead: next("dead")}
}
