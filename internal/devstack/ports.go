package devstack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are picked below the range from which the kernel takes the local ports of outgoing connections,
// so that no connection can take the port of a server while it restarts; and so that every Redis bus
// port, 10000 above its node's by convention, still is a valid port.
const (
	lowestPort  = 12000
	highestPort = 22000
	busOffset   = 10000
)

// portPicker finds ports that are free, and returns none twice. Another program may still take
// one before it is used; see Stack.startWithPorts.
type portPicker struct {
	mu    sync.Mutex
	given map[int]bool
}

// defaultHost is where servers listen that are given no address.
const defaultHost = "127.0.0.1"

// host returns the address for one more server.
func (s *Stack) host() string {
	if !s.cfg.OwnAddresses {
		return s.cfg.Host
	}
	return fmt.Sprintf("127.0.1.%d", s.hosts.Add(1))
}

// pick returns a port that is free on host together with the port plus each offset.
func (p *portPicker) pick(host string, offsets ...int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = make(map[int]bool)
	}
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if !p.given[port] && allFree(host, port, offsets) {
			p.given[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found on %s", host)
}

func allFree(host string, port int, offsets []int) bool {
	for _, offset := range append([]int{0}, offsets...) {
		listener, err := net.Listen("tcp", hostPort(host, port+offset))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

func hostPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}
