package repository

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestLogsHaveWords: a type of the product that has a text form has it in logs, too. slog's JSON handler writes an
// enumeration as its number, and an array as a list of numbers, unless the type says otherwise.
func TestLogsHaveWords(t *testing.T) {
	packages := map[string]string{} // source, by directory
	for _, name := range trackedFiles(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") ||
			strings.HasPrefix(name, "examples/") || strings.Contains(name, "internal/") {
			continue
		}
		content, err := readFile(name)
		if err != nil {
			t.Fatal(err)
		}
		packages[path.Dir(name)] += string(content)
	}
	checked := 0
	for dir, source := range packages {
		texts, silent := wordless(source)
		checked += texts
		for _, name := range silent {
			t.Errorf("%s.%s has a method String, but neither LogValue nor MarshalText", dir, name)
		}
	}
	if checked < 20 {
		t.Errorf("only %d types were found: what looks for them is wrong", checked)
	}
}

var textForm = regexp.MustCompile(`(?m)^func \(\w+ ([A-Z]\w*)\) String\(\) string`)

// wordless returns how many exported types of a package have a text form, and which of them do not have it in logs.
func wordless(source string) (texts int, silent []string) {
	for _, found := range textForm.FindAllStringSubmatch(source, -1) {
		texts++
		says := fmt.Sprintf(`(?m)^func \(\w+ %s\) (LogValue|MarshalText)\(`, found[1])
		if !regexp.MustCompile(says).MatchString(source) {
			silent = append(silent, found[1])
		}
	}
	return texts, silent
}
