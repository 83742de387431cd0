package fence

import (
	"unicode"
	"unicode/utf8"
)

// IsName reports whether s can name something: an actor, an asset, an action, a contact. It is 1 to most bytes of UTF-8
// that people can read in a log or on a screen and tell from any other name: without control characters, those that
// turn the direction of writing or are not seen, and any white space but the space of ASCII. The replacement character,
// which encoders write for bytes that they cannot carry, is none either: two different names would become one.
func IsName(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, r := range s { // bytes that are not UTF-8 are read as the replacement character
		if r == utf8.RuneError || r != ' ' && unicode.In(r, unseen...) || r == blankBraille {
			return false
		}
	}
	return true
}

// unseen are the characters that show nothing: control, format (those of direction among them), private and surrogate
// code points; separators; and letters and marks that are drawn as nothing.
var unseen = []*unicode.RangeTable{unicode.C, unicode.Z, unicode.Other_Default_Ignorable_Code_Point,
	unicode.Variation_Selector}

// blankBraille is a symbol without a dot.
const blankBraille = '\u2800'
