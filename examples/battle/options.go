package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/region"
)

// maxTiles is the largest world: a disk of three rings.
const maxTiles = 37

// options is everything a battle can be told. Every flag can also be given as an environment variable,
// BATTLE_ and the flag's name in capitals.
type options struct {
	command string // empty: everything in one process

	stack                     string // embedded or local
	redis, fanout             string // host:port,host:port
	postgres, dynamodb        string // URLs
	tiles, clients, hosts     int
	duration, tick            time.Duration
	report                    string
	listen, contact           string // addresses of this process
	relayURL, gatewayURL      string // where bots connect
	hostList                  string // tile hosts, for the page's take-over button
	only                      string // tile: which tiles this host claims, "0,2,5" or "all"
	follow                    string // tile: which tiles this host follows, in the same form, or none
	gossip, gossipSeeds       string // tile, gateway: host:port to listen on, and those of others
	takeOver, noPage, verbose bool
	chaos                     bool
	chaosEvery, balanceEvery  time.Duration
	durability                tile.Durability
	seed                      uint64
}

// commands are the actors that can run as processes of their own.
var commands = map[string]string{
	"tile":         "owns tiles: ticks, commits, takes intents at -listen",
	"bridge":       "forwards committed batches to fan-out",
	"checkpointer": "copies snapshots to DynamoDB",
	"relay":        "holds the watchers' WebSockets and the spectator page at -listen",
	"gateway":      "admits intents at -listen and sends them to the owners",
	"bots":         "plays: -clients ordinary clients of -relay and -gateway",
}

// errUsage ends the program with status 2 after the usage was printed.
var errUsage = errors.New("usage")

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.command = args[0]
		args = args[1:]
		if _, ok := commands[o.command]; !ok {
			fmt.Fprintf(out, "battle: there is no actor %q; the actors are tile, bridge, checkpointer, relay, gateway and bots\n", o.command)
			return nil, errUsage
		}
	}
	f := flag.NewFlagSet("battle", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { usage(f, out) }
	f.StringVar(&o.stack, "stack", "embedded", "`which` servers: embedded (none), or local (starts Redis, PostgreSQL and a DynamoDB-compatible server)")
	f.StringVar(&o.redis, "redis", "", "coordination Redis Cluster that already runs, `host:port,…`")
	f.StringVar(&o.fanout, "fanout", "", "fan-out Redis Cluster, `host:port,…` (default: the coordination cluster)")
	f.StringVar(&o.postgres, "postgres", "", "PostgreSQL `URL`")
	f.StringVar(&o.dynamodb, "dynamodb", "", "DynamoDB endpoint `URL`")
	f.IntVar(&o.tiles, "tiles", 7, "tiles of the world, 1 to 37")
	f.IntVar(&o.clients, "clients", 140, "bots, each an ordinary client with a ship")
	f.IntVar(&o.hosts, "hosts", 3, "tile hosts that share the tiles, in one process")
	f.DurationVar(&o.duration, "duration", 0, "how long to play (default: until Ctrl-C or SIGTERM)")
	f.DurationVar(&o.tick, "tick", 500*time.Millisecond, "time between ticks")
	f.StringVar(&o.report, "report", "text", "`form` of the report at the end: text, json or none")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the page; of tile, relay and gateway their own. Port 0 takes any free one")
	f.StringVar(&o.contact, "contact", "", "tile: the `address` others reach this host at (default: -listen)")
	f.StringVar(&o.relayURL, "relay", "ws://127.0.0.1:8080/view", "bots: the relay's `URL`")
	f.StringVar(&o.gatewayURL, "gateway", "ws://127.0.0.1:8081/intent", "bots, relay: the gateway's `URL`")
	f.StringVar(&o.hostList, "hosts-at", "", "relay: tile hosts for the page's take-over button, `host:port,…`")
	f.StringVar(&o.only, "own", "all", "tile: which tiles to claim, by `number`, such as 0,2,5")
	f.StringVar(&o.follow, "follow", "", "tile: which tiles to follow, to take them over when their owner dies: by `number`, or all (default: none)")
	f.StringVar(&o.gossip, "gossip", "", "tile, gateway: the IP `address` and port of this process's gossip, UDP and TCP: who lives, and who owns what (default: no gossip)")
	f.StringVar(&o.gossipSeeds, "gossip-seeds", "", "tile, gateway: gossip addresses of others, `host:port,…`; any one that lives will do")
	f.Func("durability", "what an acknowledged tick `survives`: checkpointed, replicated (its replicas have it) or write-through (the durable store has it) (default checkpointed)",
		func(s string) (err error) {
			o.durability, err = tile.ParseDurability(s)
			return err
		})
	f.BoolVar(&o.takeOver, "takeover", false, "tile: take tiles over from the owners they have")
	f.BoolVar(&o.noPage, "no-page", false, "serve no spectator page")
	f.BoolVar(&o.verbose, "v", false, "log what happens")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the bots' decisions, and of chaos: the same one breaks the same things in the same order")
	f.BoolVar(&o.chaos, "chaos", false, "break one thing after another while the battle is played: owners, connections, and with -stack local the servers")
	f.DurationVar(&o.chaosEvery, "chaos-every", 5*time.Second, "time between two faults; the next waits until every tile is well")
	f.DurationVar(&o.balanceEvery, "balance-every", 3*time.Second, "in one process: time between two hand-overs from a host with many tiles to one with few; 0 hands nothing over")
	if err := fromEnvironment(f); err != nil {
		fmt.Fprintln(out, "battle:", err)
		return nil, errUsage
	}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, errUsage
	}
	if err := o.check(f.Args()); err != nil {
		fmt.Fprintln(out, "battle:", err)
		return nil, errUsage
	}
	return o, nil
}

func usage(f *flag.FlagSet, out io.Writer) {
	fmt.Fprint(out, "battle is the reference deployment of Tilefence: a little game of ships on tiles.\n\n"+
		"  battle [flags]          everything in one process, with a page to watch it\n"+
		"  battle <actor> [flags]  one actor, against servers that already run:\n\n")
	for _, name := range []string{"tile", "bridge", "checkpointer", "relay", "gateway", "bots"} {
		fmt.Fprintf(out, "    %-13s %s\n", name, commands[name])
	}
	fmt.Fprint(out, "\nFlags; each can also be set as an environment variable, such as BATTLE_REDIS for -redis:\n\n")
	f.PrintDefaults()
}

// fromEnvironment sets the flags that have a variable, before the command line is read.
func fromEnvironment(f *flag.FlagSet) error {
	var err error
	f.VisitAll(func(fl *flag.Flag) {
		name := "BATTLE_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && err == nil {
			if e := f.Set(fl.Name, v); e != nil {
				err = fmt.Errorf("%s=%q: %w", name, v, e)
			}
		}
	})
	return err
}

// check refuses what makes no sense, and completes what depends on other flags.
func (o *options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q is neither an actor nor a flag", rest[0])
	}
	for _, c := range []struct {
		flag  string
		value any
		ok    bool
		want  string
	}{
		{"stack", o.stack, o.stack == "embedded" || o.stack == "local", "embedded or local"},
		{"report", o.report, o.report == "text" || o.report == "json" || o.report == "none", "text, json or none"},
		{"tiles", o.tiles, o.tiles >= 1 && o.tiles <= maxTiles, fmt.Sprintf("1 to %d", maxTiles)},
		{"clients", o.clients, o.clients >= 0 && o.clients <= 20000, "0 to 20000"},
		{"hosts", o.hosts, o.hosts >= 1 && o.hosts <= 16, "1 to 16"},
		{"tick", o.tick, o.tick >= 10*time.Millisecond, "at least 10ms"},
		{"duration", o.duration, o.duration >= 0, "zero or more"},
		{"balance-every", o.balanceEvery, o.balanceEvery >= 0, "zero or more"},
		{"chaos-every", o.chaosEvery, o.chaosEvery >= 100*time.Millisecond, "at least 100ms"},
	} {
		if !c.ok {
			return fmt.Errorf("-%s %v: want %s", c.flag, c.value, c.want)
		}
	}
	if err := errors.Join(o.checkChaos(), o.checkGossip(), o.checkServers()); err != nil {
		return err
	}
	if o.fanout == "" {
		o.fanout = o.redis
	}
	if o.contact == "" {
		o.contact = o.listen
	}
	return nil
}

// checkChaos refuses chaos where nothing could survive it.
func (o *options) checkChaos() error {
	switch {
	case o.chaos && o.command != "":
		return fmt.Errorf("-chaos breaks what one process holds together: run the battle without an actor, not %s", o.command)
	case o.chaos && o.hosts < 2:
		return errors.New("-chaos kills tile hosts, and somebody has to take over: want at least -hosts 2")
	}
	return nil
}

// checkGossip refuses gossip where nobody would listen.
func (o *options) checkGossip() error {
	switch {
	case o.gossip != "" && o.command == "":
		return errors.New("-gossip is between processes, tile and gateway: a battle in one process needs none")
	case o.gossip == "" && o.gossipSeeds != "":
		return errors.New("-gossip-seeds are joined from a gossip of one's own: give -gossip too, such as 127.0.0.1:7946")
	}
	return nil
}

// checkServers refuses half a set of servers.
func (o *options) checkServers() error {
	remote := o.redis != "" || o.postgres != "" || o.dynamodb != "" || o.fanout != ""
	switch {
	case remote && o.stack == "local":
		return errors.New("-stack local starts servers of its own: leave out -redis, -fanout, -postgres and -dynamodb")
	case remote && (o.redis == "" || o.postgres == "" || o.dynamodb == ""):
		return errors.New("servers that already run are needed all together: -redis, -postgres and -dynamodb (and -fanout, if it is a cluster of its own)")
	case o.command != "" && !remote:
		return fmt.Errorf("%s runs as a process of its own only against servers: give -redis, -postgres and -dynamodb", o.command)
	}
	return nil
}

// world lists the tiles of the battle: adjacent ones, ring by ring around San Francisco.
func (o *options) world() ([]fence.TileID, error) {
	middle, err := region.At(37.7752, -122.4186, 5)
	if err != nil {
		return nil, err
	}
	disk, err := region.Disk(middle, 3)
	if err != nil {
		return nil, err
	}
	return disk[:o.tiles], nil
}

// list splits what a flag lists with commas between; nothing is an empty list.
func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// numbered picks the tiles that -own or -follow names.
func numbered(flag, numbers string, world []fence.TileID) ([]fence.TileID, error) {
	if numbers == "all" {
		return world, nil
	}
	var tiles []fence.TileID
	for _, s := range list(numbers) {
		var i int
		if _, err := fmt.Sscan(s, &i); err != nil || i < 0 || i >= len(world) {
			return nil, fmt.Errorf("-%s %q: want numbers from 0 to %d, with commas between, or all", flag, numbers, len(world)-1)
		}
		tiles = append(tiles, world[i])
	}
	return tiles, nil
}
