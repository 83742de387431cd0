//go:build race

package gossip_test

// galaxySize is a tenth with the race detector, which costs as much.
const galaxySize = 10_000
