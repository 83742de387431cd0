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
	return Keys{Owner: p + "owner", Stream: p + "stream", Snapshot: p + "snapshot", Marks: p + "marks", Dead: p + "dead"}
}
