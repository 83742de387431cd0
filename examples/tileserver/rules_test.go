package main

import (
	"math/rand/v2"
	"testing"

	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

func TestDoorbell(t *testing.T) {
	tiletest.Run(t, newDoorbell, func(*rand.Rand) tile.Intent { return tile.Intent{Actor: "ann"} }, nil)
}
