package memcheckpoint

import (
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// DamageEntry flips a bit of a journal entry's payload; false when there is none to flip.
func (st *store) DamageEntry(tile fence.TileID, seq fence.Seq) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	j := st.journals[tile]
	if j == nil || len(j.entries[seq].Payload) == 0 {
		return false
	}
	e := j.entries[seq]
	e.Frame = slices.Clone(e.Frame)
	e.Frame[len(e.Frame)-len(e.Private)-1] ^= 1
	j.entries[seq] = e
	return true
}
