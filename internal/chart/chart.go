// Package chart draws the charts of docs/benchmarks.md: SVG documents, each with its data in its metadata, as CSV.
package chart

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The plot: where it is in a chart, and how large. The rest is for labels.
const (
	left, top, width, height          = 60, 50, 470, 270
	chartWidth, chartHeight           = 770, 380
	legendLeft, legendTop, legendStep = left + width + 15, top + 10, 17
	grid                              = "#dddddd"
	limit                             = "#d55e00" // of budgets and marks
)

// colours can be told apart by the colour-blind too; after the last comes the first again.
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", limit, "#f0e442", "#999999",
	"#000000", "#8c564b"}

func colourOf(i int) string { return colours[i%len(colours)] }

// canvas is a chart that is being drawn.
type canvas struct {
	b      strings.Builder
	legend int
}

// begin begins a chart. The first row of data is the names of its columns.
func begin(title string, data [][]string) *canvas {
	c := &canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`,
		chartWidth, chartHeight)
	var csv strings.Builder
	for _, row := range data {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(cell, ",", "")
		}
		csv.WriteString(strings.Join(row, ",") + "\n")
	}
	c.line("<title>%s</title>", escape(title))
	c.line("<metadata>\n%s</metadata>", escape(csv.String()))
	c.line(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	c.text(left, 24, "start", title)
	return c
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}

func (c *canvas) line(format string, args ...any) { fmt.Fprintf(&c.b, format+"\n", args...) }

// text writes a line; anchor is start, middle or end.
func (c *canvas) text(x, y float64, anchor, s string) {
	c.line(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, escape(s))
}

// rule draws a straight line; dash is as in stroke-dasharray.
func (c *canvas) rule(x1, y1, x2, y2 float64, colour, dash string) {
	c.line(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`,
		x1, y1, x2, y2, colour, dash)
}

// box draws a filled rectangle.
func (c *canvas) box(x, y, w, h float64, colour string) {
	c.line(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y, w, h, colour)
}

// curve draws a line through points of the chart, and adds it to the legend.
func (c *canvas) curve(name, colour string, points [][2]float64) {
	var all []string
	for _, p := range points {
		all = append(all, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}
	c.line(`<polyline fill="none" stroke-width="2" stroke="%s" points="%s"/>`, colour, strings.Join(all, " "))
	c.key(colour, name)
}

// key adds a line to the legend.
func (c *canvas) key(colour, name string) {
	y := float64(legendTop + c.legend*legendStep)
	c.box(legendLeft, y-9, 10, 10, colour)
	c.text(legendLeft+15, y, "start", name)
	c.legend++
}

// axisX draws a line across the plot with a label below it.
func (c *canvas) axisX(x float64, label string) {
	c.rule(x, top, x, top+height, grid, "")
	c.text(x, top+height+18, "middle", label)
}

// axisY draws a line along the plot with a label to the left of it.
func (c *canvas) axisY(y float64, label string) {
	c.rule(left, y, left+width, y, grid, "")
	c.text(left-6, y+4, "end", label)
}

// end returns the document.
func (c *canvas) end() string {
	c.line("</svg>")
	return c.b.String()
}

// number is a figure with four significant digits, or a whole number.
func number(v float64) string {
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
			data = append(data, []string{curve.Name, number(p[0]), number(p[1])})
			low, high, most = min(low, p[0]), max(high, p[0]), max(most, p[1])
		}
	}
	for _, v := range s.Limits {
		most = max(most, v)
	}
	for _, v := range s.Marks {
		low, high = min(low, v), max(high, v)
	}
	scale := math.Log10
	low = math.Pow(10, math.Floor(math.Log10(low)))
	if !s.Decade {
		low, scale = 0, func(v float64) float64 { return v }
	}
	x := func(v float64) float64 { return left + width*(scale(v)-scale(low))/max(scale(high)-scale(low), 1e-9) }
	y := func(v float64) float64 { return top + height*(1-v/max(most*1.1, 1e-9)) }
	c := begin(title, data)
	for _, v := range steps(most) {
		c.axisY(y(v), number(v))
	}
	if s.Decade {
		for v := low; v <= high*1.001; v *= 10 {
			c.axisX(x(v), number(v))
		}
	} else {
		for _, v := range steps(high) {
			c.axisX(x(v), number(v))
		}
	}
	c.text(left+width/2, top+height+38, "middle", s.X)
	c.text(left, top-8, "start", s.Y)
	for i, curve := range s.Curves {
		points := make([][2]float64, len(curve.Points))
		for k, p := range curve.Points {
			points[k] = [2]float64{x(p[0]), y(p[1])}
		}
		c.curve(curve.Name, colourOf(i), points)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Marks)) {
		c.rule(x(s.Marks[name]), top, x(s.Marks[name]), top+height, limit, "5 4")
		c.key(limit, name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		c.rule(left, y(s.Limits[name]), left+width, y(s.Limits[name]), limit, "5 4")
		c.key(limit, name)
	}
	return c.end()
}

// Columns are stacked columns, side by side.
type Columns struct {
	Names  []string    // of the columns; what follows a comma stands on a second line
	Parts  []string    // of each column, from the bottom; one that has no name is not in the legend
	Values [][]float64 // of each column, by part
	Limit  float64     // not to be exceeded; zero: none
	Budget string      // what the limit is
}

// Draw returns the chart.
func (s *Columns) Draw(title string) string {
	data, most := [][]string{{"column", "part", "value"}}, s.Limit
	for i, values := range s.Values {
		sum := 0.0
		for part, v := range values {
			data = append(data, []string{s.Names[i], s.Parts[part], number(v)})
			sum += v
		}
		most = max(most, sum)
	}
	y := func(v float64) float64 { return top + height*(1-v/max(most*1.1, 1e-9)) }
	c := begin(title, data)
	for _, v := range steps(most) {
		c.axisY(y(v), number(v))
	}
	each := float64(width) / float64(len(s.Names))
	for i, name := range s.Names {
		x, sum := left+each*float64(i), 0.0
		for part, v := range s.Values[i] {
			c.box(x+each/4, y(sum+v), each/2, y(sum)-y(sum+v), colourOf(part))
			sum += v
		}
		first, rest, _ := strings.Cut(name, ", ")
		c.text(x+each/2, y(sum)-5, "middle", number(sum))
		c.text(x+each/2, top+height+18, "middle", first)
		c.text(x+each/2, top+height+34, "middle", rest)
	}
	for i, part := range slices.Backward(s.Parts) { // as they are stacked
		if part != "" {
			c.key(colourOf(i), part)
		}
	}
	if s.Limit > 0 {
		c.rule(left, y(s.Limit), left+width, y(s.Limit), limit, "5 4")
		c.key(limit, s.Budget)
	}
	return c.end()
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

// mark comes before the JSON of a series in the log of a benchmark.
const mark = ": series {"

// Line is what a benchmark logs (testing.B.Log) to have the series drawn; Parse finds it there.
func (s *Series) Line() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "unreadable series " + s.Name + ": " + err.Error() // a figure that is not a number
	}
	return "series " + string(text)
}

// Parse finds the series in the output of go test -bench. Of several with the same name the last counts.
func Parse(out string) (map[string]Series, error) {
	all := map[string]Series{}
	for line := range strings.Lines(out) {
		_, text, ok := strings.Cut(line, mark)
		if !ok {
			continue
		}
		var s Series
		if err := json.Unmarshal([]byte("{"+text), &s); err != nil {
			return nil, err
		}
		all[s.Name] = s
	}
	return all, nil
}
