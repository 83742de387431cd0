//go:build linux

package headline

import (
	"fmt"
	"slices"

	"github.com/tilefence/tilefence/internal/chart"
	"github.com/tilefence/tilefence/internal/figures"
)

// Charts are the charts of a result: SVG documents by file name, each with its data in its metadata, as CSV. They mark
// two budgets, if they are not zero: p99 from commit to client in milliseconds, and bytes a client and tick.
func (r *Result) Charts(p99, size float64) map[string]string {
	latency := chart.Series{X: "ms", Y: "% of the frames", Decade: true, Marks: map[string]float64{}}
	if p99 > 0 {
		latency.Marks[fmt.Sprintf("p99 budget, %g ms", p99)] = p99
	}
	bytes := chart.Columns{Parts: []string{""}, Limit: size, Budget: fmt.Sprintf("budget, %g bytes", size)}
	var cores chart.Columns
	for i := range r.Runs {
		for _, u := range r.Runs[i].Actors {
			if !slices.Contains(cores.Parts, u.Name) {
				cores.Parts = append(cores.Parts, u.Name)
			}
		}
	}
	slices.Sort(cores.Parts)
	for i := range r.Runs {
		run := &r.Runs[i]
		name := run.size().String()
		latency.Curves = append(latency.Curves, chart.Curve{Name: name, Points: shares(run.Latency.Bars)})
		bytes.Names, cores.Names = append(bytes.Names, name), append(cores.Names, name)
		bytes.Values = append(bytes.Values, []float64{run.Traffic.BytesPerClientTick})
		taken := make([]float64, len(cores.Parts))
		for _, u := range run.Actors {
			taken[slices.Index(cores.Parts, u.Name)] = u.Cores
		}
		cores.Values = append(cores.Values, taken)
	}
	return map[string]string{
		"headline-latency.svg": latency.Draw("Commit to client: frames that were there after so many milliseconds"),
		"headline-bytes.svg":   bytes.Draw("Bytes for each client and tick"),
		"headline-cores.svg":   cores.Draw("Processor cores, by what took them"),
	}
}

// shares turns bars into a curve from no frame to all of them, in per cent.
func shares(bars []figures.Bar) (points [][2]float64) {
	var all, sum int64
	for _, b := range bars {
		all += b.Count
	}
	for _, b := range bars {
		sum += b.Count
		points = append(points, [2]float64{b.Upto, 100 * float64(sum) / float64(all)})
	}
	return points
}

func (r *Run) size() Size { return Size{Players: r.Players} }
