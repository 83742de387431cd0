package gossip

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds the optional settings of a Node. Nil and the zero value are valid.
type Config struct {
	// Bind is the IP address and port to listen on, UDP and TCP; port 0 lets the system choose. Empty means
	// 0.0.0.0:7946.
	Bind string

	// Advertise is the IP address and port under which the others reach this node, where it is not the one
	// it listens on; port 0 means the port that it listens on. Empty means Bind's, or for 0.0.0.0 a private address
	// of this machine.
	Advertise string

	// Seeds are addresses (host:port) of members to join. One that is alive is enough; the node retries those
	// that are not members for as long as it runs. Its own address may be among them. A name is looked up anew
	// for each attempt, and may have many addresses.
	Seeds []string

	// Label separates groups that could reach each other: members of another label are ignored. At most 255
	// bytes. World.String of the world that Authority.World returns keeps two deployments of one name apart.
	Label string

	// SecretKeys encrypt and authenticate everything with AES-GCM: 16, 24 or 32 bytes each, the same on all
	// members. The first one encrypts, all are accepted, so that a key is replaced without downtime: add the new
	// one at the end everywhere, then put it first everywhere, then leave the old one out. Empty: every process
	// that reaches the port is believed.
	SecretKeys [][]byte

	// Timing is how fast announcements travel and deaths are detected. Its zero value is for a local network.
	Timing Timing

	// Notify is called for each event of another member, see route.Event. Run waits for it before it returns.
	// Nil ignores events.
	Notify func(route.Event)

	// Logger: nil discards, or is the server's own where a server of package tilefence makes the node. memberlist's
	// own lines go to debug.
	Logger *slog.Logger
}

// Timing is how fast announcements travel and deaths are detected. Zero fields mean the value for a local
// network, given in brackets, with which a death is detected in about five seconds.
type Timing struct {
	ProbeInterval time.Duration // between probes of one member after the other (1 s)
	ProbeTimeout  time.Duration // for the answer to a probe, a little more than the slowest round trip (500 ms)

	gossip   time.Duration // between packets with announcements, to three members each (200 ms)
	pushPull time.Duration // between exchanges of whole maps, with one member each; longer above 32 members (30 s)
	rejoin   time.Duration // between attempts to reach seeds and members that are missing (10 s)
	stream   time.Duration // for an exchange of maps (10 s)
	leave    time.Duration // for notifying the others that this node leaves (5 s)
}

// Fast detects a death in about a second. It suits members that are a few milliseconds apart and are not
// starved of CPU: one that does not answer for a second is presumed dead.
func Fast() Timing {
	return Timing{ProbeInterval: 200 * time.Millisecond, ProbeTimeout: 100 * time.Millisecond,
		gossip: 50 * time.Millisecond, pushPull: time.Second, rejoin: time.Second, stream: 5 * time.Second,
		leave: 2 * time.Second}
}

func (t *Timing) complete(s *setting.Check) {
	s.From(time.Millisecond, "ProbeInterval", &t.ProbeInterval, time.Second)
	s.From(time.Millisecond, "ProbeTimeout", &t.ProbeTimeout, 500*time.Millisecond)
	t.gossip, t.pushPull = cmp.Or(t.gossip, 200*time.Millisecond), cmp.Or(t.pushPull, 30*time.Second)
	t.rejoin, t.stream = cmp.Or(t.rejoin, 10*time.Second), cmp.Or(t.stream, 10*time.Second)
	t.leave = cmp.Or(t.leave, 5*time.Second)
	s.Refuse(t.ProbeTimeout > t.ProbeInterval, "ProbeTimeout", t.ProbeTimeout, "at most the ProbeInterval")
}

// settings is a Config that is complete and parsed.
type settings struct {
	Config
	bind      netip.AddrPort
	advertise netip.AddrPort // not valid: the one bound to
}

func (c *Config) settings() (settings, error) {
	s := settings{Config: setting.Of(c)}
	s.Bind = cmp.Or(s.Bind, "0.0.0.0:7946")
	s.Seeds, s.SecretKeys = slices.Clone(s.Seeds), slices.Clone(s.SecretKeys)
	for i, key := range s.SecretKeys {
		s.SecretKeys[i] = slices.Clone(key)
	}
	if s.Notify == nil {
		s.Notify = func(route.Event) {}
	}
	s.Logger = cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	var check setting.Check
	var err error
	s.bind, err = netip.ParseAddrPort(s.Bind)
	check.Refuse(err != nil, "Bind", s.Bind, "an IP address and port, such as 10.0.0.7:7946")
	if s.Advertise != "" {
		s.advertise, err = netip.ParseAddrPort(s.Advertise)
		check.Refuse(err != nil || s.advertise.Addr().IsUnspecified(), "Advertise", s.Advertise,
			"an IP address and port that others can reach")
	}
	check.Refuse(s.bind.Addr() == netip.IPv6Unspecified() && s.Advertise == "", "Advertise", s.Advertise,
		"an IP address and port that others can reach, when bound to all of IPv6")
	for _, seed := range s.Seeds {
		_, _, err := net.SplitHostPort(seed)
		check.Refuse(err != nil, "Seeds", seed, "host:port")
	}
	for _, key := range s.SecretKeys {
		check.Refuse(!slices.Contains([]int{16, 24, 32}, len(key)), "SecretKeys", fmt.Sprint(len(key), " bytes"),
			"16, 24 or 32 bytes each")
	}
	check.Refuse(len(s.Label) > 255, "Label", s.Label, "at most 255 bytes")
	s.Timing.complete(&check)
	return s, check.Err
}
