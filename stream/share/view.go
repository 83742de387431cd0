package share

import (
	"hash/fnv"
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// patience is how many answers in a row after an outage must lack a member before it is presumed dead: each member
// that lives has had the time for a heartbeat since the first of them.
const patience = 4

// view is which members one member believes to be alive.
type view struct {
	self    string
	names   []string // ascending; empty before the first heartbeat
	seeds   []uint64 // of the names
	absent  map[string]int
	joined  bool // a heartbeat was answered
	failing bool // the last heartbeat was not answered
	settle  int  // answers that are still to come before the list can be taken at its word
}

// failed notes a heartbeat without an answer. A member that has seen no other yet works alone.
func (v *view) failed() (changed bool) {
	v.failing = true
	return len(v.names) == 0 && v.set([]string{v.self})
}

// answered notes the answer to a heartbeat. After an outage, or when the list was lost, members that are not on the
// list are kept until they have had the time to come back.
func (v *view) answered(living []string, known bool) (changed bool) {
	if v.joined && (v.failing || !known) {
		v.settle = patience
	}
	v.joined, v.failing = true, false
	absent := map[string]int{}
	for _, name := range v.names {
		if n := v.absent[name] + 1; v.settle > 0 && n < patience && !slices.Contains(living, name) {
			absent[name] = n
			living = append(living, name)
		}
	}
	v.absent, v.settle = absent, max(0, v.settle-1)
	if !slices.Contains(living, v.self) {
		living = append(living, v.self)
	}
	slices.Sort(living)
	return v.set(living)
}

func (v *view) set(names []string) (changed bool) {
	if slices.Equal(names, v.names) {
		return false
	}
	v.names, v.seeds = names, make([]uint64, len(names))
	for i, name := range names {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // it never fails
		v.seeds[i] = h.Sum64()
	}
	return true
}

// member is whose score for the tile is the highest; of equal ones, the first by name. It is "" before the first
// heartbeat.
func (v *view) member(tile fence.TileID) (name string) {
	var best uint64
	for i, seed := range v.seeds {
		if s := score(seed ^ uint64(tile)); name == "" || s > best {
			name, best = v.names[i], s
		}
	}
	return name
}

// score is the finalizer of MurmurHash3 (fmix64). It is part of the wire contract (docs/wire.md).
func score(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
