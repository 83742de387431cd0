package repository

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxWidth = 120 // columns of a line of code or comment
	tabWidth = 4
)

// wrapped are the kinds of files that have a maximal width. Markdown is reflowed when it is displayed.
var wrapped = []string{".go", ".lua", ".proto", ".sh", ".sql"}

// TestLinesFitOnAScreen refuses lines above 120 columns. Excepted are generated files, raw strings of several lines,
// and lines with a single word or string literal that does not fit by itself.
func TestLinesFitOnAScreen(t *testing.T) {
	for _, name := range trackedFiles(t) {
		if !isWrapped(name) {
			continue
		}
		content, err := readFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range wideLines(name, content) {
			t.Errorf("%s:%d: wider than %d columns", name, line, maxWidth)
		}
	}
}

func isWrapped(name string) bool {
	if strings.HasSuffix(name, ".pb.go") {
		return false
	}
	return name == ".ci/run" || slices.Contains(wrapped, path.Ext(name))
}

// wideLines returns the numbers of the lines that are too wide.
func wideLines(name string, content []byte) []int {
	var strs map[int]literals
	if path.Ext(name) == ".go" {
		strs = stringLiterals(content)
	}
	var wide []int
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimRight(string(line), "\r\n")
		words := append(strings.Fields(text), strs[number].single...)
		if width(text) > maxWidth && !strs[number].multiline && !hasUnbreakable(text, words) {
			wide = append(wide, number)
		}
	}
	return wide
}

// hasUnbreakable reports whether a word, such as a URL, is too wide even on a line of its own.
func hasUnbreakable(line string, words []string) bool {
	indent := line[:len(line)-len(strings.TrimLeft(line, "\t "))]
	return slices.ContainsFunc(words, func(word string) bool { return width(indent+word) > maxWidth })
}

// literals are the string literals of one line of Go.
type literals struct {
	multiline bool // the line holds a part of a raw string of several lines
	single    []string
}

// stringLiterals finds the string literals of Go source, by line.
func stringLiterals(source []byte) map[int]literals {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := make(map[int]literals)
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return lines
		case kind != token.STRING:
			continue
		}
		first, more := file.Line(pos), strings.Count(literal, "\n")
		if more == 0 {
			lines[first] = literals{lines[first].multiline, append(lines[first].single, literal)}
			continue
		}
		for line := first; line <= first+more; line++ {
			lines[line] = literals{true, lines[line].single}
		}
	}
}

func width(line string) int {
	columns := 0
	for _, r := range line {
		if r == '\t' {
			columns += tabWidth - columns%tabWidth
		} else if r != utf8.RuneError {
			columns++
		}
	}
	return columns
}
