package plainjson_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/plainjson"
)

// message is what the tests write and read.
type message struct {
	Text   string `json:"text"`
	Bytes  []byte `json:"bytes"`
	Number uint64 `json:"number"`
}

func read(b []byte) (m message, ok bool) {
	r := plainjson.Read(b)
	r.Want(`{"text":`)
	m.Text = string(r.Text())
	r.Want(`,"bytes":`)
	m.Bytes = r.Bytes()
	r.Want(`,"number":`)
	m.Number = r.Number()
	r.Want("}")
	return m, r.Done()
}

// FuzzRead: what is read at all is what encoding/json reads.
func FuzzRead(f *testing.F) {
	for _, s := range []string{`{"text":"a b","bytes":"AAE=","number":70}`, `{"text":"","bytes":"","number":0}`,
		`{"text":"\n","bytes":"","number":0}`, `{"text":"a","bytes":"","number":00}`,
		`{"text":"a","bytes":"A","number":1}`,
		`{"text":"a","bytes":"","number":99999999999999999999}`, `{"text":"a","bytes":"","number":1}x`, `{"text":"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := read(b)
		if !ok {
			return
		}
		var want message
		require.NoError(t, json.Unmarshal(b, &want))
		require.Equal(t, want, got)
	})
}

// FuzzAppendText: a string is written as encoding/json writes it, and read again if it is plain.
func FuzzAppendText(f *testing.F) {
	for _, s := range []string{"", "bot0007", `a"b\`, "<>&", "zwölf", "\xff", "\u2028", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		require.NoError(t, err)
		got := plainjson.AppendText(nil, s)
		require.Equal(t, string(want), string(got))
		r := plainjson.Read(got)
		if text := string(r.Text()); r.Done() {
			require.Equal(t, s, text)
		}
	})
}

func TestWhatIsPlain(t *testing.T) {
	m, ok := read([]byte(`{"text":"a b","bytes":"AAE=","number":70}`))
	require.True(t, ok)
	require.Equal(t, message{"a b", []byte{0, 1}, 70}, m)
	for _, other := range []string{`{"text": "a b","bytes":"AAE=","number":70}`,
		`{"text":"a","bytes":"AAE","number":70}`, `{"text":"a","bytes":"","number":-1}`,
		`{"text":"a","bytes":"","number":1.5}`, `{"text":"ö","bytes":"","number":1}`,
		`{"text":"a","number":1,"bytes":""}`, `{"text":"a","bytes":"","number":1000000000000000000}`, ""} {
		_, ok = read([]byte(other))
		require.False(t, ok, other)
	}
}
