package headline

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/internal/chart"
	"github.com/tilefence/tilefence/internal/figures"
)

// Charts are the charts of a result: SVG documents by file name, each with its data in its metadata, as CSV.
func (r *Result) Charts() map[string]string {
	return map[string]string{"headline-latency.svg": r.latencyChart(), "headline-bytes.svg": r.bytesChart(),
		"headline-cores.svg": r.coresChart()}
}

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
			data = append(data, []string{strings.ReplaceAll(c.name, ",", ""), chart.Number(p[0]), chart.Number(p[1])})
		}
		curves = append(curves, c)
	}
	c := chart.New("Commit to client: share of the frames that were there after so many milliseconds", data)
	const least, decades = 0.1, 5 // 0.1 ms to 10 s
	x := func(ms float64) float64 {
		return chart.Left + chart.Width*min(max(math.Log10(ms/least)/decades, 0), 1)
	}
	y := func(share float64) float64 { return chart.Top + chart.Height*(1-share) }
	for i := range decades + 1 {
		ms := least * math.Pow(10, float64(i))
		c.AxisX(x(ms), chart.Number(ms))
	}
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		c.AxisY(y(share), fmt.Sprintf("%.0f %%", 100*share))
	}
	c.Text(chart.Left+chart.Width/2, chart.Top+chart.Height+38, "middle", "ms")
	c.Rule(x(budgetLatency), chart.Top, x(budgetLatency), chart.Top+chart.Height, chart.Limit, "5 4")
	for i, curve := range curves {
		var points [][2]float64
		for _, p := range curve.points {
			points = append(points, [2]float64{x(p[0]), y(p[1])})
		}
		c.Curve(curve.name, chart.Colours[i%len(chart.Colours)], points)
	}
	c.Key(chart.Limit, "p99 budget, 100 ms")
	return c.End()
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
			chart.Number(run.Traffic.BytesPerClientTick)})
	}
	c := chart.New("Bytes for each client and tick", data)
	r.columns(c, most, func(i int, x, w float64, y func(float64) float64) {
		v := r.Runs[i].Traffic.BytesPerClientTick
		c.Box(x, y(v), w, y(0)-y(v), chart.Colours[0])
		c.Text(x+w/2, y(v)-5, "middle", chart.Number(v))
	})
	at := chart.Top + chart.Height*(1-budgetBytes/(most*1.1))
	c.Rule(chart.Left, at, chart.Left+chart.Width, at, chart.Limit, "5 4")
	c.Key(chart.Limit, "budget, 600 bytes")
	return c.End()
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
			data = append(data, []string{strings.ReplaceAll(run.size().String(), ",", ""), u.Name,
				chart.Number(u.Cores), chart.Number(u.MiB)})
		}
		most = max(most, sum)
	}
	slices.Sort(names)
	c := chart.New("Processor cores, by what took them", data)
	r.columns(c, most, func(i int, x, w float64, y func(float64) float64) {
		var sum float64
		for n, name := range names {
			for _, u := range r.Runs[i].Actors {
				if u.Name == name {
					c.Box(x, y(sum+u.Cores), w, y(sum)-y(sum+u.Cores), chart.Colours[n%len(chart.Colours)])
					sum += u.Cores
				}
			}
		}
		c.Text(x+w/2, y(sum)-5, "middle", fmt.Sprintf("%.2f", sum))
	})
	for i := len(names) - 1; i >= 0; i-- { // as they are stacked
		c.Key(chart.Colours[i%len(chart.Colours)], names[i])
	}
	return c.End()
}

// columns draws an axis up to most, and for each battle what column draws into a width.
func (r *Result) columns(c *chart.Canvas, most float64, column func(i int, x, w float64, y func(float64) float64)) {
	y := func(v float64) float64 { return chart.Top + chart.Height*(1-v/max(most*1.1, 1e-9)) }
	for i := range 5 {
		v := most * float64(i) / 4
		c.AxisY(y(v), fmt.Sprintf("%.3g", v))
	}
	width := float64(chart.Width) / float64(len(r.Runs))
	for i, run := range r.Runs {
		x := chart.Left + width*float64(i)
		column(i, x+width/4, width/2, y)
		name, rest, _ := strings.Cut(run.size().String(), ", ")
		c.Text(x+width/2, chart.Top+chart.Height+18, "middle", name)
		c.Text(x+width/2, chart.Top+chart.Height+34, "middle", rest)
	}
}
