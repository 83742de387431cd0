//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// inCluster tells a test that it runs in the network namespace of a cluster: it is the cluster's network. gameIn is
// the directory of the game's program.
const inCluster, gameIn = "TILEFENCE_TEST_IN_CLUSTER", "TILEFENCE_TEST_GAME"

// TestGameInPods runs the game of "tilectl new" with the arguments and variables of deploy/kubernetes, each process in
// a network namespace with an address of its own, as no root. What players and watchers reach translates addresses.
// Every pod is replaced by one with another address: ended, killed, or cut off.
func TestGameInPods(t *testing.T) {
	if network := os.Getenv(inCluster); network != "" {
		playInPods(t, netip.MustParsePrefix(network))
		return
	}
	if testing.Short() || os.Getenv(devstack.EnvRequire) == "" {
		t.Skip("builds a program, and starts servers of its own: run `make test`, or set " + devstack.EnvRequire + "=1")
	}
	if err := inNamespace(exec.Command("/bin/sh", "-c", bridge), "10.77.0.1/24").Run(); err != nil {
		t.Skipf("no network namespaces of our own (root, and Debian's iproute2): %v", err)
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	makeGame(t)("build", "-o", "game", ".")
	game, err := os.Getwd()
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Dir(game), 0o755)) // for whom the pods run as
	for name, network := range map[string]string{"IPv4": "10.77.0.1/24", "IPv6": "fd77::1/64"} {
		t.Run(name, func(t *testing.T) {
			cmd := inNamespace(exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGameInPods$", "-test.v"))
			cmd.Dir = here
			cmd.Env = append(os.Environ(), inCluster+"="+network, gameIn+"="+game)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS: TestGameInPods")
			t.Logf("%s", out)
		})
	}
}

// bridge is the script that makes the switch of a cluster, whose address is $1.
const bridge = `ip link set lo up && ip link add cluster type bridge && ip link set cluster up &&
	case $1 in *:*) ip addr add "$1" dev cluster nodad;; *) ip addr add "$1" dev cluster;; esac`

// inNamespace gives a command a network namespace, and arguments of its script.
func inNamespace(cmd *exec.Cmd, args ...string) *exec.Cmd {
	if len(args) > 0 {
		cmd.Args = append(append(cmd.Args, "sh"), args...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func playInPods(t *testing.T, network netip.Prefix) {
	out, err := exec.Command("/bin/sh", "-c", bridge, "sh", network.String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := newCluster(ctx, t, network)
	started := time.Now()
	for _, component := range []string{"tiles", "tiles", "tiles", "gateway", "gateway", "relay", "relay", "bridge",
		"checkpointer"} {
		c.begin(component)
	}
	c.ready()
	score(ctx, t, c.service("8080"), "ann")
	t.Logf("played %v after the first process had begun", time.Since(started).Round(time.Millisecond))
	ways := []struct {
		name string
		do   func(*pod)
	}{{"ended", func(p *pod) { c.end(p) }}, {"killed", c.kill}, {"cut off", c.cutOff}}
	for i, pod := range slices.Clone(c.pods) {
		way, began := ways[i%len(ways)], time.Now()
		way.do(pod)
		c.begin(pod.component)
		c.ready()
		if pod.component != "checkpointer" { // which no player sees
			score(ctx, t, c.service("8080"), fmt.Sprint("player-", i))
		}
		t.Logf("%s %s: another is ready, and a player has scored, after %v", pod.component, way.name,
			time.Since(began).Round(time.Millisecond))
	}
	c.end(slices.Clone(c.pods)...)
}

// podCluster is a switch in a network namespace, with the servers of the back ends at its address.
type podCluster struct {
	ctx     context.Context
	t       *testing.T
	network netip.Prefix // its address is that of the servers and of services that translate
	env     []string     // of every pod
	hosts   string       // the file that stands for the names of the cluster

	last netip.Addr // given to a pod; none is given twice

	mu   sync.Mutex
	pods []*pod
}

type pod struct {
	component, link string
	addr            netip.Addr
	cmd             *exec.Cmd
	out             bytes.Buffer // to be read when the process has ended
}

func newCluster(ctx context.Context, t *testing.T, network netip.Prefix) *podCluster {
	c := &podCluster{ctx: ctx, t: t, network: network, hosts: filepath.Join(t.TempDir(), "hosts"), last: network.Addr()}
	stack := stacktest.Start(t, devstack.Config{AppendOnly: true, Host: network.Addr().String(),
		Parts: []devstack.Part{devstack.Coordination, devstack.Postgres, devstack.DynamoDB}})
	c.env = append(stack.Env(), "TILEFENCE_SECRET="+strings.Repeat("ab", 32))
	c.env = append(c.env, variable.in(t, "config.yaml", `  (TILEFENCE_\w+): (.+)`)...)
	for component, port := range map[string]string{"gateway": "8080", "relay": "8081"} {
		l, err := net.Listen("tcp", c.service(port))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go c.translate(l, component, port)
	}
	t.Cleanup(func() {
		for _, p := range slices.Clone(c.pods) {
			c.kill(p)
			t.Logf("%s %s\n%s", p.component, p.addr, &p.out) // the test has failed, or there were none
		}
	})
	return c
}

// service is where the pods that have a port are reached.
func (c *podCluster) service(port string) string {
	return net.JoinHostPort(c.network.Addr().String(), port)
}

// translate passes connections on to the pods of a component, one after another. A pod that does not answer is passed
// over, as one that is not ready.
func (c *podCluster) translate(l net.Listener, component, port string) {
	for n := 0; ; n++ {
		client, err := l.Accept()
		if err != nil {
			return
		}
		var server net.Conn
		all := c.of(component)
		for i := range all {
			dialer := net.Dialer{Timeout: time.Second}
			addr := net.JoinHostPort(all[(n+i)%len(all)].addr.String(), port)
			if server, err = dialer.DialContext(c.ctx, "tcp", addr); err == nil {
				break
			}
		}
		if server == nil {
			_ = client.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = client.Close(), server.Close()
			}()
		}
	}
}

func (c *podCluster) of(component string) []*pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.pods), func(p *pod) bool { return p.component != component })
}

// pattern finds values in a manifest; a test beside them decodes the manifests by their types.
type pattern func(match []string) string

var (
	argument pattern = func(m []string) string { return m[1] }
	variable pattern = func(m []string) string { return m[1] + "=" + m[2] }
)

func (p pattern) in(t *testing.T, file, expression string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", file))
	require.NoError(t, err)
	for _, match := range regexp.MustCompile("(?m)^"+expression+"$").FindAllStringSubmatch(string(text), -1) {
		found = append(found, p(match))
	}
	require.NotEmpty(t, found, "%s: %s", file, expression)
	return found
}

// enter is the script of a pod: it waits for its interface, sets the address $1, has the names of the file $2, and
// becomes the program, as no root.
const enter = `read _ && ip link set lo up && mount --make-rprivate / && mount --bind "$2" /etc/hosts &&
	case $1 in *:*) ip addr add "$1" dev eth0 nodad;; *) ip addr add "$1" dev eth0;; esac && ip link set eth0 up &&
	shift 2 && exec setpriv --reuid=65532 --regid=65532 --clear-groups --no-new-privs "$@"`

// begin starts a pod of a component, at an address that none has had.
func (c *podCluster) begin(component string) {
	c.t.Helper()
	c.last = c.last.Next()
	p := &pod{component: component, addr: c.last, link: fmt.Sprintf("pod%d", c.last.AsSlice()[len(c.last.AsSlice())-1])}
	file := component + ".yaml"
	args := argument.in(c.t, file, `            - (-[a-z]+=.+)`)
	env := append(os.Environ(), c.env...)
	if component == "tiles" || component == "gateway" {
		env = append(env, variable.in(c.t, file, `            - name: (TILEFENCE_\w+)\n              value: (.+)`)...)
	}
	for _, all := range [][]string{args, env} {
		for i := range all {
			all[i] = c.adapt(all[i], p.addr)
		}
	}
	program := filepath.Join(os.Getenv(gameIn), "game")
	p.cmd = inNamespace(exec.Command("/bin/sh", "-c", enter),
		append([]string{netip.PrefixFrom(p.addr, c.network.Bits()).String(), c.hosts, program}, args...)...)
	p.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = env, "/", &p.out, &p.out
	c.mu.Lock()
	c.pods = append(c.pods, p)
	c.mu.Unlock()
	c.names()
	in, err := p.cmd.StdinPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, p.cmd.Start())
	c.ip("link", "add", p.link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(p.cmd.Process.Pid))
	c.ip("link", "set", p.link, "master", "cluster", "up")
	_, err = io.WriteString(in, "go\n")
	require.NoError(c.t, err)
}

// adapt gives a value of a manifest the address of the pod; in a cluster of IPv6 also what docs/guides/kubernetes.md
// says for one.
func (c *podCluster) adapt(value string, addr netip.Addr) string {
	if addr.Is6() {
		value = strings.NewReplacer("$(POD_IP)", "[$(POD_IP)]", "=0.0.0.0:", "=[::]:").Replace(value)
	}
	return strings.ReplaceAll(value, "$(POD_IP)", addr.String())
}

func (c *podCluster) ip(args ...string) {
	c.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(c.t, err, "ip %v: %s", args, out)
}

// names writes the names of services: a headless one has the addresses of its pods.
func (c *podCluster) names() {
	c.t.Helper()
	text := fmt.Sprintf("127.0.0.1 localhost\n%s relay\n", c.network.Addr())
	for _, p := range c.of("tiles") {
		text += p.addr.String() + " tiles\n"
	}
	require.NoError(c.t, os.WriteFile(c.hosts, []byte(text), 0o644))
}

// ready waits until all pods are.
func (c *podCluster) ready() {
	c.t.Helper()
	for _, p := range c.pods {
		url := "http://" + net.JoinHostPort(p.addr.String(), "8082") + "/readyz"
		waittest.Until(c.t, func() bool { return get(c.ctx, url) == "{\"healthy\":true}\n" }, 30*time.Second,
			50*time.Millisecond, p.component)
	}
}

// end stops pods as Kubernetes does, and wants them to end well.
func (c *podCluster) end(pods ...*pod) {
	c.t.Helper()
	for _, p := range pods {
		c.leave(p)
		require.NoError(c.t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range pods {
		require.NoError(c.t, p.cmd.Wait(), "%s", &p.out)
	}
}

func (c *podCluster) kill(p *pod) {
	c.leave(p)
	_ = p.cmd.Process.Kill()
	if err := p.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		c.t.Error(err)
	}
}

// cutOff takes the network from a pod, which goes on for a while and knows nothing.
func (c *podCluster) cutOff(p *pod) {
	c.t.Helper()
	c.ip("link", "delete", p.link)
	c.leave(p)
	c.t.Cleanup(func() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() })
}

func (c *podCluster) leave(p *pod) {
	c.mu.Lock()
	c.pods = slices.DeleteFunc(c.pods, func(q *pod) bool { return p == q })
	c.mu.Unlock()
	c.names()
}
