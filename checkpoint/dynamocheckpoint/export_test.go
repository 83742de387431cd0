package dynamocheckpoint

import "time"

// SetChunkSize makes snapshots of more than n bytes chunked, so that tests need not write megabytes.
func (st *Store) SetChunkSize(n int) { st.chunkSize = n }

// ForgetSweeps makes orphans due to be looked for again, as an hour later or in a new process.
func (st *Store) ForgetSweeps() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for tile, mem := range st.tiles {
		mem.swept = time.Time{}
		st.tiles[tile] = mem
	}
}
