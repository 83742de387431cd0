//go:build seeded

package simulation

import _ "unsafe" // for go:linkname

//go:linkname setSeed runtime.setSeed
func setSeed(uint64)

func init() { repeats = setSeed }
