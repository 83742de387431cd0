//go:build cgo

package region

import h3 "github.com/uber/h3-go/v4"

// hasH3 says whether the program has the H3 library.
const hasH3 = true

// What the package uses of the library.
type (
	h3Cell  = h3.Cell
	h3Point = h3.LatLng
)

var (
	latLngToCell        = h3.LatLngToCell
	cellsToMultiPolygon = h3.CellsToMultiPolygon
)
