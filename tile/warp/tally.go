package warp

import "hash/fnv"

// Tally counts the warps that a tile has led, and is the tile's part in the check that none is split: see Whole.
type Tally struct {
	Gone      uint64 // warps that this tile has led and of which all went
	CalledOff uint64 // and of which all stayed

	// Leave and Come are sums modulo 2^64. Each entity of a warp has a number of its own. The tile that leads adds it
	// to both when all are to go, the tile that the entity leaves takes it from Leave, and the one that it comes to
	// from Come.
	Leave, Come uint64
}

// Tally is what this tile's part in warps has come to.
func (s *State) Tally() Tally { return s.tally }

// Whole reports whether each warp that was decided has moved all of its entities, or none. It is for the tallies of all
// tiles at rest: those of tiles with something under way do not add up yet. A split warp is missed once in 2^64 times.
func Whole(tallies ...Tally) bool {
	var leave, come uint64
	for _, t := range tallies {
		leave, come = leave+t.Leave, come+t.Come
	}
	return leave == 0 && come == 0
}

// decide counts a warp that is decided.
func (t *Tally) decide(warp string, parts []Part, yes bool) {
	if !yes {
		t.CalledOff++
		return
	}
	t.Gone++
	for _, p := range parts {
		n := number(warp, p.Entity)
		t.Leave, t.Come = t.Leave+n, t.Come+n
	}
}

// number is that of an entity of a warp.
func number(warp, entity string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(warp + ":" + entity)) // it never fails
	return h.Sum64()
}
