package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// command is one command of tilectl.
type command struct {
	name  string // one or two words
	takes string // its arguments, for people
	says  string // what it does, one line
	needs needs  // back ends
	tiles int    // tiles it takes: so many, or one of the constants below
	run   func(ctx context.Context, t *tool, args []string) error
}

const (
	anyTiles    = -1 // any number of tiles, none meaning all
	tileAndMore = -2 // one tile, then whatever the command makes of it
	anyWords    = -3 // any number of names, none of them a tile's
	oneWord     = -4 // one name
)

var commands = []command{
	{"tiles", "[tile…]", "owner, epoch and its age; stream length, trim floor and the consumer that holds it",
		needCoordination | needAuthority, anyTiles, listTiles},
	{"tile", "<tile>", "everything known about one tile", needCoordination | needAuthority, 1, showTile},
	{"transfers", "<tile>", "entities that have left it and not arrived, and since when; what is refused or parked",
		needCoordination, 1, showTransfers},
	{"inspect", "[tile…]", "the tiles of one running server, as it sees them (-inspector)", needInspector, anyTiles,
		inspectTiles},
	{"inspect state", "<tile>", "the game's state as of the last snapshot, as JSON", needInspector, 1, inspectState},
	{"inspect takeover", "<tile>", "has that server take a tile over from its owner", needInspector, 1,
		inspectTakeOver},
	{"inspect drain", "<tile> [contact]", "has that server hand a tile to another, or release it", needInspector,
		tileAndMore, inspectDrain},
	{"tail", "<tile>", "a tile's batches as they are committed, until Ctrl-C (-from SEQ starts earlier)",
		needCoordination, 1, tail},
	{"verify", "<tile…>", "recomputes chains, epochs and positions of a tile's history: what is proved, or the first " +
		"promise broken", needCoordination | needAuthority, tileAndMore, verify},
	{"verify trace", "<file…>", "the same of files that trace has written, and of the decisions that processes have " +
		"logged (DecisionLog), together; needs no servers (-skew)", 0, anyWords, verifyTrace},
	{"trace", "<tile>", "writes a tile's stream, as it stands, to standard output (-from SEQ)", needCoordination, 1,
		trace},
	{"fanout", "[tile…]", "tiles that the broker tier carries, as heard there for a while (-for)",
		needFanout | needBroker, anyTiles, listTiers},
	{"deadletters", "<tile>", "stream entries that could not be read, and whether they can be read now",
		needCoordination, 1, listDeadLetters},
	{"deadletters replay", "<tile> [letter…]",
		"publishes those that can be read now to the fan-out and removes them (-dry-run only lists them)",
		needCoordination | needFanout, tileAndMore, replayDeadLetters},
	{"deadletters drop", "<tile> [letter…]", "deletes them (-dry-run, -yes)", needCoordination,
		tileAndMore, dropDeadLetters},
	{"slots move", "<host:port> <slot or from-to…>",
		"moves slots of the coordination cluster to a master, each only once all its replicas have the keys",
		needNodes, anyWords, moveSlots},
	{"plan", "", "slow work: waiting, running and dead requests and usage events, by shard", needPlans, 0, listPlans},
	{"plan letters", "[id or tile…]", "requests that failed in their last attempt, and why", needPlans, anyWords,
		listPlanLetters},
	{"plan replay", "[id or tile…]", "queues them anew, none meaning all (-dry-run)", needPlans, anyWords, replayPlans},
	{"plan drop", "[id or tile…]", "deletes them (-dry-run, -yes)", needPlans, anyWords, dropPlans},
	{"match", "[queue…]", "matchmaking queues: tickets by state, workers, and why the longest waits", needMatch,
		anyWords, listQueues},
	{"match tickets", "<queue>", "tickets that wait, longest first, and why each has no match", needMatch, oneWord,
		listTickets},
	{"match seats", "[pool…]", "seats that tiles offer to matches, and how many are used", needMatch, anyWords,
		listSeats},
	{"repair", "[tile…]", "names what no owner or consumer can have written into the stores, and mends it with " +
		"-apply; none meaning all (-delete, -for)", needCoordination | needAuthority, anyTiles, repairTiles},
	{"quarantine", "[tile…]", "tiles that run nowhere, because the game's rules cannot fold their history, and why",
		needAuthority, anyTiles, listQuarantines},
	{"quarantine release", "[tile…]", "lets tile servers claim them again, none meaning all: the rules are repaired",
		needAuthority, anyTiles, releaseQuarantines},
	{"quarantine skip", "<tile>", "the same, without the event that could not be folded (-yes)",
		needCoordination | needAuthority, 1, skipEvent},
	{"quarantine rewind", "<tile>", "puts it back to its last snapshot, and discards what came after (-yes)",
		needCoordination | needAuthority, 1, rewind},
	{"ledger", "", "the balance of every currency over the whole ledger, and whether every unit is accounted for",
		needLedger, 0, auditLedger},
	{"ledger pending", "[action…]", "spends without an outcome that were admitted more than -older ago", needLedger,
		anyWords, listPending},
	{"ledger settle", "[action…]", "settles them by what their tiles have committed (-dry-run, -remember)",
		needLedger | needCoordination, anyWords, settlePending},
	{"ledger resolve", "<action> <outcome>", "records an outcome that you have found out (-yes)", needLedger, anyWords,
		resolvePending},
	{"tables create", "", "makes the tables of checkpoints and ledger that do not exist (-dynamodb)", 0, 0,
		createTables},
	{"tables describe", "", "prints them as a template for CloudFormation; needs no servers", 0, 0, describeTables},
	{"checkpoint list", "", "every tile's durable snapshot", needCheckpoints, 0, listCheckpoints},
	{"checkpoint show", "<tile>", "one tile's durable snapshot (-blob writes its bytes to standard output)",
		needCheckpoints, 1, showCheckpoint},
	{"checkpoint verify", "[tile…]", "reads durable snapshots and compares their checksums", needCheckpoints, anyTiles,
		verifyCheckpoints},
	{"checkpoint restore", "<tile>", "restores a tile to its durable snapshot (-force: even if it has an owner)",
		needCoordination | needAuthority | needCheckpoints, 1, restoreCheckpoint},
}

// find picks the command a command line begins with, the one of more words if there are two.
func find(args []string) (*command, []string, error) {
	var found *command
	length := 0
	for i := range commands {
		words := strings.Fields(commands[i].name)
		if len(words) > length && len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			found, length = &commands[i], len(words)
		}
	}
	if found != nil {
		return found, args[length:], nil
	}
	if len(args) == 0 {
		return nil, nil, &usageError{"say what to do"}
	}
	return nil, nil, &usageError{fmt.Sprintf("there is no command %q", strings.Join(args[:min(2, len(args))], " "))}
}

// arguments checks the tiles on the command line.
func (c *command) arguments(args []string) ([]string, error) {
	tiles := args
	switch {
	case c.tiles == anyWords, c.tiles == oneWord && len(args) == 1:
		return args, nil
	case c.tiles == oneWord:
		return nil, &usageError{fmt.Sprintf("%s takes one name, not %d", c.name, len(args))}
	case c.tiles == tileAndMore:
		tiles = args[:min(1, len(args))]
		if len(args) == 0 {
			return nil, &usageError{c.name + " takes a tile"}
		}
	case c.tiles != anyTiles && len(args) != c.tiles:
		return nil, &usageError{fmt.Sprintf("%s takes %d tiles, not %d", c.name, c.tiles, len(args))}
	}
	for _, a := range tiles {
		if _, err := fence.ParseTileID(a); err != nil {
			return nil, &usageError{err.Error()}
		}
	}
	return args, nil
}

// tileOf reads an argument of which arguments has seen that it names a tile.
func tileOf(arg string) fence.TileID { return tilesOf([]string{arg})[0] }

func tilesOf(args []string) []fence.TileID {
	tiles := make([]fence.TileID, len(args))
	for i, a := range args {
		tiles[i], _ = fence.ParseTileID(a)
	}
	return tiles
}

// options is the command line.
type options struct {
	redis, postgres, world, table, dynamodb, checkpoints, fanout, nats, user string
	ledger, inspector                                                        string
	json, blob, force, dryRun, yes, apply                                    bool
	remove                                                                   string
	planName                                                                 string
	from                                                                     uint64
	timeout, during, older, remember, skew                                   time.Duration
	args                                                                     []string
}

func parse(args []string, errs io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("tilectl", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() { usage(f, errs) }
	f.StringVar(&o.redis, "redis", os.Getenv("TILEFENCE_REDIS"),
		"coordination Redis, a cluster or one server, `host:port,…` or a URL that begins with redis:// or rediss:// "+
			"($TILEFENCE_REDIS)")
	f.StringVar(&o.postgres, "postgres", os.Getenv("TILEFENCE_POSTGRES"),
		"epoch authority, a PostgreSQL `URL` ($TILEFENCE_POSTGRES)")
	f.StringVar(&o.world, "world", os.Getenv("TILEFENCE_WORLD"),
		"`name` of the world whose tiles are meant ($TILEFENCE_WORLD; default: the world without a name)")
	f.StringVar(&o.table, "table", "", "the authority's `table` (default tilefence_tiles, behind the world's name)")
	f.StringVar(&o.fanout, "fanout", os.Getenv("TILEFENCE_FANOUT"),
		"fan-out Redis, in the same form, `host:port,…` ($TILEFENCE_FANOUT)")
	f.StringVar(&o.planName, "plan-name", "", "plan: the `name` of the game's plans, redisplan.Config.Name")
	f.StringVar(&o.nats, "nats", os.Getenv("TILEFENCE_NATS"),
		"NATS servers of the broker tier, `URL,…` ($TILEFENCE_NATS)")
	f.StringVar(&o.user, "user", os.Getenv("TILEFENCE_USER"),
		"Redis `user` where a URL names none, whose password is $TILEFENCE_PASSWORD ($TILEFENCE_USER; default: "+
			"Redis's own)")
	f.StringVar(&o.dynamodb, "dynamodb", os.Getenv("TILEFENCE_DYNAMODB"),
		"endpoint of the checkpoint store, a `URL`; aws: region and credentials as the AWS tools find them "+
			"($TILEFENCE_DYNAMODB)")
	f.StringVar(&o.checkpoints, "checkpoints", "",
		"the checkpoint store's `table` (default <world>-checkpoints, without a world's name tilefence-checkpoints)")
	f.StringVar(&o.inspector, "inspector", os.Getenv("TILEFENCE_INSPECTOR"),
		"inspect: `URL` of a running server's inspector; $TILEFENCE_INSPECTOR_TOKEN is sent as Authorization: Bearer "+
			"($TILEFENCE_INSPECTOR)")
	f.StringVar(&o.ledger, "ledger", "", "the ledger's `table` in DynamoDB, or sqlite: and a file (default "+
		"<world>-ledger, without a world's name tilefence-ledger)")
	f.DurationVar(&o.older, "older", tile.DefaultRetryWindow, "ledger: admitted so long ago")
	f.BoolVar(&o.json, "json", false, "one JSON object a line")
	f.BoolVar(&o.blob, "blob", false, "checkpoint show: the blob itself, to standard output")
	f.BoolVar(&o.force, "force", false, "checkpoint restore: take the tile from the owner it has")
	f.DurationVar(&o.remember, "remember", 0, "ledger settle: RememberFor of your tiles; gives back, too, what was "+
		"spent on actions that certainly never happened. Needs -postgres (default: gives nothing back)")
	f.BoolVar(&o.dryRun, "dry-run", false, "deadletters, plan: replay, drop; ledger settle: only say what it would do")
	f.BoolVar(&o.apply, "apply", false, "repair: do what it would do")
	f.StringVar(&o.remove, "delete", "", "repair: `names` of what it is to delete though an owner may have "+
		"written it: "+strings.Join(redisstream.Removable, ","))
	f.BoolVar(&o.yes, "yes", false,
		"deadletters drop, plan drop, quarantine skip and rewind, ledger resolve: do not ask")
	f.Uint64Var(&o.from, "from", 0, "begin after this `sequence`: tail (default: at the end), trace, verify (all)")
	f.DurationVar(&o.skew, "skew", 100*time.Millisecond,
		"verify trace: by how much the clocks of processes may differ that have logged their decisions")
	f.DurationVar(&o.during, "for", 3*time.Second, "fanout: how long to listen; repair -apply: how long an owner "+
		"hash must not move")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for a back end")
	// Flags may stand before, between and after the words.
	for {
		if err := f.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, &usageError{err.Error()}
		}
		if f.NArg() == 0 {
			tables := cmp.Or(o.world, "tilefence") // a table is of one world
			o.checkpoints = cmp.Or(o.checkpoints, tables+"-checkpoints")
			o.ledger = cmp.Or(o.ledger, tables+"-ledger")
			return o, nil
		}
		o.args = append(o.args, f.Arg(0))
		args = f.Args()[1:]
	}
}

func usage(f *flag.FlagSet, w io.Writer) {
	fmt.Fprint(w, "tilectl inspects the tiles of a Tilefence deployment.\n\n  tilectl [flags] <command> [tile…]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-28s %s\n", strings.TrimSpace(c.name+" "+c.takes), c.says)
	}
	fmt.Fprintf(w, "  %-28s %s\n", "new <name>", "writes a small game: rules, tests, page, server; see new -h")
	fmt.Fprintf(w, "  %-28s %s\n", "dev [flags] -- <command…>",
		"runs a command with servers for development, see dev -h")
	fmt.Fprint(w, "\nExamples:\n\n"+
		"  tilectl -redis 127.0.0.1:7000 -postgres postgres://… repair 85283083fffffff\n"+
		"  tilectl -redis 127.0.0.1:7000 -postgres postgres://… repair -apply 85283083fffffff\n"+
		"\nFlags:\n\n")
	f.PrintDefaults()
}
