// Package plainjson writes and reads JSON in the one form in which this module's messages nearly always come: no
// spaces, known fields in a known order, strings without escapes. Package encoding/json takes several times as long,
// which shows where thousands of messages a second pass. A caller falls back to encoding/json for all
// else.
package plainjson

import (
	"encoding/base64"
	"encoding/json"
)

// plain reports whether a byte stands for itself in a JSON string, also as encoding/json writes it.
func plain(c byte) bool {
	return c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

// AppendText appends a string with its quotes, as encoding/json writes it.
func AppendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if !plain(s[i]) {
			quoted, _ := json.Marshal(s) // a string has no error
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

// Reader takes a message apart from its beginning. Once something is not in plain form, all that follows fails.
type Reader struct {
	rest   []byte
	failed bool
}

// Read begins to read a message.
func Read(message []byte) Reader { return Reader{rest: message} }

// Has takes what comes next if it is this, and reports whether it was.
func (r *Reader) Has(next string) bool {
	if r.failed || len(r.rest) < len(next) || string(r.rest[:len(next)]) != next {
		return false
	}
	r.rest = r.rest[len(next):]
	return true
}

// Want takes what must come next.
func (r *Reader) Want(next string) { r.failed = !r.Has(next) || r.failed }

// Text takes a string with its quotes. The bytes are the message's.
func (r *Reader) Text() []byte {
	r.Want(`"`)
	for i, c := range r.rest {
		if c == '"' && !r.failed {
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text
		}
		if !plain(c) {
			break
		}
	}
	r.failed = true
	return nil
}

// Bytes takes a string of base64, decoded.
func (r *Reader) Bytes() []byte {
	text := r.Text()
	decoded, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	r.failed = r.failed || err != nil
	return decoded
}

// Number takes a number of at most 18 digits.
func (r *Reader) Number() (n uint64) {
	i := 0
	for i < len(r.rest) && r.rest[i] >= '0' && r.rest[i] <= '9' {
		n = n*10 + uint64(r.rest[i]-'0')
		i++
	}
	if i == 0 || i > 18 || r.rest[0] == '0' && i > 1 {
		r.failed = true
	}
	r.rest = r.rest[i:]
	return n
}

// Done reports whether all was in plain form, and nothing is left.
func (r *Reader) Done() bool { return !r.failed && len(r.rest) == 0 }

// Failed reports whether something was not in plain form.
func (r *Reader) Failed() bool { return r.failed }
