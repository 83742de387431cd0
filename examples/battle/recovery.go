package main

import (
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// vitals sees every commit, change of state and delivery of this process, and times by them how long the
// tiles that a fault hit need to be well again.
type vitals struct {
	mu      sync.Mutex
	trial   *trial                     // of the fault under way, or nil
	commits map[fence.TileID]time.Time // when each tile last committed
}

func newVitals() *vitals { return &vitals{commits: map[fence.TileID]time.Time{}} }

// trial is a fault as its victims live through it.
type trial struct {
	began, healed time.Time
	victim        string        // contact of a host whose commits do not count until it is healed; may be empty
	settles       time.Duration // commits so soon after the beginning were under way before it
	delivery      bool          // well is: a batch committed after the healing has reached a client
	fenced        bool          // the victim commits nothing to a tile that another has taken
	strayed       int           // batches that it committed all the same
	patients      map[fence.TileID]*patient
	taken         map[fence.TileID]fence.Epoch // under which others have installed themselves
}

// patient is a tile's way through a trial. Zero times: not yet.
type patient struct {
	claimed time.Time // somebody else set about to take it over
	well    time.Time
}

// begin starts a trial.
func (v *vitals) begin(t *trial, tiles []fence.TileID) {
	t.patients, t.taken = map[fence.TileID]*patient{}, map[fence.TileID]fence.Epoch{}
	for _, id := range tiles {
		t.patients[id] = &patient{}
	}
	v.mu.Lock()
	v.trial = t
	v.mu.Unlock()
}

// heal notes that what was broken has been put right.
func (v *vitals) heal(t *trial) {
	v.mu.Lock()
	t.healed = time.Now()
	v.mu.Unlock()
}

// suffering lists the tiles of a trial that are not well yet, in the order of tiles.
func (v *vitals) suffering(t *trial, tiles []fence.TileID) []fence.TileID {
	v.mu.Lock()
	defer v.mu.Unlock()
	open := []fence.TileID{}
	for _, id := range tiles {
		if p := t.patients[id]; p != nil && p.well.IsZero() {
			open = append(open, id)
		}
	}
	return open
}

// result is how long a trial took: until the last tile was claimed by somebody else (zero: none was), and
// until the last was well.
func (v *vitals) result(t *trial) (detection, recovery time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range t.patients {
		if !p.claimed.IsZero() {
			detection = max(detection, p.claimed.Sub(t.began))
		}
		if !p.well.IsZero() {
			recovery = max(recovery, p.well.Sub(t.began))
		}
	}
	return detection, recovery
}

// committedSince reports whether every tile has committed after a moment, and names one that has not.
func (v *vitals) committedSince(since time.Time, tiles []fence.TileID) (fence.TileID, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range tiles {
		if !v.commits[id].After(since) {
			return id, false
		}
	}
	return 0, true
}

// patient finds a tile in the trial under way, if it is still ill. The mutex is held.
func (v *vitals) patient(id fence.TileID) *patient {
	if v.trial == nil {
		return nil
	}
	if p := v.trial.patients[id]; p != nil && p.well.IsZero() {
		return p
	}
	return nil
}

// late is how many batches the victim of a trial has committed to tiles that others had taken from it.
func (v *vitals) late(t *trial) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return t.strayed
}

// committed notes a tick that a host has committed under an epoch.
func (v *vitals) committed(id fence.TileID, host string, epoch fence.Epoch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.commits[id] = now
	p, t := v.patient(id), v.trial
	if t != nil && t.fenced && host == t.victim && epoch < t.taken[id] {
		t.strayed++
	}
	if p != nil && !t.delivery && now.Sub(t.began) >= t.settles && (host != t.victim || !t.healed.IsZero()) {
		p.well = now
	}
}

// installed notes under which epoch a host other than the victim has installed itself: before the tile is well by it.
func (v *vitals) installed(id fence.TileID, host string, epoch fence.Epoch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t := v.trial; t != nil && host != t.victim {
		t.taken[id] = max(t.taken[id], epoch)
	}
}

// takenAfter reports whether a host other than the victim has installed itself under a later epoch than this.
func (v *vitals) takenAfter(id fence.TileID, epoch fence.Epoch) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.trial.taken[id] > epoch
}

// moved notes that a host's processor has gone from one state to another.
func (v *vitals) moved(host string, i tile.TransitionInfo) {
	if i.From == tile.Installing && i.To == tile.Serving {
		v.installed(i.Tile, host, i.Epoch)
		v.committed(i.Tile, host, i.Epoch) // every replica holds the new owner's first batch
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.patient(i.Tile); p != nil && i.To == tile.Claiming && host != v.trial.victim && p.claimed.IsZero() {
		p.claimed = time.Now()
	}
}

// delivered notes a batch that has reached a client; committed is the owner's time of it.
func (v *vitals) delivered(id fence.TileID, committed time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.patient(id); p != nil && v.trial.delivery && !v.trial.healed.IsZero() && committed.After(v.trial.healed) {
		p.well = time.Now()
	}
}
