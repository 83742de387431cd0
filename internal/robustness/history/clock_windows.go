package history

import "time"

var began = time.Now()

// Monotonic is a clock of this process alone: one of the whole machine is not needed here, since the campaign does not
// run on Windows.
func Monotonic() int64 { return int64(time.Since(began)) }
