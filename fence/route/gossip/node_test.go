package gossip_test

import (
	"testing"

	"github.com/tilefence/tilefence/fence/route/routetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	routetest.Run(t, func(*testing.T) routetest.Network { return newNetwork() })
}

func TestConformanceEncrypted(t *testing.T) {
	t.Parallel()
	routetest.Run(t, func(*testing.T) routetest.Network {
		n := newNetwork()
		n.key = []byte("0123456789abcdef")
		return n
	})
}
