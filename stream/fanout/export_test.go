package fanout

import "cmp"

// Tuning are the settings that only tests change.
type Tuning = tuning

// Tune changes such settings before Run.
func (h *Hinter) Tune(t Tuning) {
	h.tuning = Tuning{Timeout: cmp.Or(t.Timeout, h.tuning.Timeout), Every: cmp.Or(t.Every, h.tuning.Every),
		MaxTiles: cmp.Or(t.MaxTiles, h.tuning.MaxTiles)}
}
