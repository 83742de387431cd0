package rim

import (
	"context"
	"maps"
	"slices"
)

// Round reads all tiles once.
func (r *Reader) Round() {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.tiles))
	r.mu.Unlock()
	r.read(context.Background(), all)
}
