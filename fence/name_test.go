package fence_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
)

func TestIsName(t *testing.T) {
	for _, s := range []string{"a", "ann lee", "géld 🂡", "e\u0301", "名前", "card:fireball", "10.0.0.7:7000", "'\"#<>&",
		"\u05d0\u05d1", "\u0627", strings.Repeat("x", 64)} {
		assert.True(t, fence.IsName(s, 64), "%q", s)
	}
	for name, s := range map[string]string{
		"empty": "", "too long": strings.Repeat("x", 65), "newline": "ann\nlevel=ERROR", "zero byte": "a\x00",
		"delete": "a\x7f", "escape sequence": "a\x1b[2J", "C1 control": "a\u0085", "not UTF-8": "a\xff",
		"surrogate": "a\xed\xa0\x80", "replacement": "a\ufffd", "right to left override": "ann\u202egnp.exe",
		"isolate": "a\u2066b", "left to right mark": "a\u200e", "zero width space": "a\u200bb", "joiner": "a\u200db",
		"byte order mark": "\ufeffa", "soft hyphen": "a\u00adb", "no-break space": "a\u00a0b",
		"line separator":  "a\u2028",
		"grapheme joiner": "a\u034fb", "Hangul filler": "\u3164", "variation selector": "a\ufe0f", "tag": "a\U000e0041",
		"Mongolian vowel separator": "a\u180eb", "blank Braille": "\u2800", "private use": "a\ue000",
	} {
		assert.False(t, fence.IsName(s, 64), name)
	}
}
