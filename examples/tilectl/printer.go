package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// printer is where everything goes that people read. It escapes, as JSON does, what a terminal would obey or not show:
// control characters, those that turn the direction of writing, and those that have no width. Line feeds and tabs stay,
// since tilectl's own lines have them; of what a store says, line escapes these as well.
type printer struct{ to io.Writer }

func (p *printer) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.to, escaped(string(b), "\n\t")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// line is what a store says, on one line.
func line(v any) string { return escaped(fmt.Sprint(v), "") }

// cell is line for a cell of a table. One that holds what separates cells is quoted.
func cell(v any) string {
	text := line(v)
	if strings.Contains(text, "  ") {
		return strconv.Quote(text)
	}
	return text
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
