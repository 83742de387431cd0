//go:build !race

package gossip_test

const galaxySize = 100_000
