package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// printer is where everything goes that people read. It escapes, as JSON does, what a terminal would obey or not show:
// control characters, those that turn the direction of writing, and those that have no width. Line feeds and tabs stay,
// since tilectl's own lines have them; of what a store says, line escapes these as well.
//
// It is no io.Writer: what a command prints goes through printf, printTable or stream, so that no command can forget.
type printer struct{ to io.Writer }

// printf writes a line of tilectl's own. What an argument says stays on that line.
func (p *printer) printf(format string, args ...any) {
	said := make([]any, len(args))
	for i, a := range args {
		said[i] = saying{a}
	}
	_, _ = fmt.Fprintf(p.stream(), format, said...) // the reader may have gone
}

// stream is the printer for what has lines of its own: tables, JSON, the list of flags and logs.
func (p *printer) stream() io.Writer { return escaper{p.to} }

// escaper escapes all but line feeds and tabs.
type escaper struct{ to io.Writer }

func (e escaper) Write(b []byte) (int, error) {
	if _, err := io.WriteString(e.to, escaped(string(b), "\n\t")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// saying is an argument of printf, formatted as its verb says, and then on one line.
type saying struct{ v any }

// Format implements fmt.Formatter.
func (s saying) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, line(fmt.Sprintf(fmt.FormatString(f, verb), s.v)))
}

// Bounds of what a store says to people, in bytes: JSON has all of it. A table is as wide as its widest cell.
const (
	maxLine = 4 << 10
	maxCell = 512
)

// line is what a store says, on one line.
func line(v any) string { return bounded(v, maxLine) }

// cell is line for a cell of a table. One that holds what separates cells is quoted.
func cell(v any) string {
	text := bounded(v, maxCell)
	if strings.Contains(text, "  ") {
		return strconv.Quote(text)
	}
	return text
}

// bounded escapes the first bytes of a text, and says how many it has if that is not all.
func bounded(v any, most int) string {
	text := fmt.Sprint(v)
	if len(text) <= most {
		return escaped(text, "")
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", escaped(text[:end], ""), len(text))
}

// escaped escapes what is not printed, but for the characters in but.
func escaped(text, but string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case strconv.IsPrint(r) && r != '\uFFFD', strings.ContainsRune(but, r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// lines are the texts of an error, one for each that was joined.
func lines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var texts, all []string
		for _, e := range joined.Unwrap() {
			texts, all = append(texts, e.Error()), append(all, lines(e)...)
		}
		if strings.Join(texts, "\n") == err.Error() {
			return all
		}
	}
	return []string{line(err)}
}

// say writes a line for people: with -json, standard output has nothing but JSON.
func (t *tool) say(format string, args ...any) {
	to := t.out
	if t.options.json {
		to = t.errs
	}
	to.printf(format, args...)
}

// redirected fails if what programs read, and nothing escapes, would go to a terminal.
func (t *tool) redirected() error {
	f, ok := t.raw.(*os.File)
	if !ok {
		return nil
	}
	at, err := f.Stat()
	if err != nil || at.Mode()&os.ModeCharDevice == 0 {
		return err
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(at, null) {
		return nil
	}
	return &usageError{"this writes bytes of the store as they are, which a terminal would obey: redirect the output"}
}

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
