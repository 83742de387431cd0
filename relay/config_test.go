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
	r, err := New(w.fan, w.log, nil)
	require.NoError(t, err)
	v := reflect.ValueOf(r.cfg)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "Authorize", "AuthorizeTile", "Origins":
		case "Hooks":
			for j := range v.Field(i).NumField() {
				require.False(t, v.Field(i).Field(j).IsNil(), "a hook is never nil inside")
			}
		default:
			require.False(t, v.Field(i).IsZero(), name)
		}
	}
	require.Equal(t, DefaultRefreshFrames, r.cfg.RefreshFrames)
}

func TestConfigIsCloned(t *testing.T) {
	w := newWorld(t)
	cfg := &Config{Origins: []string{"a.test"}}
	r, err := New(w.fan, w.log, cfg)
	require.NoError(t, err)
	cfg.Origins[0] = "b.test"
	require.Equal(t, []string{"a.test"}, r.cfg.Origins)
	require.Zero(t, cfg.MaxClients, "the caller's copy is not touched")
}

func TestConfigIsValidated(t *testing.T) {
	w := newWorld(t)
	for field, cfg := range map[string]*Config{
		"MaxClients":    {MaxClients: -1},
		"QueueBytes":    {QueueBytes: -1},
		"PingInterval":  {PingInterval: -time.Second},
		"BackoffMax":    {BackoffMin: time.Second, BackoffMax: time.Millisecond},
		"RefreshFrames": {TailFrames: 10, RefreshFrames: 11},
		"Origins":       {Origins: []string{"*"}},
		"ID":            {ID: "a relay"},
	} {
		_, err := New(w.fan, w.log, cfg)
		var arg *fence.ArgumentError
		require.ErrorAs(t, err, &arg, field)
		require.Equal(t, field, arg.Field)
	}
	for _, id := range []string{"a:b", "a.at", "\n", strings.Repeat("x", 65), "é"} {
		_, err := New(w.fan, w.log, &Config{ID: id})
		require.ErrorIs(t, err, fence.ErrInvalidArgument, id)
	}
	_, err := New(w.fan, w.log, &Config{ID: strings.Repeat("x", 64)})
	require.NoError(t, err)
	_, err = New(nil, w.log, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = New(w.fan, nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}
