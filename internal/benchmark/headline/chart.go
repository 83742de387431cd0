package headline

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/internal/figures"
)

// Charts are the charts of a result: SVG documents by file name, each with its data in its metadata, as CSV.
func (r *Result) Charts() map[string]string {
	return map[string]string{"headline-latency.svg": r.latencyChart(), "headline-bytes.svg": r.bytesChart(),
		"headline-cores.svg": r.coresChart()}
}

// The size of a chart, and of what is drawn in it. The rest is for labels.
const (
	chartWidth, chartHeight           = 720, 380
	plotLeft, plotTop, plotW, plotH   = 60, 50, 470, 270
	legendLeft, legendTop, legendStep = plotLeft + plotW + 15, plotTop + 10, 17
)

// colours can be told apart by the colour-blind too; after the last comes the first again.
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
	"#000000", "#8c564b"}

// canvas is a chart that is being drawn.
type canvas struct {
	strings.Builder
	legend int
}

func newCanvas(title string, data [][]string) *canvas {
	c := &canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`,
		chartWidth, chartHeight)
	var csv strings.Builder
	for _, row := range data {
		csv.WriteString(strings.Join(row, ",") + "\n")
	}
	c.line("<title>%s</title>", escape(title))
	c.line("<metadata>\n%s</metadata>", escape(csv.String()))
	c.line(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	c.text(plotLeft, 24, "start", title)
	return c
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}

func (c *canvas) line(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor, s string) {
	c.line(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, escape(s))
}

func (c *canvas) rule(x1, y1, x2, y2 float64, colour, dash string) {
	c.line(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="%s"/>`,
		x1, y1, x2, y2, colour, dash)
}

func (c *canvas) box(x, y, w, h float64, colour string) {
	c.line(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y, w, h, colour)
}

// key adds a line to the legend.
func (c *canvas) key(colour, name string) {
	y := float64(legendTop + c.legend*legendStep)
	c.box(legendLeft, y-9, 10, 10, colour)
	c.text(legendLeft+15, y, "start", name)
	c.legend++
}

func (c *canvas) end() string {
	c.line("</svg>")
	return c.String()
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }

// latencyChart draws for each battle how many of the frames were with their clients after how long.
func (r *Result) latencyChart() string {
	data := [][]string{{"battle", "upto_ms", "share"}}
	type curve struct {
		name   string
		points [][2]float64 // ms, share
	}
	var curves []curve
	for _, run := range r.Runs {
		c := curve{name: run.size().String(), points: shares(run.Latency.Bars)}
		for _, p := range c.points {
			data = append(data, []string{strings.ReplaceAll(c.name, ",", ""), number(p[0]), number(p[1])})
		}
		curves = append(curves, c)
	}
	c := newCanvas("Commit to client: share of the frames that were there after so many milliseconds", data)
	const least, decades = 0.1, 5 // 0.1 ms to 10 s
	x := func(ms float64) float64 {
		return plotLeft + plotW*min(max(math.Log10(ms/least)/decades, 0), 1)
	}
	y := func(share float64) float64 { return plotTop + plotH*(1-share) }
	for i := range decades + 1 {
		ms := least * math.Pow(10, float64(i))
		c.rule(x(ms), plotTop, x(ms), plotTop+plotH, "#dddddd", "")
		c.text(x(ms), plotTop+plotH+18, "middle", number(ms))
	}
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		c.rule(plotLeft, y(share), plotLeft+plotW, y(share), "#dddddd", "")
		c.text(plotLeft-6, y(share)+4, "end", fmt.Sprintf("%.0f %%", 100*share))
	}
	c.text(plotLeft+plotW/2, plotTop+plotH+38, "middle", "ms")
	c.rule(x(budgetLatency), plotTop, x(budgetLatency), plotTop+plotH, "#d55e00", "5 4")
	for i, curve := range curves {
		var points []string
		for _, p := range curve.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
		}
		c.line(`<polyline fill="none" stroke-width="2" stroke="%s" points="%s"/>`, colours[i%len(colours)],
			strings.Join(points, " "))
		c.key(colours[i%len(colours)], curve.name)
	}
	c.key("#d55e00", "p99 budget, 100 ms")
	return c.end()
}

// The budgets that the charts show. What is judged by stands with the others, in benchreport.
const budgetLatency, budgetBytes = 100, 600

// shares turns bars into a curve from no frame to all of them.
func shares(bars []figures.Bar) (points [][2]float64) {
	var all, sum int64
	for _, b := range bars {
		all += b.Count
	}
	for _, b := range bars {
		sum += b.Count
		points = append(points, [2]float64{b.Upto, float64(sum) / float64(all)})
	}
	return points
}

func (r *Run) size() Size { return Size{Players: r.Players, Pinned: r.Pinned} }

// bytesChart draws what each client was sent for each tick.
func (r *Result) bytesChart() string {
	data := [][]string{{"battle", "bytes_per_client_tick"}}
	most := float64(budgetBytes)
	for _, run := range r.Runs {
		most = max(most, run.Traffic.BytesPerClientTick)
		data = append(data, []string{strings.ReplaceAll(run.size().String(), ",", ""),
			number(run.Traffic.BytesPerClientTick)})
	}
	c := newCanvas("Bytes for each client and tick", data)
	r.columns(c, most, func(i int, x, w float64, y func(float64) float64) {
		v := r.Runs[i].Traffic.BytesPerClientTick
		c.box(x, y(v), w, y(0)-y(v), colours[0])
		c.text(x+w/2, y(v)-5, "middle", number(v))
	})
	at := plotTop + plotH*(1-budgetBytes/(most*1.1))
	c.rule(plotLeft, at, plotLeft+plotW, at, "#d55e00", "5 4")
	c.key("#d55e00", "budget, 600 bytes")
	return c.end()
}

// coresChart stacks what each kind of process took of the processors.
func (r *Result) coresChart() string {
	data := [][]string{{"battle", "actor", "cores", "mib"}}
	var most float64
	var names []string
	for _, run := range r.Runs {
		var sum float64
		for _, u := range run.Actors {
			sum += u.Cores
			if !slices.Contains(names, u.Name) {
				names = append(names, u.Name)
			}
			data = append(data, []string{strings.ReplaceAll(run.size().String(), ",", ""), u.Name, number(u.Cores),
				number(u.MiB)})
		}
		most = max(most, sum)
	}
	slices.Sort(names)
	c := newCanvas("Processor cores, by what took them", data)
	r.columns(c, most, func(i int, x, w float64, y func(float64) float64) {
		var sum float64
		for n, name := range names {
			for _, u := range r.Runs[i].Actors {
				if u.Name == name {
					c.box(x, y(sum+u.Cores), w, y(sum)-y(sum+u.Cores), colours[n%len(colours)])
					sum += u.Cores
				}
			}
		}
		c.text(x+w/2, y(sum)-5, "middle", fmt.Sprintf("%.2f", sum))
	})
	for i := len(names) - 1; i >= 0; i-- { // as they are stacked
		c.key(colours[i%len(colours)], names[i])
	}
	return c.end()
}

// columns draws an axis up to most, and for each battle what column draws into a width.
func (r *Result) columns(c *canvas, most float64, column func(i int, x, w float64, y func(float64) float64)) {
	y := func(v float64) float64 { return plotTop + plotH*(1-v/max(most*1.1, 1e-9)) }
	for i := range 5 {
		v := most * float64(i) / 4
		c.rule(plotLeft, y(v), plotLeft+plotW, y(v), "#dddddd", "")
		c.text(plotLeft-6, y(v)+4, "end", fmt.Sprintf("%.3g", v))
	}
	width := float64(plotW) / float64(len(r.Runs))
	for i, run := range r.Runs {
		x := plotLeft + width*float64(i)
		column(i, x+width/4, width/2, y)
		name, rest, _ := strings.Cut(run.size().String(), ", ")
		c.text(x+width/2, plotTop+plotH+18, "middle", name)
		c.text(x+width/2, plotTop+plotH+34, "middle", rest)
	}
}
