package tiletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// tally counts what came up, by group and kind. Nil counts nothing.
type tally map[string]map[string]int

func (c tally) add(group, kind string, n int) {
	if c == nil || n == 0 {
		return
	}
	if c[group] == nil {
		c[group] = map[string]int{}
	}
	c[group][kind] += n
}

// decided counts the events of a tick that came to pass, and what was decided.
func (c tally) decided(batch *stream.Batch, out *tile.Outputs) {
	for _, e := range batch.Events {
		c.add("events", kindOf(e), 1)
	}
	for i, o := range out.Outcomes {
		why := ""
		if i < len(out.Why) && out.Why[i] != "" {
			why = ": " + out.Why[i]
		}
		c.add("outcomes", o.String()+why, 1)
	}
}

// kindOf is the kind of an event: the word that it begins with, else its first byte.
func kindOf(event []byte) string {
	if len(event) == 0 {
		return "empty"
	}
	text := strings.TrimLeft(string(event[:min(len(event), 64)]), `{["`)
	word := strings.IndexFunc(text, func(r rune) bool {
		return r == utf8.RuneError || r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' && r < 0x80
	})
	switch {
	case word < 0:
		word = len(text)
	case word == 0:
		return fmt.Sprintf("%#02x", event[0])
	}
	return text[:word]
}

// log says how often each kind came up: what has not was not tested.
func (c tally) log(t testing.TB) {
	t.Helper()
	for _, group := range slices.Sorted(maps.Keys(c)) {
		var list []string
		for _, kind := range slices.Sorted(maps.Keys(c[group])) {
			list = append(list, fmt.Sprintf("%s %d", kind, c[group][kind]))
		}
		t.Logf("%s: %s", group, strings.Join(list, ", "))
	}
}
