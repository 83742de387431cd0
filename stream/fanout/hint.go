package fanout

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/tilefence/tilefence/fence"
)

// HintGroups is into how many groups, and so channels, the wake hints of all tiles are divided. It is part
// of the wire contract: enough to spread over the nodes of a large cluster, few enough that hints given
// within the same millisecond share a message.
const HintGroups = 16

// MaxHints is the most tiles one hint message names.
const MaxHints = 4096

// hintVersion is the first byte of every hint message.
const hintVersion = 1

const hintHeader = 3 // version and count

// HintPublisher sends wake hints: "these tiles have, or may have, new entries". A hint is worth little and
// may be lost; it only spares a reader a poll.
type HintPublisher interface {
	// PublishHints sends a hint for each tile, of any groups and in any order, in as few round trips as
	// the back end allows. It tries once. A *PublishError knows of each tile, by its place in tiles,
	// whether its hint was handed over. A *fence.ArgumentError if a tile is zero; nothing is
	// sent then.
	PublishHints(ctx context.Context, tiles []fence.TileID) error
}

// HintSubscriber receives wake hints.
type HintSubscriber interface {
	// SubscribeHints calls deliver with the tiles of every hint message of the group, 0 to HintGroups-1,
	// until stop is called. It does no I/O and does not wait: up(true) is called once the subscription is
	// in force, up(false) when it is found to be no more, and so on; a reader that relies on hints polls
	// meanwhile. No loss of the subscription that is noticed goes unreported, however short.
	//
	// Each of deliver and up is called in order, one call at a time for each subscription, and must not block:
	// a subscriber that falls behind loses hints. The tiles are shared with other subscribers: do not change
	// them. stop waits for running calls and is safe to call twice, but not from deliver or up. A
	// *fence.ArgumentError if the group does not exist or a function is nil.
	SubscribeHints(group int, deliver func(tiles []fence.TileID), up func(inForce bool)) (stop func(), err error)
}

// HintGroupOf is the group of a tile's hints: the upper 4 bits of the product of the tile and
// 0x9e3779b97f4a7c15, modulo 2^64. It is part of the wire contract.
func HintGroupOf(t fence.TileID) int { return int(uint64(t) * 0x9e3779b97f4a7c15 >> 60) }

// HintChannel is the name of a group's channel. It is part of the wire contract (docs/wire.md).
func HintChannel(group int) string { return "{tilefence:hints:" + strconv.Itoa(group) + "}" }

// AppendHints appends an encoded hint message to dst: big-endian, without a gap,
//
//	version  1 byte, 1
//	count    2 bytes, 1 to 4,096
//	tiles    8 bytes each, of the channel's group
//
// The tiles are 1 to MaxHints of one group.
func AppendHints(dst []byte, tiles []fence.TileID) []byte {
	dst = append(dst, hintVersion)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(tiles)))
	for _, t := range tiles {
		dst = binary.BigEndian.AppendUint64(dst, uint64(t))
	}
	return dst
}

// DecodeHints reads a message that came on the group's channel. A *fence.FormatError says what is wrong;
// nothing is returned then. It takes no more memory than the message itself.
func DecodeHints(group int, p []byte) ([]fence.TileID, error) {
	if len(p) < hintHeader {
		return nil, badHints("%d bytes", len(p))
	}
	if p[0] != hintVersion {
		return nil, badHints("version %d, this reader knows %d", p[0], hintVersion)
	}
	n := int(binary.BigEndian.Uint16(p[1:]))
	if n == 0 || n > MaxHints {
		return nil, badHints("%d tiles, not 1 to %d", n, MaxHints)
	}
	if len(p) != hintHeader+8*n {
		return nil, badHints("%d bytes for %d tiles", len(p), n)
	}
	tiles := make([]fence.TileID, n)
	for i := range tiles {
		t := fence.TileID(binary.BigEndian.Uint64(p[hintHeader+8*i:]))
		if t == 0 || HintGroupOf(t) != group {
			return nil, badHints("tile %s is not of group %d", t, group)
		}
		tiles[i] = t
	}
	return tiles, nil
}

func badHints(format string, args ...any) error {
	return &fence.FormatError{What: "hints", Detail: fmt.Sprintf(format, args...)}
}
