package viewcache

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/keyring"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/stream"
)

// View is a tile's history as a client that joins needs it, without what only owners read.
type View struct {
	stream.Recovery             // of Tail, only Entries and Position are set
	Owner           fence.Owner // as it was when the view was read; may be absent
	Stale           bool        // there may be more: another relay is reading it, or has read it
}

// A value in the store, big-endian:
//
//	version  1 byte, 2
//	tag      32 bytes: HMAC-SHA256 under a key of the deployment, of "tilefence view 2" and what follows
//	tile     8 bytes
//	message  a relaypb.Sync
//
// The Sync of a base has from (its position), tick, taken_ms and blob: a snapshot blob as package stream encodes it,
// without the private part. The Sync of a tail has from (its base), position, tail, owner_epoch and owner_contact.
const (
	valueVersion = 2
	valueTag     = 1 + sha256.Size
	valueHead    = valueTag + 8
)

// signs is what keeps a tag from being taken for one of something else.
var signs = []byte("tilefence view 2")

// codec writes and reads values under the keys of the deployment: the first signs, all are accepted.
type codec struct{ keys [][]byte }

func (c codec) seal(tile fence.TileID, m *relaypb.Sync) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, valueHead, valueHead+proto.Size(m)), m)
	if err != nil {
		return nil, err
	}
	b[0] = valueVersion
	binary.BigEndian.PutUint64(b[valueTag:], uint64(tile))
	copy(b[1:], keyring.Sign(c.keys[0], signs, b[valueTag:]))
	return b, nil
}

// damaged says what is wrong with a value of the store.
func damaged(tile fence.TileID, at fence.Position, detail string) error {
	return &fence.CorruptError{Tile: tile, What: "cached view", At: at, Detail: detail}
}

// unseal checks that b is a value of the tile that a relay of the deployment wrote.
func (c codec) unseal(tile fence.TileID, at fence.Position, b []byte) (*relaypb.Sync, error) {
	switch {
	case len(b) < valueHead:
		return nil, damaged(tile, at, fmt.Sprintf("%d bytes are too few", len(b)))
	case b[0] != valueVersion:
		return nil, damaged(tile, at, fmt.Sprintf("version %d, this reader knows %d", b[0], valueVersion))
	case !keyring.Signed(c.keys, b[1:valueTag], signs, b[valueTag:]):
		return nil, damaged(tile, at, "no relay that has a key of this deployment wrote it")
	}
	if of := fence.TileID(binary.BigEndian.Uint64(b[valueTag:])); of != tile {
		return nil, damaged(tile, at, "it is of tile "+of.String())
	}
	m := &relaypb.Sync{}
	if err := proto.Unmarshal(b[valueHead:], m); err != nil {
		return nil, damaged(tile, at, err.Error())
	}
	return m, nil
}

func (c codec) encodeBase(tile fence.TileID, s *fence.Snapshot) ([]byte, error) {
	return c.seal(tile, &relaypb.Sync{From: relaypb.FromPosition(s.Position), Tick: uint64(s.Tick),
		TakenMs: uint64(fence.Millis(s.Taken)), Blob: s.Blob})
}

func (c codec) encodeTail(tile fence.TileID, v *View) ([]byte, error) {
	m := &relaypb.Sync{From: relaypb.FromPosition(v.Snapshot.Position), Position: relaypb.FromPosition(v.Position),
		OwnerEpoch: uint64(v.Owner.Epoch), OwnerContact: strings.ToValidUTF8(v.Owner.Contact, "?"),
		Tail: make([]*relaypb.Frame, len(v.Entries))}
	for i := range v.Entries {
		m.Tail[i] = relaypb.FromEntry(&v.Entries[i])
	}
	return c.seal(tile, m)
}

// decodeTail reads the tail of a version. Its chain is verified from the base on as well: what a relay wrote by mistake
// is no history either.
func (c codec) decodeTail(tile fence.TileID, version viewstore.Version, b []byte) (*View, error) {
	m, err := c.unseal(tile, version.At, b)
	if err != nil {
		return nil, err
	}
	v := &View{Owner: fence.Owner{Tile: tile, Epoch: fence.Epoch(m.GetOwnerEpoch()), Contact: m.GetOwnerContact()}}
	v.Snapshot.Position, v.HasSnapshot = version.Base, !version.Base.IsZero()
	if m.GetFrom().Fence() != version.Base || m.GetPosition().Fence() != version.At {
		return nil, damaged(tile, version.At, "it is of another version")
	}
	v.Entries = make([]fence.Entry, len(m.GetTail()))
	at := version.Base
	for i, f := range m.GetTail() {
		e := f.Entry(tile)
		if err := e.Verify(); err != nil || e.Prev != at {
			return nil, damaged(tile, version.At, fmt.Sprintf("entry %s does not follow %s", e.Position, at))
		}
		at, v.Entries[i] = e.Position, e
	}
	if at != version.At {
		return nil, damaged(tile, version.At, "its entries end at "+at.String())
	}
	v.Position = at
	return v, nil
}

// decodeBase reads the snapshot of a version into the view of its tail.
func (c codec) decodeBase(tile fence.TileID, v *View, b []byte) error {
	at := v.Snapshot.Position
	m, err := c.unseal(tile, at, b)
	if err != nil {
		return err
	}
	if m.GetFrom().Fence() != at || m.GetPosition() != nil {
		return damaged(tile, at, "it is of another snapshot")
	}
	game, _, err := stream.OpenSnapshot(m.GetBlob())
	if err != nil {
		return damaged(tile, at, err.Error())
	}
	v.Snapshot = fence.Snapshot{Position: at, Tick: fence.Tick(m.GetTick()), Sum: fence.Checksum(game),
		Taken: fence.FromMillis(int64(min(m.GetTakenMs(), fence.MaxNumber))), Blob: m.GetBlob()}
	return nil
}
