package viewcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/relay/viewcache/viewcachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, limits *viewcache.Limits) *viewcache.Memory {
	m, err := viewcache.NewMemory(limits)
	require.NoError(t, err)
	return m
}

func TestConformance(t *testing.T) {
	viewcachetest.Run(t, func(t *testing.T, limits *viewcache.Limits) viewcache.Store { return open(t, limits) })
}

func TestCache(t *testing.T) {
	viewcachetest.RunCache(t, func(t *testing.T, limits *viewcache.Limits) viewcachetest.Backend {
		m := open(t, limits)
		return viewcachetest.Backend{Store: m, Flush: m.Flush}
	})
}
