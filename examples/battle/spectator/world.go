package spectator

import (
	"math"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/region"
)

// Pitch is the distance between the centres of adjacent cells in a World's plane, averaged over the
// first tile.
const Pitch = 100

// World is what the page needs to know once: where things are and where to listen. The plane is a
// stereographic projection around the middle of the tiles, which keeps hexagons regular; x grows to the
// east, y to the south, and coordinates are whole numbers in units of which Pitch lie between cells.
type World struct {
	// Relay is the address of the relay's WebSocket: a ws:// or wss:// URL, or a path on the page's own
	// host.
	Relay string `json:"relay"`

	TickMillis int64        `json:"tickMs"` // time between ticks, milliseconds
	Pitch      int          `json:"pitch"`
	Tiles      []TileGround `json:"tiles"`
}

// TileGround is one tile's geometry. Points are flat: x, y, x, y, ….
type TileGround struct {
	Tile    fence.TileID `json:"tile"`
	Outline []int        `json:"outline"` // of the union of its cells
	Corners []int        `json:"corners"` // of one cell, relative to its centre
	Cells   []int        `json:"cells"`   // centres, in the order of region.Cells

	// Spans has the first cell of each area, from area 1, and in the end the number of cells; Around the areas that
	// touch each one.
	Spans  []int   `json:"spans"`
	Around [][]int `json:"around"`
}

// NewWorld computes the geometry of tiles, which should be neighbours: all are drawn at one scale, and
// far from their middle the projection stretches. relay is as in World. A *fence.ArgumentError names a
// tile that has no ground, an empty list, or a tick that is not at least a millisecond.
func NewWorld(relay string, tick time.Duration, tiles ...fence.TileID) (World, error) {
	switch {
	case relay == "":
		return World{}, &fence.ArgumentError{Field: "relay", Value: relay,
			Want: "a WebSocket URL, or a path on the page's host"}
	case tick < time.Millisecond:
		return World{}, &fence.ArgumentError{Field: "tick", Value: tick, Want: "at least a millisecond"}
	case len(tiles) == 0:
		return World{}, &fence.ArgumentError{Field: "tiles", Value: 0, Want: "at least one"}
	}
	grounds := make([]*region.Region, len(tiles))
	var middle vector
	for i, t := range tiles {
		r, err := region.Of(t)
		if err != nil {
			return World{}, err
		}
		grounds[i] = r
		middle = middle.plus(onSphere(r.Center(0))) // H3 order begins in the middle
	}
	p := newPlane(middle)
	p.scale = Pitch / p.meanPitch(grounds[0])
	w := World{Relay: relay, TickMillis: tick.Milliseconds(), Pitch: Pitch}
	for _, r := range grounds {
		w.Tiles = append(w.Tiles, p.ground(r))
	}
	return w, nil
}

// ground projects one tile.
func (p *plane) ground(r *region.Region) TileGround {
	centres := make([]point, r.Len())
	for i := range centres {
		centres[i] = p.project(r.Center(i))
	}
	g := TileGround{Tile: r.ID()}
	for _, c := range centres {
		g.Cells = c.appendRounded(g.Cells)
	}
	for a := fence.Area(1); int(a) <= r.Areas(); a++ {
		first, _ := r.Span(a)
		around := make([]int, len(r.Around(a)))
		for i, b := range r.Around(a) {
			around[i] = int(b)
		}
		g.Spans, g.Around = append(g.Spans, first), append(g.Around, around)
	}
	g.Spans = append(g.Spans, r.Len())
	for _, o := range r.Outline() {
		g.Outline = p.project(o).appendRounded(g.Outline)
	}
	// A cell on the edge of a face of H3's icosahedron has more corners, a pentagon has fewer.
	shape := 0
	for len(r.Corners(shape)) != 6 {
		shape++
	}
	for _, c := range r.Corners(shape) {
		g.Corners = p.project(c).minus(centres[shape]).appendRounded(g.Corners)
	}
	return g
}

// point is a place in the plane.
type point struct{ x, y float64 }

func (a point) minus(b point) point { return point{a.x - b.x, a.y - b.y} }
func (a point) length() float64     { return math.Hypot(a.x, a.y) }
func (a point) appendRounded(to []int) []int {
	return append(to, int(math.Round(a.x)), int(math.Round(a.y)))
}

// vector is a direction from the middle of the earth.
type vector struct{ x, y, z float64 }

func onSphere(p region.Point) vector {
	lat, lng := p.Lat*math.Pi/180, p.Lng*math.Pi/180
	return vector{math.Cos(lat) * math.Cos(lng), math.Cos(lat) * math.Sin(lng), math.Sin(lat)}
}

func (a vector) plus(b vector) vector { return vector{a.x + b.x, a.y + b.y, a.z + b.z} }
func (a vector) dot(b vector) float64 { return a.x*b.x + a.y*b.y + a.z*b.z }
func (a vector) cross(b vector) vector {
	return vector{a.y*b.z - a.z*b.y, a.z*b.x - a.x*b.z, a.x*b.y - a.y*b.x}
}

// unit returns a's direction, or the given one when a has none.
func (a vector) unit(otherwise vector) vector {
	n := math.Sqrt(a.dot(a))
	if n < 1e-9 {
		return otherwise
	}
	return vector{a.x / n, a.y / n, a.z / n}
}

// plane is a stereographic projection around a middle.
type plane struct {
	up, east, north vector
	scale           float64
}

func newPlane(middle vector) *plane {
	up := middle.unit(vector{1, 0, 0})
	east := vector{0, 0, 1}.cross(up).unit(vector{0, 1, 0}) // at a pole any direction is as good
	return &plane{up: up, east: east, north: up.cross(east), scale: 1}
}

func (p *plane) project(at region.Point) point {
	v := onSphere(at)
	f := p.scale * 2 / max(1+v.dot(p.up), 1e-6)
	return point{f * v.dot(p.east), -f * v.dot(p.north)}
}

// meanPitch is the mean distance between adjacent cells.
func (p *plane) meanPitch(r *region.Region) float64 {
	sum, n := 0.0, 0
	for i := range r.Len() {
		for _, j := range r.Adjacent(i) {
			sum += p.project(r.Center(int(j))).minus(p.project(r.Center(i))).length()
			n++
		}
	}
	return sum / float64(n)
}
