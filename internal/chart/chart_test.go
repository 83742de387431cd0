package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/chart"
)

func TestASeriesFromTheLogToTheChart(t *testing.T) {
	s := chart.Series{Name: "kill", X: "seconds", Y: "tickets", Marks: map[string]float64{"killed": 1},
		Limits: map[string]float64{"budget": 50},
		Curves: []chart.Curve{{Name: "waiting", Points: [][2]float64{{0, 10}, {2, 0}}}}}
	out := "pkg: example.com/m\nBenchmarkKill-2  1  5 ns/op\n--- BENCH: BenchmarkKill-2\n    kill_test.go:9: " +
		s.Line() + "\nPASS\n"
	all, err := chart.Parse(out)
	require.NoError(t, err)
	require.Equal(t, map[string]chart.Series{"kill": s}, all)
	_, err = chart.Parse("    kill_test.go:9: series {\"name\": 1}\n")
	require.Error(t, err)
	s.Curves[0].Points[0][1] = math.NaN()
	assert.NotContains(t, s.Line(), "series {")

	drawn := all["kill"]
	svg := drawn.Draw("Tickets & a kill")
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	assert.Contains(t, svg, "curve,seconds,tickets\nwaiting,0,10\nwaiting,2,0\n", "its data")
	assert.Contains(t, svg, "Tickets &amp; a kill")
	// The curve falls from 10 of 55 at the left edge to the right lower corner; the mark is in the middle.
	assert.Contains(t, svg, `points="60.0,270.9 530.0,320.0"`)
	assert.Contains(t, svg, `x1="295.0"`)
}

func TestAxesHaveRoundNumbers(t *testing.T) {
	for most, want := range map[float64]string{10_000: ">10000<", 2.12: ">0.5<", 346: ">100<", 50: ">10<",
		0.3: ">0.05<"} {
		s := chart.Series{Curves: []chart.Curve{{Name: "a", Points: [][2]float64{{0, 0}, {1, most}}}}}
		svg := s.Draw("x")
		assert.Contains(t, svg, want, "%g", most)
		assert.Contains(t, svg, ">0.2<", "the other axis")
		assert.LessOrEqual(t, strings.Count(svg, `text-anchor="end"`), 7)
	}
	s := chart.Series{}
	assert.Contains(t, s.Draw("nothing"), "</svg>")
}

func TestDecades(t *testing.T) {
	s := chart.Series{X: "players", Y: "ms", Decade: true,
		Curves: []chart.Curve{{Name: "p50", Points: [][2]float64{{10, 1}, {100, 1}, {1000, 1}}}}}
	assert.Regexp(t, `points="60\.0,\S+ 295\.0,\S+ 530\.0,`, s.Draw("x"))
}
