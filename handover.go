package tilefence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// successorsTried is to how many members a tile is offered before it is released.
const successorsTried = 2

// handOver gives the server's tiles to other tile servers, within HandOverTimeout and two fifths of the time until by:
// the rest is for the release of those that stay.
func (s *TileServer) handOver(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithTimeout(ctx, min(s.cfg.HandOverTimeout, time.Until(by)*2/5))
	defer cancel()
	for try := range successorsTried {
		peers := address.TileServers(s.member, s.contact)
		if try >= len(peers) {
			return
		}
		err := s.host.DrainAll(ctx, func(id fence.TileID) string { return address.Preferred(id, peers)[try] })
		if err == nil {
			return
		}
		s.cfg.Logger.Warn("not every tile was handed over", "error", err)
	}
}

// successor takes tiles that other servers hand over, until the server stops: it would have to hand them on.
type successor struct{ *TileServer }

// Accept implements tilehttp.Accepter.
func (s successor) Accept(ctx context.Context, o tile.Handover) error {
	if s.stopping.Load() {
		return tile.ErrHostEnded
	}
	return s.host.Accept(ctx, o)
}

// noteKept notes a tile whose owner ended while the server stops, and held it to the end.
func (s *TileServer) noteKept(i *tilehost.EndInfo) {
	elsewhere := errors.Is(i.Err, tile.ErrSuperseded) || errors.Is(i.Err, fence.ErrLost) ||
		errors.Is(i.Err, tile.ErrQuarantined)
	if i.Err == nil || elsewhere || i.Status.Epoch == 0 || !s.stopping.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[fence.TileID]error{}
	}
	s.kept[i.Status.Tile] = i.Err
}

// unreleased adds to the error of a server that ended the tiles that it still holds.
func (s *TileServer) unreleased(ended error) error {
	e := &UnreleasedError{Contact: s.contact}
	s.mu.Lock()
	for id, err := range s.kept {
		e.Tiles, e.Err = append(e.Tiles, id), err
	}
	s.mu.Unlock()
	for _, t := range s.host.Status() { // its processor has not ended
		switch t.State {
		case tile.Serving, tile.Healing, tile.Draining:
			if !slices.Contains(e.Tiles, t.Tile) {
				e.Tiles = append(e.Tiles, t.Tile)
			}
		default:
		}
	}
	if len(e.Tiles) == 0 {
		return ended
	}
	slices.Sort(e.Tiles)
	s.cfg.Logger.Error("tiles were neither handed over nor released", "tiles", len(e.Tiles), "error", e)
	return errors.Join(e, ended)
}

// UnreleasedError says which tiles a tile server held to its end, neither handed over nor released, because a back end
// or the other servers did not answer in time. Nothing that was confirmed is lost. Other servers take the tiles when
// they suspect their owner, at the latest when the owner hashes have run out. It is a tile.ErrUnreleased.
type UnreleasedError struct {
	Contact string // of the tile server
	Tiles   []fence.TileID
	Err     error // of one of them; nil if it had not ended
}

func (e *UnreleasedError) Error() string {
	const shown = 10
	text := fmt.Sprintf("%d tiles of %s were neither handed over nor released: %v", len(e.Tiles), e.Contact,
		e.Tiles[:min(len(e.Tiles), shown)])
	if len(e.Tiles) > shown {
		text += " and others"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; other tile servers take them over"
}

// Is matches tile.ErrUnreleased.
func (e *UnreleasedError) Is(target error) bool { return target == tile.ErrUnreleased }

// Unwrap returns the error of one of the tiles.
func (e *UnreleasedError) Unwrap() error { return e.Err }
