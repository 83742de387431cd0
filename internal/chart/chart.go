// Package chart draws the charts of docs/benchmarks.md: SVG documents, each with its data in its metadata, as CSV.
package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The plot: where it is in a chart, and how large. The rest is for labels.
const (
	Left   = 60
	Top    = 50
	Width  = 470
	Height = 270
)

const (
	chartWidth, chartHeight           = 720, 380
	legendLeft, legendTop, legendStep = Left + Width + 15, Top + 10, 17
	grid                              = "#dddddd"
)

// Limit is the colour of budgets and of marks.
const Limit = "#d55e00"

// Colours can be told apart by the colour-blind too; after the last comes the first again.
var Colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", Limit, "#f0e442", "#999999",
	"#000000", "#8c564b"}

// Canvas is a chart that is being drawn. Create one with New.
type Canvas struct {
	b      strings.Builder
	legend int
}

// New begins a chart. The first row of data is the names of its columns.
func New(title string, data [][]string) *Canvas {
	c := &Canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`,
		chartWidth, chartHeight)
	var csv strings.Builder
	for _, row := range data {
		csv.WriteString(strings.Join(row, ",") + "\n")
	}
	c.line("<title>%s</title>", escape(title))
	c.line("<metadata>\n%s</metadata>", escape(csv.String()))
	c.line(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	c.Text(Left, 24, "start", title)
	return c
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}

func (c *Canvas) line(format string, args ...any) { fmt.Fprintf(&c.b, format+"\n", args...) }

// Text writes a line; anchor is start, middle or end.
func (c *Canvas) Text(x, y float64, anchor, s string) {
	c.line(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, escape(s))
}

// Rule draws a straight line; dash is as in stroke-dasharray.
func (c *Canvas) Rule(x1, y1, x2, y2 float64, colour, dash string) {
	c.line(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`,
		x1, y1, x2, y2, colour, dash)
}

// Box draws a filled rectangle.
func (c *Canvas) Box(x, y, w, h float64, colour string) {
	c.line(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y, w, h, colour)
}

// Curve draws a line through points of the chart, and adds it to the legend.
func (c *Canvas) Curve(name, colour string, points [][2]float64) {
	var all []string
	for _, p := range points {
		all = append(all, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}
	c.line(`<polyline fill="none" stroke-width="2" stroke="%s" points="%s"/>`, colour, strings.Join(all, " "))
	c.Key(colour, name)
}

// Key adds a line to the legend.
func (c *Canvas) Key(colour, name string) {
	y := float64(legendTop + c.legend*legendStep)
	c.Box(legendLeft, y-9, 10, 10, colour)
	c.Text(legendLeft+15, y, "start", name)
	c.legend++
}

// AxisX draws a line across the plot with a label below it.
func (c *Canvas) AxisX(x float64, label string) {
	c.Rule(x, Top, x, Top+Height, grid, "")
	c.Text(x, Top+Height+18, "middle", label)
}

// AxisY draws a line along the plot with a label to the left of it.
func (c *Canvas) AxisY(y float64, label string) {
	c.Rule(Left, y, Left+Width, y, grid, "")
	c.Text(Left-6, y+4, "end", label)
}

// End returns the document.
func (c *Canvas) End() string {
	c.line("</svg>")
	return c.b.String()
}

// Number is a figure with four significant digits, or a whole number.
func Number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Series is how something went on over time, or with size. It is what a benchmark logs for its chart; see Line.
type Series struct {
	Name   string             `json:"name"`
	X      string             `json:"x"` // what the first number of each point is, with its unit
	Y      string             `json:"y"`
	Curves []Curve            `json:"curves"`
	Marks  map[string]float64 `json:"marks,omitempty"`  // moments, by what happened then
	Limits map[string]float64 `json:"limits,omitempty"` // values of Y that are not to be exceeded, by name
	Decade bool               `json:"decade,omitempty"` // X is shown on a logarithmic scale
}

// Curve is one quantity of a Series.
type Curve struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"` // ascending
}

// Draw returns the chart of a series.
func (s *Series) Draw(title string) string {
	data := [][]string{{"curve", s.X, s.Y}}
	var most float64
	low, high := math.Inf(1), math.Inf(-1)
	for _, curve := range s.Curves {
		for _, p := range curve.Points {
			data = append(data, []string{curve.Name, Number(p[0]), Number(p[1])})
			low, high, most = min(low, p[0]), max(high, p[0]), max(most, p[1])
		}
	}
	for _, v := range s.Limits {
		most = max(most, v)
	}
	scale := math.Log10
	if !s.Decade {
		low, scale = 0, func(v float64) float64 { return v }
	}
	x := func(v float64) float64 { return Left + Width*(scale(v)-scale(low))/max(scale(high)-scale(low), 1e-9) }
	y := func(v float64) float64 { return Top + Height*(1-v/max(most*1.1, 1e-9)) }
	c := New(title, data)
	for _, v := range steps(most) {
		c.AxisY(y(v), Number(v))
	}
	if s.Decade {
		for v := low; v <= high*1.001; v *= 10 {
			c.AxisX(x(v), Number(v))
		}
	} else {
		for _, v := range steps(high) {
			c.AxisX(x(v), Number(v))
		}
	}
	c.Text(Left+Width/2, Top+Height+38, "middle", s.X)
	c.Text(Left, Top-8, "start", s.Y)
	for i, curve := range s.Curves {
		points := make([][2]float64, len(curve.Points))
		for k, p := range curve.Points {
			points[k] = [2]float64{x(p[0]), y(p[1])}
		}
		c.Curve(curve.Name, Colours[i%len(Colours)], points)
	}
	for _, name := range sorted(s.Marks) {
		c.Rule(x(s.Marks[name]), Top, x(s.Marks[name]), Top+Height, Limit, "5 4")
		c.Key(Limit, name)
	}
	for _, name := range sorted(s.Limits) {
		c.Rule(Left, y(s.Limits[name]), Left+Width, y(s.Limits[name]), Limit, "5 4")
		c.Key(Limit, name)
	}
	return c.End()
}

// steps are some round numbers from zero to most.
func steps(most float64) (all []float64) {
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1e-9)/4)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if n := math.Floor(most / (step * factor) * (1 + 1e-9)); n <= 6 {
			for i := range int(n) + 1 {
				all = append(all, float64(i)*step*factor)
			}
			return all
		}
	}
	return []float64{0}
}

func sorted(m map[string]float64) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
