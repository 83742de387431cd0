// Package seeded makes what Go does at random in a bubble of testing/synctest a function of a seed, so that a
// simulation of whole systems gives the same run each time. It changes six files of the standard library, as an
// overlay of the build:
//
//   - the order in which select looks at its cases, and in which timers of one instant fire, are drawn from the seed;
//   - so is what math/rand and math/rand/v2 draw without a source of their own;
//   - the order of a map's elements is another one for each seed;
//   - the scheduler interrupts no goroutine that has run for long.
//
// The goroutines of a bubble on one processor (runtime.GOMAXPROCS(1)) then run in the same order each time, if nothing
// that they do depends on the machine, on addresses, or on a collection of garbage meanwhile. crypto/rand has
// testing/cryptotest.SetGlobalRandom. Outside of bubbles, and until a seed is set, nothing changes.
//
// A program that is built with the overlay sets the seed by runtime.setSeed, which it names by go:linkname; zero ends
// it. The build tag [Tag] tells its source that there is such a function.
package seeded

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tag is the build tag of files that name runtime.setSeed.
const Tag = "seeded"

// change is an edit of a file of the standard library.
type change struct {
	file     string // below GOROOT/src
	old, new string // a text that is in the file exactly once, and what stands in its place
	more     string // at the end of the file
}

var changes = []change{
	{file: "runtime/rand.go", old: "func maps_rand() uint64 {\n",
		new: "func maps_rand() uint64 {\n\tif seeded() {\n\t\treturn seed\n\t}\n", more: source},
	{file: "runtime/rand.go", old: "func rand32() uint32 {\n",
		new: "func rand32() uint32 {\n\tif seeded() {\n\t\treturn uint32(seed)\n\t}\n"},
	{file: "runtime/select.go", old: "cheaprandn(uint32(norder + 1))",
		new: "int(uint64(uint32(drawn())) * uint64(norder+1) >> 32)"},
	{file: "runtime/time.go", old: "t.rand = cheaprand()", new: "t.rand = uint32(drawn())"},
	{file: "runtime/proc.go", old: "const forcePreemptNS = ", new: "const forcePreemptNS = 1 << 30 * "},
	{file: "math/rand/rand.go", old: "runtime_rand runtime.rand\n", new: "runtime_rand runtime.drawn\n"},
	{file: "math/rand/v2/rand.go", old: "runtime_rand runtime.rand\n", new: "runtime_rand runtime.drawn\n"},
}

// source is what package runtime gets: the generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
const source = `
var seed, state uint64

//go:linkname setSeed
func setSeed(s uint64) { seed, state = s, s }

//go:nosplit
func seeded() bool { return seed != 0 && getg().bubble != nil }

//go:linkname drawn
//go:nosplit
func drawn() uint64 {
	if !seeded() {
		return rand()
	}
	state += 0x9e3779b97f4a7c15
	z := state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
`

// Overlay writes the changed files to dir, and returns which file of the standard library each is to replace, as go
// build -overlay takes it. It is an error if a change does not fit the version of Go that is installed.
func Overlay(ctx context.Context, dir string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("seeded: go env GOROOT: %w", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	replace := map[string]string{}
	for _, c := range changes {
		original := filepath.Join(root, c.file)
		changed, again := replace[original]
		if !again {
			changed = filepath.Join(dir, strings.ReplaceAll(c.file, "/", "-"))
			replace[original] = changed
		}
		if err := c.apply(map[bool]string{false: original, true: changed}[again], changed); err != nil {
			return nil, err
		}
	}
	return replace, nil
}

func (c *change) apply(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("seeded: %w", err)
	}
	if n := strings.Count(string(text), c.old); n != 1 {
		return fmt.Errorf("seeded: this version of Go is not the one that the changes are for: %q is in %s %d times, "+
			"not once", c.old, from, n)
	}
	return os.WriteFile(to, []byte(strings.Replace(string(text), c.old, c.new, 1)+c.more), 0o600)
}

// Write writes an overlay to dir/overlay.json and returns its path.
func Write(dir string, replace map[string]string) (string, error) {
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("seeded: %w", err)
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
