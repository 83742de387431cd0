//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// envNamespace is set in the process that runs in a network namespace of its own, and says why not in one
// that could not have one.
const envNamespace = "TILEFENCE_ROBUSTNESS_NAMESPACE"

const inNamespace = "yes"

// prepare makes loopback work, puts the rule that knows all local addresses behind those that the campaign
// adds, and makes a link from which nothing comes back. A blackhole route would not do: connecting through
// one fails at once, and a program may then try in another way.
const prepare = "ip link set lo up && ip rule add pref 1000 lookup local && ip rule del pref 0 && " +
	"ip link add sink type veth peer name drain && ip link set sink arp off && ip link set drain up && ip link set sink up && " +
	"echo 1 >/proc/sys/net/ipv4/conf/sink/route_localnet && ip route add default dev sink table 66"

// vanish is what a rule does with the packets it concerns.
const vanish = " lookup 66"

// network parts hosts from each other by routing rules. A nil network cannot.
type network struct {
	rules []string
}

// newNetwork prepares the namespace. The error says why hosts cannot be parted.
func newNetwork(ctx context.Context) (*network, error) {
	if why := os.Getenv(envNamespace); why != inNamespace {
		if why == "" {
			why = "EnterNamespace was not called"
		}
		return nil, errors.New(why)
	}
	// Another campaign of this process may have done it.
	if out, err := exec.CommandContext(ctx, "ip", "rule", "show", "pref", "1000").Output(); err == nil && len(out) > 0 {
		return &network{}, nil
	}
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", prepare).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("prepare the namespace: %w: %s", err, out)
	}
	return &network{}, nil
}

// drop makes packets from one host to another vanish. What is under way on open connections is retransmitted when the
// hosts are joined again.
func (n *network) drop(ctx context.Context, from, to string) error {
	rule := "from " + from + " to " + to
	if err := ipRule(ctx, "add", rule); err != nil {
		return err
	}
	n.rules = append(n.rules, rule)
	return nil
}

// part makes packets between two hosts vanish, both ways.
func (n *network) part(ctx context.Context, a, b string) error {
	return errors.Join(n.drop(ctx, a, b), n.drop(ctx, b, a))
}

// join takes all rules away.
func (n *network) join(ctx context.Context) error {
	var errs []error
	for _, rule := range n.rules {
		errs = append(errs, ipRule(ctx, "del", rule))
	}
	n.rules = nil
	return errors.Join(errs...)
}

func ipRule(ctx context.Context, verb, rule string) error {
	args := append([]string{"rule", verb, "pref", "10"}, strings.Fields(rule+vanish)...)
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
