package tilefence

import "time"

// SetPatience makes the server miss bridges and checkpointers after d. Call it before Run.
func (s *TileServer) SetPatience(d time.Duration) {
	s.consumers.After, s.consumers.Silent = d, 3*d
}

// SetStopping makes the server believe that it is stopping.
func (s *TileServer) SetStopping() { s.stopping.Store(true) }
