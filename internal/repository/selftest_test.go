package repository

import (
	"slices"
	"strings"
	"testing"
)

func TestBuildProductsAreFound(t *testing.T) {
	for _, c := range []struct {
		name    string
		content string
		refused bool
	}{
		{"text", "package main\n", false},
		{"script", "#!/bin/sh\n", false},
		{"empty", "", false},
		{"screenshot", "\x89PNG" + strings.Repeat("x", 300<<10), false},
		{"largest", strings.Repeat("x", maxFileSize), false},
		{"too large", strings.Repeat("x", maxFileSize+1), true},
		{"ELF", "\x7fELF\x02\x01", true},
		{"Mach-O", "\xcf\xfa\xed\xfe\x0c", true},
		{"PE", "MZ\x90\x00", true},
	} {
		if refused := checkContent([]byte(c.content)) != ""; refused != c.refused {
			t.Errorf("%s: refused is %t", c.name, refused)
		}
	}
}

func TestWideLinesAreFound(t *testing.T) {
	words := strings.Repeat("word ", 23) + "words" // 120 columns
	for _, c := range []struct {
		name, file, content string
		want                []int
	}{
		{"as wide as allowed", "a.sql", words + "\n", nil},
		{"wide", "a.sql", "\n" + words + "s\n", []int{2}},
		{"columns, not bytes", "a.lua", strings.ReplaceAll(words, "o", "ö"), nil},
		{"a tab is four columns", "a.go", "package a\n\n\t// " + words[7:] + "\n\t// " + words[6:], []int{4}},
		{"a URL", "a.sh", "# https://" + strings.Repeat("x", 120), nil},
		{"a literal", "a.go", "package a\n\nvar a = foo(1, 2, " + `"` + words + `"` + ")", nil},
		{"code beside a literal", "a.go", "package a\n\nvar a = " + strings.Repeat("a + ", 25) + `"` + words[:30] + `"`,
			[]int{3}},
		{"a raw string", "a.go", "package a\n\nvar a = `\n" + words + words + "\n`", nil},
		{"after a raw string", "a.go", "package a\n\nvar a = `\n`\n// " + words, []int{5}},
	} {
		if got := wideLines(c.file, []byte(c.content)); !slices.Equal(got, c.want) {
			t.Errorf("%s: lines %v, want %v", c.name, got, c.want)
		}
	}
	for name, want := range map[string]bool{
		"a.go": true, "a.pb.go": false, "x/y.lua": true, ".ci/run": true, "README.md": false,
	} {
		if isWrapped(name) != want {
			t.Errorf("%s: isWrapped is %t", name, !want)
		}
	}
}

func TestTypesWithoutWordsAreFound(t *testing.T) {
	const text = "func (s State) String() string { return \"\" }\n"
	for source, want := range map[string]int{
		text: 1,
		text + "func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }\n": 0,
		text + "func (s State) MarshalText() ([]byte, error) { return nil, nil }\n":             0,
		text + "func (o Other) LogValue() slog.Value { return slog.Value{} }\n":                 1,
		"func (s state) String() string { return \"\" }\n":                                      0,
	} {
		if _, silent := wordless(source); len(silent) != want {
			t.Errorf("%q: found %v, want %d", source, silent, want)
		}
	}
}
