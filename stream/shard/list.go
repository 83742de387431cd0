package shard

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// keepListing lists the tiles of each shard that is held when that is due, until ctx ends.
func (s *Share) keepListing(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		shard, sh, wait := s.nextList(time.Now())
		if sh != nil && wait <= 0 {
			s.listOne(ctx, shard, sh)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-timer.C:
		}
	}
}

// nextList is the shard to be listed next, and in how long.
func (s *Share) nextList(now time.Time) (shard int, sh *shardTiles, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, candidate := range s.shards {
		if sh == nil || candidate.due.Before(sh.due) {
			shard, sh = i, candidate
		}
	}
	if sh == nil {
		return 0, nil, s.cfg.RefreshTiles
	}
	return shard, sh, sh.due.Sub(now)
}

func (s *Share) listOne(ctx context.Context, shard int, sh *shardTiles) {
	low, high := s.ranges.Bounds(shard)
	call, cancel := context.WithTimeout(ctx, s.cfg.ListTimeout)
	tiles, err := s.list(call, low, high)
	cancel()
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Lists++
	ok := err == nil
	if err != nil {
		s.stats.ListErrors++
		s.cfg.Logger.Warn("tiles not listed", "shard", shard, "error", err)
	} else if s.shards[shard] == sh { // it may have been lost meanwhile, and gained again
		ok = s.apply(sh, tiles, low, high)
	}
	sh.due = time.Now().Add(s.cfg.RefreshTiles)
	if !ok {
		sh.due = time.Now().Add(s.cfg.RetryList)
	}
}

// apply enters a list, and is false if the target did not take what is new. The caller holds s.mu.
func (s *Share) apply(sh *shardTiles, tiles []fence.TileID, low, high fence.TileID) bool {
	listed := make(map[fence.TileID]bool, len(tiles))
	var fresh []fence.TileID
	for _, t := range tiles {
		if t == 0 || t < low || t > high || listed[t] {
			continue
		}
		listed[t] = true
		info := sh.tiles[t]
		if info == nil {
			fresh = append(fresh, t)
			continue
		}
		if !info.listed {
			s.stats.Unlisted--
		}
		*info = tileInfo{listed: true}
	}
	s.dropAbsent(sh, listed)
	if len(fresh) == 0 {
		return true
	}
	if !s.add(fresh...) {
		return false
	}
	for _, t := range fresh {
		sh.tiles[t] = &tileInfo{listed: true}
	}
	s.stats.Tiles += len(fresh)
	return true
}

// dropAbsent removes the tiles that lists have lacked, and hints not named, for long enough.
func (s *Share) dropAbsent(sh *shardTiles, listed map[fence.TileID]bool) {
	var gone []fence.TileID
	for t, info := range sh.tiles {
		if listed[t] {
			continue
		}
		if info.hinted {
			info.hinted, info.absent = false, 0
			continue
		}
		if info.absent++; info.absent < absences {
			continue
		}
		gone = append(gone, t)
		if !info.listed {
			s.stats.Unlisted--
		}
		delete(sh.tiles, t)
	}
	if len(gone) > 0 {
		s.stats.Tiles -= len(gone)
		s.target.Remove(gone...)
	}
}
