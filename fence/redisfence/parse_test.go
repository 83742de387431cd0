package redisfence_test

import (
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/certs"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	authority, err := certs.New()
	require.NoError(t, err)
	f, err := authority.Write(t.TempDir())
	require.NoError(t, err)
	files := url.Values{"ca": {f.Authority}, "cert": {f.Certificate}, "key": {f.Key}}.Encode()
	for text, want := range map[string]struct {
		addrs          []string
		user, password string
		tls            bool
	}{
		"10.0.0.1:6379":                        {addrs: []string{"10.0.0.1:6379"}},
		"10.0.0.1:1,[::1]:2":                   {addrs: []string{"10.0.0.1:1", "[::1]:2"}},
		"redis://10.0.0.1:6379":                {addrs: []string{"10.0.0.1:6379"}},
		"redis://:p%40ss%2Fword@a:1,b:2/":      {addrs: []string{"a:1", "b:2"}, password: "p@ss/word"},
		"rediss://ann:secret@a:1,[::1]:2":      {[]string{"a:1", "[::1]:2"}, "ann", "secret", true},
		"rediss://ann:secret@a:1,b:2?" + files: {[]string{"a:1", "b:2"}, "ann", "secret", true},
		"rediss://a:1":                         {addrs: []string{"a:1"}, tls: true},
	} {
		o, err := redisfence.ParseOptions(text)
		require.NoError(t, err, text)
		require.Equal(t, want.addrs, o.Addrs, text)
		require.Equal(t, []string{want.user, want.password}, []string{o.Username, o.Password}, text)
		require.Equal(t, want.tls, o.TLSConfig != nil, text)
		require.Equal(t, redisfence.Options().ClusterStateReloadInterval, o.ClusterStateReloadInterval, text)
		if want.tls {
			require.EqualValues(t, tls.VersionTLS12, o.TLSConfig.MinVersion)
			require.Empty(t, o.TLSConfig.ServerName, "each node's own name is compared")
			require.False(t, o.TLSConfig.InsecureSkipVerify)
		}
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, text := range []string{"", "a", "a:1, b:2", "http://u:hush@a:1", "rediss://u:hush@a", "rediss://u:hush@",
		"rediss://u:hush@a:1/0", "rediss://u:hush@a:1#x", "rediss://u:hush@a:1?db=1", "redis://u:hush@a:1?ca=x",
		"rediss://u:hush%zz@a:1", "rediss://u:hush@a:1,", "rediss://u:hush@a:1?ca=" + empty} {
		_, err := redisfence.ParseOptions(text)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, text)
		require.NotContains(t, err.Error(), "hush")
	}
	for _, files := range []string{"ca=/missing", "cert=/missing&key=/missing", "cert=/missing"} {
		_, err := redisfence.ParseOptions("rediss://u:hush@a:1?" + files)
		require.ErrorIs(t, err, os.ErrNotExist, files)
		require.NotContains(t, err.Error(), "hush")
	}
}
