package repository

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pinned is an action that is named by the hash of a commit, with its release behind it for people. A tag can be moved
// to other code; a hash cannot.
var pinned = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+@[0-9a-f]{40} # v[0-9]+(\.[0-9]+)*$`)

// used is a line of a workflow that runs code of others.
var used = regexp.MustCompile(`^\s*(?:-\s+)?["']?uses["']?\s*:\s*(.*)$`)

// TestActionsArePinned refuses workflows that name an action by a tag or a branch.
func TestActionsArePinned(t *testing.T) {
	workflows := 0
	for _, name := range trackedFiles(t) {
		if !isWorkflow(name) {
			continue
		}
		workflows++
		content, err := readFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range unpinned(string(content)) {
			t.Errorf("%s: uses %s: name the commit by its 40 hex digits, and the release as # v1.2.3 behind it",
				name, action)
		}
	}
	if workflows == 0 {
		t.Error("no workflow was found")
	}
}

func isWorkflow(name string) bool {
	return strings.HasPrefix(name, ".github/") && slices.Contains([]string{".yml", ".yaml"}, path.Ext(name))
}

// unpinned returns what a workflow uses without naming a commit. An action of this repository (./…) has the commit that
// is tested.
func unpinned(workflow string) (found []string) {
	for line := range strings.Lines(workflow) {
		m := used.FindStringSubmatch(strings.TrimRight(line, " \r\n"))
		if m != nil && !strings.HasPrefix(m[1], "./") && !pinned.MatchString(m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

func TestUnpinnedActionsAreFound(t *testing.T) {
	hash := strings.Repeat("0f", 20)
	for _, c := range []struct {
		line  string
		found bool
	}{
		{"      - uses: actions/checkout@" + hash + " # v5.0.1", false},
		{"        uses: owner/repo/.github/workflows/x.yml@" + hash + " # v1", false},
		{"      - uses: ./.github/actions/own", false},
		{"      - run: echo uses: nothing", false},
		{"      - uses: actions/checkout@v5", true},
		{"      - uses: actions/checkout@main", true},
		{"      - uses: actions/checkout", true},
		{"      - uses: actions/checkout@" + hash, true}, // without its release
		{"      - uses: actions/checkout@" + hash[:12] + " # v5", true},
		{"      - uses: docker://alpine:3", true},
		{`      - "uses": actions/checkout@v5`, true},
	} {
		if got := unpinned(c.line + "\n"); (len(got) > 0) != c.found {
			t.Errorf("%q: found %q, want found %t", c.line, got, c.found)
		}
	}
}
