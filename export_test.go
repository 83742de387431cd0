package tilefence

import "time"

// SetPatience makes the server miss bridges and checkpointers after d. Call it before Run.
func (s *TileServer) SetPatience(d time.Duration) { s.consumers.after = d }
