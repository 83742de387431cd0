package route_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
)

var addresses = []string{"a:1", "tile-7.game.svc.cluster.local:7000", "tile_7:65535", "10.0.0.7:7000", "[::1]:7000",
	"[2001:db8::7]:1", "host.:80"}

var noAddresses = []string{"", "a", ":7000", "a:", "a:0", "a:07", "a:+7", "a:65536", "a:7000/admin", "a:7000?x=1",
	"a:7000#x", "/a:7000", "user@a:7000", "user:secret@a:7000", "http://a:7000", "a b:7000", "a:7000 ", " a:7000",
	"a\r\nHost: b:7000", "a\n:7000", "a\x00:7000", "a\u202eb:7000", "a\u200b:7000", "gateway/a:7000", `a\b:7000`,
	"a%2fb:7000", "[::1%25eth0]:7000", "[::1]:0", "[10.0.0.7]:7000", "::1:7000", "[::1:7000", "a..b:7000", ".:7000",
	"-a:7000", "é:7000", strings.Repeat("a", 64) + ":7000", strings.Repeat("a.", 130) + "a:7000", "a:7000:"}

func TestAddresses(t *testing.T) {
	for _, s := range addresses {
		assert.NoError(t, route.ValidateAddress(s), "%q", s)
		assert.NoError(t, route.ValidateContact(s), "%q", s)
	}
	for _, s := range noAddresses {
		assert.ErrorIs(t, route.ValidateAddress(s), fence.ErrInvalidArgument, "%q", s)
	}
}

func TestContactsThatMisleadReadersAreRefused(t *testing.T) {
	for _, s := range []string{"a\n:1", "a b:1", "a\u202e1:1", "a\u200b:1", "a\t:1", "a\x7f:1"} {
		assert.ErrorIs(t, route.ValidateContact(s), fence.ErrInvalidArgument, "%q", s)
	}
	for _, s := range []string{"a", "gateway/10.0.0.7:7000", "réseau:1"} {
		assert.NoError(t, route.ValidateContact(s), "%q", s)
	}
}

// An address stays the host of the URL that it is put into.
func FuzzValidateAddress(f *testing.F) {
	for _, s := range append(addresses, noAddresses...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, contact string) {
		if route.ValidateAddress(contact) != nil {
			return
		}
		u, err := url.Parse("http://" + contact + "/path")
		if err != nil || u.Host != contact || u.Path != "/path" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" || u.Hostname() == "" || u.Port() == "" {
			t.Fatalf("%q: %+v, %v", contact, u, err)
		}
		if err := route.ValidateContact(contact); err != nil {
			t.Fatal(err)
		}
	})
}
