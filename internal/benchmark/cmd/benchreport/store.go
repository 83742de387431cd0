//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/tilefence/tilefence/internal/benchmark/headline"
	"github.com/tilefence/tilefence/internal/chart"
)

// The page is written from these files beside it.
const (
	sectionsFile = "benchmarks.json"
	headlineFile = "headline.json"
)

// figures are all results that the page shows. Sections and headline are measured by commands of their own, and each
// leaves the other's figures as they were.
type figures struct {
	Sections map[string]measured // by title
	Headline *headline.Result    // nil: never played
}

// measured are the results of a section, and where they come from.
type measured struct {
	Machine headline.Machine `json:"machine"`
	Results []result         `json:"results"`

	Series map[string]chart.Series `json:"series,omitempty"` // by name, for charts
}

// load reads the figures beside a page; files that do not exist hold none.
func load(page string) (f figures, err error) {
	f.Sections = map[string]measured{}
	if err = readJSON(beside(page, sectionsFile), &f.Sections); err == nil {
		err = readJSON(beside(page, headlineFile), &f.Headline)
	}
	return f, err
}

// save writes the figures beside a page, the charts of the headline, and the page.
func (f *figures) save(page string, budgets []budget) error {
	files := map[string]string{filepath.Base(page): f.page(budgets)}
	values := map[string]any{sectionsFile: f.Sections}
	if f.Headline != nil {
		values[headlineFile] = f.Headline
		const row = "headline.Battle/10000"
		p99, size := most(budgets, row, "client-p99-ms"), most(budgets, row, "bytes/client-tick")
		maps.Copy(files, f.Headline.Charts(p99, size))
	}
	if m, ok := f.Sections[matchTitle]; ok {
		for _, c := range m.matchCharts() {
			files[c.file] = c.svg
		}
	}
	for name, value := range values {
		text, err := json.MarshalIndent(value, "", " ")
		if err != nil {
			return err
		}
		files[name] = string(text) + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(beside(page, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// results are all results by name.
func (f *figures) results() map[string]result {
	all := map[string]result{}
	for _, s := range f.Sections {
		for _, r := range s.Results {
			all[r.Name] = r
		}
	}
	if f.Headline != nil {
		for _, r := range headlineResults("headline.Battle", f.Headline) {
			all[r.Name] = r
		}
	}
	return all
}

// page writes the page.
func (f *figures) page(budgets []budget) string {
	var w strings.Builder
	w.WriteString("# Benchmarks\n\nWritten by `make bench` and `make headline` from what they measured, which stands " +
		"beside this page in `" + sectionsFile + "` and `" + headlineFile + "`. Absolute figures are those of the " +
		"machine named, and noisy; the ratios compare with a baseline in the same run.\n")
	writePlan(&w, budgets, f.results())
	if f.Headline != nil {
		writeHeadline(&w, f.Headline)
	}
	for i := range sections {
		if m, ok := f.Sections[sections[i].title]; ok {
			sections[i].write(&w, m)
			if sections[i].title == matchTitle {
				writeMatch(&w, m, budgets, f.results())
			}
		}
	}
	return w.String()
}

func beside(page, name string) string { return filepath.Join(filepath.Dir(page), name) }

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
