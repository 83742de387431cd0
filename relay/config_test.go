package relay

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestConfigDefaults(t *testing.T) {
	w := newWorld(t)
	r, err := New(w.fan, w.log, Public, nil)
	require.NoError(t, err)
	v := reflect.ValueOf(r.cfg)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "Authenticate", "Sessions", "ShowOwners", "Origins", "Views", "Hooks":
		case "Limits", "tuning":
			for j := range v.Field(i).NumField() {
				if v.Field(i).Type().Field(j).Name == "onForged" {
					continue
				}
				require.False(t, v.Field(i).Field(j).IsZero(), "%s.%s", name, v.Field(i).Type().Field(j).Name)
			}
		default:
			require.False(t, v.Field(i).IsZero(), name)
		}
	}
	require.Equal(t, 180, r.cfg.refreshFrames)
	require.Equal(t, DefaultCheckInterval, r.cfg.backoffMax)
}

func TestConfigIsCloned(t *testing.T) {
	w := newWorld(t)
	cfg := new(Config)
	cfg.Origins = []string{"a.test"}
	r, err := New(w.fan, w.log, Public, cfg)
	require.NoError(t, err)
	cfg.Origins[0] = "b.test"
	require.Equal(t, []string{"a.test"}, r.cfg.Origins)
	require.Zero(t, cfg.MaxClients, "the caller's copy is not touched")
}

func TestConfigIsValidated(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		field string
		edit  func(*Config)
	}{
		{"Sessions.Timeout", func(c *Config) { c.Sessions.Timeout = -1 }},
		{"Sessions.PerAddress", func(c *Config) { c.Sessions.PerAddress = -1 }},
		{"Sessions.PerActor", func(c *Config) { c.Sessions.PerActor = -1 }},
		{"MaxClients", func(c *Config) { c.MaxClients, c.MaxTiles, c.TailBytes = -1, -1, -1 }},
		{"TailBytes", func(c *Config) { c.TailBytes, c.PingInterval = -1, -1 }},
		{"PingInterval", func(c *Config) { c.PingInterval, c.DrainWindow = -time.Second, -1 }},
		{"Origins", func(c *Config) { c.Origins = []string{"*"} }},
		{"ID", func(c *Config) { c.ID = "a relay" }},
	} {
		cfg := new(Config)
		c.edit(cfg)
		_, err := New(w.fan, w.log, Public, cfg)
		var arg *fence.ArgumentError
		require.ErrorAs(t, err, &arg, c.field)
		require.Equal(t, c.field, arg.Field, "the same field each time")
	}
	for _, id := range []string{"a:b", "a.at", "\n", strings.Repeat("x", 65), "é"} {
		_, err := New(w.fan, w.log, Public, &Config{ID: id})
		require.ErrorIs(t, err, fence.ErrInvalidArgument, id)
	}
	_, err := New(w.fan, w.log, Public, &Config{ID: strings.Repeat("x", 64)})
	require.NoError(t, err)
	_, err = New(w.fan, w.log, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "an open relay must be asked for in so many words")
	_, err = New(nil, w.log, Public, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = New(w.fan, nil, Public, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
