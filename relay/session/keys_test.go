package session_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/session"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func Example() {
	keys := session.Keys{key(1)} // 32 random bytes, the same for sign-in, relays and gateways
	token, err := keys.Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(10 * time.Minute), Value: "crew"})
	if err != nil {
		panic(err)
	}
	r, _ := http.NewRequest(http.MethodGet, "https://play.example.com/view", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	who, err := keys.Authenticate(r)
	fmt.Println(who.Actor, who.Value, who.Expired(time.Now()), err)
	_, err = session.Keys{key(2)}.Verify(token)
	fmt.Println(err)
	// Output:
	// ann crew false <nil>
	// session: no valid token: it is signed with another key
}

// No change of a token passes, and errors do not show it.
func TestForgedTokens(t *testing.T) {
	keys := session.Keys{key(1)}
	good, err := keys.Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	who, err := keys.Verify(good)
	require.NoError(t, err)
	require.Equal(t, "ann", who.Actor)
	for i := range good {
		for _, c := range "aB3-_.=" {
			forged := good[:i] + string(c) + good[i+1:]
			if forged == good {
				continue
			}
			_, err := keys.Verify(forged)
			require.ErrorIs(t, err, session.ErrToken, "byte %d as %q", i, c)
			require.NotContains(t, err.Error(), forged)
		}
	}
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"actor":"root","expires":99999999999999}`))
	for _, forged := range []string{"", ".", "..", "tf1", "tf1." + claims, "tf1." + claims + ".", good + "x",
		"x" + good,
		good + ".", good[:len(good)-1], strings.Repeat("a", 1<<20), "tf2" + good[3:], good[4:]} {
		_, err := keys.Verify(forged)
		require.ErrorIs(t, err, session.ErrToken)
	}
	old, err := keys.Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(-time.Millisecond)})
	require.NoError(t, err)
	_, err = keys.Verify(old)
	require.ErrorIs(t, err, session.ErrToken)
}

// A key is replaced without a moment in which a token is refused: processes are at most one step apart.
func TestKeysAreReplaced(t *testing.T) {
	steps := []session.Keys{{key(1)}, {key(1), key(2)}, {key(2), key(1)}, {key(2)}}
	for i, signs := range steps {
		token, err := signs.Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		for _, verifies := range steps[max(0, i-1):min(len(steps), i+2)] {
			_, err = verifies.Verify(token)
			require.NoError(t, err, "step %d", i)
		}
	}
	token, err := steps[0].Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	_, err = steps[3].Verify(token)
	require.ErrorIs(t, err, session.ErrToken)
}

func TestWhatCannotBeSigned(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for name, sign := range map[string]func() (string, error){
		"no key": func() (string, error) {
			return session.Keys{}.Sign(session.Identity{Actor: "ann", Expires: soon})
		},
		"short key": func() (string, error) {
			return session.Keys{key(1)[1:]}.Sign(session.Identity{Actor: "ann"})
		},
		"no actor": func() (string, error) { return session.Keys{key(1)}.Sign(session.Identity{Expires: soon}) },
		"for ever": func() (string, error) { return session.Keys{key(1)}.Sign(session.Identity{Actor: "ann"}) },
		"hidden name": func() (string, error) {
			return session.Keys{key(1)}.Sign(session.Identity{Actor: "a\n", Expires: soon})
		},
		"a number": func() (string, error) {
			return session.Keys{key(1)}.Sign(session.Identity{Actor: "ann", Expires: soon, Value: 1})
		},
	} {
		_, err := sign()
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
}

// A browser's token is found where a browser can put it, and an Authorization header counts more.
func TestToken(t *testing.T) {
	for want, header := range map[string]http.Header{
		"a.b-c": {"Authorization": {"bearer a.b-c"}, "Sec-Websocket-Protocol": {"tilefence.token.other"}},
		"d.e_f": {"Sec-Websocket-Protocol": {"tilefence.view.v1.json", "x, tilefence.token.d.e_f"}},
		"":      {"Authorization": {"Basic YTpi"}, "Cookie": {"token=x"}},
	} {
		require.Equal(t, want, session.Token(&http.Request{Header: header}))
	}
}

// FuzzVerify: no text is a token but what was signed.
func FuzzVerify(f *testing.F) {
	keys := session.Keys{key(1)}
	f.Add("tf1.e30.AAAA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := keys.Verify(text)
		require.ErrorIs(t, err, session.ErrToken)
	})
}
