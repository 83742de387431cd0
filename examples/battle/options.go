package main

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// options is everything a battle can be told. Every flag can also be given as an environment variable,
// TILEFENCE_ and the flag's name in capitals. If the command line names any server, or -stack, the variables that
// name servers count for nothing.
type options struct {
	command string // empty: everything in one process

	stack                     string // embedded or local
	redis, fanout, views      string // host:port,host:port
	postgres, dynamodb        string // URLs
	world                     string // name, of what the servers keep
	tiles, clients, hosts     int
	lobby                     int // players
	pilots                    int // a tile
	duration, tick            time.Duration
	report                    string
	listen, contact           string // addresses of this process
	relayURL, gatewayURL      string // where bots connect
	hostList                  string // tile hosts, for the page's take-over button
	only                      string // tile: which tiles this host claims, "0,2,5" or "all"
	follow                    string // tile: which tiles this host follows, in the same form, or none
	gossip, gossipSeeds       string // tile, gateway: host:port to listen on, and those of others
	gossipAdvertise           string // and the one that others are told, where it is another
	secret                    string // of the actors, which prove to each other that they know it
	takeOver, noPage, verbose bool
	secure                    bool
	certificates              string // directory
	control                   string // relay, gateway: address of their page and figures, if they are secure
	chaos                     bool
	chaosEvery, balanceEvery  time.Duration
	durability                tile.Durability
	seed                      uint64
	botOptions
	trace  string
	orders bool // on standard input: a program that starts actors reads their figures so
}

// botOptions are the habits of bots.
type botOptions struct {
	drawEvery int  // ticks
	dealLater bool // no cards at the start
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
			fmt.Fprintf(out, "battle: there is no actor %q; -h lists them\n", o.command)
			return nil, errUsage
		}
	}
	f := flag.NewFlagSet("battle", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { usage(f, out) }
	o.define(f)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, errUsage
	}
	if err := fromEnvironment(f); err != nil {
		fmt.Fprintln(out, "battle:", err)
		return nil, errUsage
	}
	if err := o.check(f.Args()); err != nil {
		fmt.Fprintln(out, "battle:", err)
		return nil, errUsage
	}
	return o, nil
}

// define declares the flags.
func (o *options) define(f *flag.FlagSet) {
	text := f.StringVar
	text(&o.stack, "stack", "embedded",
		"`which` servers: embedded (none), or local (starts Redis, PostgreSQL, a DynamoDB-compatible server, and "+
			"Prometheus where it is installed)")
	text(&o.redis, "redis", "", "coordination Redis Cluster that already runs, `host:port,…` or a "+
		"rediss:// URL, with user, password and the files ca, cert, key")
	text(&o.fanout, "fanout", "", "fan-out Redis Cluster, `host:port,…` (default: the coordination cluster)")
	text(&o.views, "views", "", "relay: Redis for the views that relays share, `host:port` (default: they share none)")
	text(&o.postgres, "postgres", "", "PostgreSQL `URL`")
	text(&o.dynamodb, "dynamodb", "", "DynamoDB endpoint `URL`")
	text(&o.world, "world", "", "`name` of the world: battles that share servers under different names do not mix")
	f.IntVar(&o.tiles, "tiles", 7, "tiles of the world, 1 to 37")
	f.IntVar(&o.clients, "clients", 140, "bots, each an ordinary client with a ship")
	f.IntVar(&o.pilots, "pilots", 2, "bots of each tile whose ships a slow planner flies, too, in one process alone")
	f.IntVar(&o.lobby, "lobby", 24, "players besides the bots who come through the lobby, in one process alone")
	f.IntVar(&o.hosts, "hosts", 3, "tile hosts that share the tiles, in one process")
	f.DurationVar(&o.duration, "duration", 0, "how long to play (default: until Ctrl-C or SIGTERM)")
	f.DurationVar(&o.tick, "tick", 500*time.Millisecond, "time between ticks")
	text(&o.report, "report", "text", "`form` of the report at the end: text, json or none")
	text(&o.listen, "listen", "127.0.0.1:8080",
		"`address` of the page; of tile, relay and gateway their own. Port 0 takes any free one")
	text(&o.contact, "contact", "", "tile: the `address` others reach this host at (default: -listen)")
	text(&o.relayURL, "relay", "ws://127.0.0.1:8080/view", "bots: the relay's `URL`")
	text(&o.gatewayURL, "gateway", "ws://127.0.0.1:8081/intent", "bots, relay: the gateway's `URL`")
	text(&o.hostList, "hosts-at", "", "relay: tile hosts for the page's take-over button, `host:port,…`")
	text(&o.only, "own", "all", "tile: which tiles to own, or to follow if they are held, by `number`, as in 0,2,5")
	text(&o.follow, "follow", "",
		"tile: which tiles to follow, to take them over when their owner dies: by `number`, or all (default: none)")
	text(&o.gossip, "gossip", "",
		"tile, gateway: the IP `address` and port of this process's gossip (default: no gossip)")
	text(&o.gossipAdvertise, "gossip-advertise", "", "tile, gateway: the IP `address` and port at which others reach "+
		"this process's gossip (default: -gossip)")
	text(&o.gossipSeeds, "gossip-seeds", "",
		"tile, gateway: gossip addresses of others, `host:port,…`; any one that lives will do")
	text(&o.secret, "secret", "", "`text` that all actors know: it proves them to each other, encrypts the gossip, "+
		"and signs the tokens of players, who are believed without it. "+
		"Set TILEFENCE_SECRET, which other users of the machine do not see (default: none is needed)")
	f.Func("durability", "what an acknowledged tick `survives`: checkpointed, replicated (its replicas have it), "+
		"write-behind (the durable store has what other tiles were told) or write-through (it has the tick) "+
		"(default checkpointed: a ship can be lost if all coordination is)",
		func(s string) (err error) {
			o.durability, err = tile.ParseDurability(s)
			return err
		})
	f.BoolVar(&o.takeOver, "takeover", false, "tile: take tiles over from the owners they have")
	f.BoolVar(&o.secure, "secure", false, "use TLS between players, relay, gateway, tile hosts and the servers, with "+
		"certificates that one process makes for itself and -stack local; the page, its buttons and the figures are "+
		"at -listen, of an actor at -control, and not where players connect")
	text(&o.certificates, "certificates", "", "an actor with -secure, or servers that already run: the `directory` of "+
		"certificate.pem, key.pem and authority.pem, for all connections but PostgreSQL's, which has them in its URL")
	text(&o.control, "control", "127.0.0.1:0",
		"relay, gateway with -secure: the `address` of page, figures and health")
	f.BoolVar(&o.noPage, "no-page", false, "serve no spectator page")
	f.BoolVar(&o.verbose, "v", false, "log what happens")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the bots' decisions and of the order of faults")
	text(&o.trace, "trace", "", "in one process, tile, gateway: a `file` that takes what owners and gateways decide, "+
		"for tilectl verify trace (default: none)")
	o.botOptions.define(f)
	f.BoolVar(&o.orders, "orders", false, "an actor: print the figures so far, as one line of JSON, for each line "+
		"\"cut\" on standard input; end when it ends")
	f.BoolVar(&o.chaos, "chaos", false,
		"break one thing after another: owners, connections, viewers, and with -stack local the servers")
	f.DurationVar(&o.chaosEvery, "chaos-every", 5*time.Second, "time between two faults, at least")
	f.DurationVar(&o.balanceEvery, "balance-every", 3*time.Second,
		"about how often a host looks for one with fewer tiles, to hand it one; 0 hands nothing over")
}

func (o *botOptions) define(f *flag.FlagSet) {
	// Cards are what goes through the ledger, and in a game of this rhythm they are few beside the moves.
	f.IntVar(&o.drawEvery, "draw-every", 40, "ticks until a player draws the next card")
	f.BoolVar(&o.dealLater, "deal-later", false, "players start without cards, and draw the first at different times")
}

func usage(f *flag.FlagSet, out io.Writer) {
	fmt.Fprint(out, "battle is the reference deployment of Tilefence: a little game of ships on tiles.\n\n"+
		"  battle [flags]          everything in one process, with a page to watch it\n"+
		"  battle <actor> [flags]  one actor, against servers that already run:\n\n")
	for _, name := range []string{"tile", "bridge", "checkpointer", "relay", "gateway", "bots"} {
		fmt.Fprintf(out, "    %-13s %s\n", name, commands[name])
	}
	fmt.Fprint(out, "\nFlags; each can also be set as an environment variable, such as TILEFENCE_REDIS for -redis:\n\n")
	f.PrintDefaults()
}

// serverFlags name the servers to use, all of them together.
var serverFlags = []string{"stack", "redis", "fanout", "views", "postgres", "dynamodb"}

// fromEnvironment sets the flags that have a variable and are not on the command line, which was read before.
func fromEnvironment(f *flag.FlagSet) error {
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	if slices.ContainsFunc(serverFlags, func(name string) bool { return given[name] }) {
		for _, name := range serverFlags {
			given[name] = true
		}
	}
	var err error
	f.VisitAll(func(fl *flag.Flag) {
		if given[fl.Name] {
			return
		}
		name := "TILEFENCE_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && err == nil {
			if e := f.Set(fl.Name, v); e != nil {
				err = fmt.Errorf("%s=%q: %w", name, v, e)
			}
		}
	})
	return err
}

// rule is something that options must not be.
type rule struct {
	bad  bool
	why  string
	args []any
}

// check refuses what makes no sense, and completes what depends on other flags.
func (o *options) check(rest []string) error {
	rules := append(append(o.values(), o.encryption()...), o.combinations()...)
	rules = append(rules, rule{len(rest) > 0, "%q is neither an actor nor a flag", []any{strings.Join(rest, " ")}})
	for _, r := range rules {
		if r.bad {
			return fmt.Errorf(r.why, r.args...)
		}
	}
	if o.redis != "" {
		o.stack = "servers"
	}
	if o.command == "" {
		o.secret = cmp.Or(o.secret, rand.Text()) // a battle in one process makes its own
	}
	o.fanout, o.contact = cmp.Or(o.fanout, o.redis), cmp.Or(o.contact, o.listen)
	return nil
}

// values are the rules for single flags.
func (o *options) values() []rule {
	return []rule{
		{o.stack != "embedded" && o.stack != "local", "-stack %s: want embedded or local", []any{o.stack}},
		{o.report != "text" && o.report != "json" && o.report != "none",
			"-report %s: want text, json or none", []any{o.report}},
		{o.tiles < 1 || o.tiles > game.MaxWorld, "-tiles %d: want 1 to %d", []any{o.tiles, game.MaxWorld}},
		{o.clients < 0 || o.clients > 20000, "-clients %d: want 0 to 20000", []any{o.clients}},
		{o.pilots < 0 || o.pilots > 100, "-pilots %d: want 0 to 100", []any{o.pilots}},
		{o.lobby < 0 || o.lobby > 1000, "-lobby %d: want 0 to 1000", []any{o.lobby}},
		{o.hosts < 1 || o.hosts > 16, "-hosts %d: want 1 to 16", []any{o.hosts}},
		{o.tick < 10*time.Millisecond, "-tick %v: want at least 10ms", []any{o.tick}},
		{o.duration < 0, "-duration %v: want zero or more", []any{o.duration}},
		{o.balanceEvery < 0, "-balance-every %v: want zero or more", []any{o.balanceEvery}},
		{fence.World{Name: o.world}.Validate() != nil, "-world: %w", []any{fence.World{Name: o.world}.Validate()}},
		{o.drawEvery < 1, "-draw-every %d: want 1 or more", []any{o.drawEvery}},
		{o.chaosEvery < 100*time.Millisecond, "-chaos-every %v: want at least 100ms", []any{o.chaosEvery}},
	}
}

// combinations are the rules for flags that depend on each other.
func (o *options) combinations() []rule {
	remote := o.redis != "" || o.postgres != "" || o.dynamodb != "" || o.fanout != ""
	return []rule{
		{o.orders && o.command == "", "-orders are for an actor: a battle in one process takes none", nil},
		{o.chaos && o.command != "", "-chaos breaks what one process holds together: leave out %s", []any{o.command}},
		{o.chaos && o.hosts < 2, "-chaos kills tile hosts, and another has to take over: want at least -hosts 2", nil},
		{o.gossip != "" && o.command == "", "-gossip is between processes: a battle in one process needs none", nil},
		{o.secret != "" && len(o.secret) < 16, "-secret: want 16 characters or more", nil},
		{o.gossip == "" && o.gossipSeeds != "", "-gossip-seeds need a gossip of their own: give -gossip too", nil},
		{remote && o.stack == "local", "-stack local starts servers of its own: name none beside it", nil},
		{remote && (o.redis == "" || o.postgres == "" || o.dynamodb == ""),
			"servers that already run are needed all together: -redis, -postgres and -dynamodb", nil},
		{o.command != "" && !remote, "%s runs only against servers: give -redis and the others", []any{o.command}},
	}
}

// encryption are the rules for certificates and secrets.
func (o *options) encryption() []rule {
	return []rule{
		{o.secure && o.command != "" && (o.certificates == "" || o.secret == ""),
			"-secure makes certificates and a secret for one process alone: give %s -certificates and -secret",
			[]any{o.command}},
		{o.command != "" && o.views != "" && o.secret == "",
			"-views are what relays believe of each other: give all of them one -secret", nil},
		{!o.secure && o.certificates != "", "-certificates are for -secure: give that too", nil},
	}
}

// keys prove the actors to each other.
func (o *options) keys() tilehttp.Keys {
	if o.secret == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(o.secret))
	return tilehttp.Keys{sum[:]}
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
			return nil, fmt.Errorf("-%s %q: want numbers from 0 to %d, or all", flag, numbers, len(world)-1)
		}
		tiles = append(tiles, world[i])
	}
	return tiles, nil
}
