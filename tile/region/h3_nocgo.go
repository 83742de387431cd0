//go:build !cgo

package region

// hasH3 says whether the program has the H3 library. Without it Of, At and Disk refuse before they call what follows,
// which is here for the compiler alone.
const hasH3 = false

type (
	h3Cell    uint64
	h3Point   struct{ Lat, Lng float64 }
	h3Polygon struct{ GeoLoop []h3Point }
)

func (h3Cell) Resolution() int                           { return 0 }
func (h3Cell) Children(int) ([]h3Cell, error)            { return nil, ErrNoCgo }
func (h3Cell) GridDisk(int) ([]h3Cell, error)            { return nil, ErrNoCgo }
func (h3Cell) GridDiskDistances(int) ([][]h3Cell, error) { return nil, ErrNoCgo }
func (h3Cell) ChildPos(int) (int, error)                 { return 0, ErrNoCgo }
func (h3Cell) Parent(int) (h3Cell, error)                { return 0, ErrNoCgo }
func (h3Cell) LatLng() (h3Point, error)                  { return h3Point{}, ErrNoCgo }
func (h3Cell) Boundary() ([]h3Point, error)              { return nil, ErrNoCgo }
func latLngToCell(h3Point, int) (h3Cell, error)          { return 0, ErrNoCgo }
func cellsToMultiPolygon([]h3Cell) ([]h3Polygon, error)  { return nil, ErrNoCgo }
