package viewcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, limits *viewstore.Limits) *viewstore.Memory {
	m, err := viewstore.NewMemory(limits)
	require.NoError(t, err)
	return m
}

func TestConformance(t *testing.T) {
	viewcachetest.Run(t, func(t *testing.T, limits *viewstore.Limits) viewstore.Store { return open(t, limits) })
}

func TestCache(t *testing.T) {
	viewcachetest.RunCache(t, true, func(t *testing.T, limits *viewstore.Limits) viewcachetest.Backend {
		m := open(t, limits)
		return viewcachetest.Backend{Store: m, Flush: m.Flush}
	})
}

// TestBadInput: each is an error that names what is wrong.
func TestBadInput(t *testing.T) {
	store, log := open(t, nil), memstream.New(memfence.New())
	keyed := func(keys ...[]byte) error {
		_, err := viewcache.New(store, log, keys, nil)
		return err
	}
	with := func(store viewstore.Store, log stream.Log, cfg *viewcache.Config) error {
		_, err := viewcache.New(store, log, viewcachetest.Keys, cfg)
		return err
	}
	limited := func(limits viewstore.Limits) error {
		_, err := viewstore.NewMemory(&limits)
		return err
	}
	for _, bad := range []struct {
		field string
		err   error
	}{
		{"store", with(nil, log, nil)},
		{"log", with(store, nil, nil)},
		{"keys", keyed()},
		{"keys", keyed(viewcachetest.Keys[0], []byte("too short"))},
		{"Timeout", with(store, log, &viewcache.Config{Timeout: -1})},
		{"Fresh", with(store, log, &viewcache.Config{Fresh: -1})},
		{"Budget", limited(viewstore.Limits{Budget: -1})},
		{"Budget", limited(viewstore.Limits{Budget: fence.MaxNumber + 1})},
		{"Grace", limited(viewstore.Limits{Grace: -1})},
	} {
		var argument *fence.ArgumentError
		require.ErrorAs(t, bad.err, &argument, bad.field)
		require.Equal(t, bad.field, argument.Field)
	}
	require.NoError(t, with(store, log, &viewcache.Config{}))
	require.NoError(t, limited(viewstore.Limits{}))
}
