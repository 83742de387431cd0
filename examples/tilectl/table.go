package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// printTable writes rows: as JSON objects, one a line, or as a table whose cells come from cells.
func printTable[T any](t *tool, head string, rows []T, cells func(*T) []any) error {
	if t.options.json {
		encoder := json.NewEncoder(t.out.stream())
		for i := range rows {
			if err := encoder.Encode(&rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(t.out.stream(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(strings.Fields(head), "\t"))
	for i := range rows {
		for j, c := range cells(&rows[i]) {
			if j > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell(dash(c)))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// dash stands for what is not known.
func dash(v any) any {
	switch x := v.(type) {
	case string:
		if x == "" {
			return "-"
		}
	case millis:
		return moment(int64(x))
	}
	return v
}

// millis is a time, in milliseconds since 1970, zero when unknown.
type millis int64

// moment is a time for people; zero is unknown.
func moment(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z")
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
