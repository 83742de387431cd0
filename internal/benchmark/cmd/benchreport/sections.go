//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// section is one table of the page.
type section struct {
	title string
	about string
	pkg   string
	match string // of its benchmarks; empty: it is not run by go test
}

// shortTitle is the section of the headline's short run.
const shortTitle = "A battle on real servers"

var sections = []section{
	{"A gateway of which too much is asked",
		"One processor, 2,000 players. `carries` is what it was found to carry; then 1, 1.5, 2 and 3 times that were asked for, by turns. `least/best` is what was answered over what was asked for or, if that is less, the best of all loads, where it was least. " +
			"`refused`, and the latencies, are at 3 times. `recovery` is from the moment at which the load went back to 0.8 until nothing was refused and p99 was as before. A movement takes 150 us of the processor beside what the gateway does with it.",
		"./internal/benchmark", "Overload$"},
	{"The commit function against raw XADD",
		"The same 2 KiB payload, the same connection, the same run. `ratio` is commits over raw XADDs, `gain` over commits in the layout of revision 7, which had a field for each part of an entry. " +
			"`bare-ratio` and `bare-gain` are those of a function that compares one string, appends, and sets head and time to live, and checks nothing: the most that a fence in a function can reach.",
		"./fence/redisfence", "Pipelined|RoundTrip"},
	{"Many tiles in one process",
		"Each tile commits 700 bytes after 700 bytes through one store. The ratios are over one client that fills pipelines of 256 in the same run.",
		"./fence/redisfence", "Tiles|Confirmed"},
	{"Chain and codec", "Hashing, encoding and decoding a tick's batch and its frame.", "./stream", "."},
	{"Minting an epoch",
		"PostgreSQL with fsync on. The raw statement is the baseline: in the storm one row a transaction (32 connections) " +
			"and 500 rows a statement, beside 4,000 callers, and etcd's compare-and-swap (one node, 256 callers); alone, calls in alternation. " +
			"Shards: tiles dealt to two PostgreSQL servers by a hash, over the same callers on one; both share this machine's processors.",
		"./fence/pgfence", "."},
	{"Replay",
		"A full tile (2,401 cells) and 60 batches: read, verified and folded, as a new owner does. With the battle's short names of ships, and with longer ones.",
		"./internal/benchmark", "Replay"},
	{"A host of 10,000 tiles",
		"One process on one core, 2 Hz, one tick in twenty with an intent. `late` is how long after its due time a tick began, `cores` the processor time of the process, its driver included.",
		"./internal/benchmark", "^BenchmarkHost$"},
	{"Crossing a border",
		"Pairs of tiles of one process at 2 Hz that entities of 200 bytes cross, on embedded back ends, and on a Redis cluster with replicas (`-redis`), which have to have what a tile speaks of; what the wire takes comes on top. " +
			"steady: 16 pairs, 10 entities a tick each way, the ticks of each pair another time apart. full: one pair, 1,000 a tick each way. warp: a fleet of 1,000 leaves in one tick, the next when it has arrived. " +
			"`ticks-` are tick intervals from the commit of a departure to that of the arrival, `tick-ms-p99` what a tick takes, `us/each` processor time of both ends with the rules and the idle ticks, `x-bytes` what both streams have for a crossing, over 2.5 payloads and 64 bytes.",
		"./internal/benchmark", "^BenchmarkCrossing$"},
	{"What transfers cost a tick",
		"200 tiles of one process at 2 Hz move 50 ships a tick each, by events of 200 bytes; of every other tile two of the ships cross to another one. The tiles are `WriteBehind`, and their journal answers, and is frozen (`frozen-`), by turns of 6 s. " +
			"`x-` is the time of ticks with transfers over that of ticks without, of the same moments, `more-us-p50` the difference, `without-ms-p99` the ticks without. On Redis a tick is mostly the commit; embedded it is mostly the processor's part.",
		"./internal/benchmark", "^BenchmarkCrossingTicks$"},
	{"Crossing a border while servers die",
		"Eight pairs of tiles at 2 Hz, 4 entities a tick each way, two tile servers a side, of which one follows, gossip's fast settings; PostgreSQL and Redis, two replicas a master. " +
			"owner: the tile server of one side is killed with SIGKILL. hung: it is stopped with SIGSTOP, and its connections stay open, as those of a machine do that has lost its power. master: that of the side's tiles is killed. 36 times each, either side in turn. " +
			"Crossings under way between the kill and the first batch of the tile after it (`takeover`): `source` are those from the side that was hit, `destination` those to it; `over-ticks` is what one took beside the take-over of the tile that was hit, in ticks (all were decided before the take-over if it is negative), `lost` what arrived nowhere.",
		"./internal/benchmark", "^BenchmarkCrossingKilled$"},
	{"The directory of players",
		"One node is offered 20,000 look-ups a second of one player each, every one when it is due, whether those before are answered or not; in turns with it, as many bare HGETALLs of the same records, each a call of its own (`bare-`). " +
			"Latency counts from when a look-up was due. `us/each` is processor time of client and node, which share this machine's processors, and `x-us` that over the bare call's.",
		"./fence/route/directory/redisdirectory", "^BenchmarkLook$"},
	{"Isolation",
		"What a fault of one plane does to the commits of another. 400 tiles at 2 Hz commit 1 KiB a tick; bridge, checkpointer (to DynamoDB, every second), relay and clients are processes of their own. " +
			"Owner and coordination nodes have one half of the processors, everything else the other, as if they were different machines. " +
			"`x-p99` is the p99 of commits during the fault over `calm-p99-ms`, the mean of before and after; the row `nothing-wrong` shows how far windows differ by themselves, and no other ratio is more exact than that. " +
			"`x-late-p99` is the same ratio of how late ticks begin, for which no store is asked: where it is high too, processors were short. " +
			"`behind` is how many entries a tile were to be caught up with, `catch-up-s` how long that took, `x-catching-up` the ratio meanwhile. " +
			"The storms read every tile again and again: 16 at once, each after up to 20 ms, as a relay with its defaults repairs gaps; and 256 at once.",
		"./internal/benchmark", "^BenchmarkIsolation$"},
	{"Snapshots of full tiles",
		"Ten tiles of 2,401 cells save snapshots every second, as three hundred do at the default interval, beside 200 tiles of the same node. " +
			"`tick-ms` is all that a tick of such a tile can wait for: encoding, which is on the tick's own goroutine, and the functions for snapshot and trim in the node (`-fn-`), which a commit finds running. `save-ms` is beside the tick. " +
			"`x-others` is the p99 of the other tiles' commits over that without snapshots.",
		"./internal/benchmark", "FullTile"},
	{"The cold path",
		"Full tiles (100 KB, 60 batches) recovered from one node by one process, 16 or 64 at once, and the commits of 200 tiles of that node meanwhile; from the master, and from its replica, which has the readers' processors. `node-cores` is the master's processor time.",
		"./internal/benchmark", "ColdPath"},
	{"Take-over",
		"A tile server killed with SIGKILL, gossip's fast settings, a warm follower in another process: `detect` until gossip suspects it, `first-commit` until the successor's first commit is confirmed, `takeover` the successor's own part per tile. A hand-over to a named successor. From the store's refusal to the redirect in the last client's hands, over HTTP.",
		"./internal/benchmark", "OwnerKilled|Handover|^BenchmarkRedirect"},
	{"Split brain",
		"A tile server that keeps ticking is cut off from its peers and from PostgreSQL, but not from the coordination store: 100 rounds. " +
			"`redirect` is from the cut until a client of the old owner holds the redirect to the new one, `detection` until gossip suspects the old one, `beside-detection` the rest. " +
			"The blip is what a watcher sees when a rival takes a tile from an owner that serves: the longest time between two frames, where `usual` is that of the ticks around it.",
		"./internal/benchmark", "PartitionRedirect|ContestedBlip"},
	{"Routing under churn",
		"A gateway sends intents to 500 tiles whose owners change all the time, ten a second by order and more (`moves/s`) as hosts come and go. Hosts are simulated: they answer who owns a tile. " +
			"`stale-%` are first answers of the routing table that named a host which was no longer the owner; each cost one redirect or one read of the owner hash. `lost` are intents that did not reach an owner in the end.",
		"./internal/benchmark", "RoutingChurn"},
	{"Bytes of a full tile",
		"A tile of 2,401 cells with ships on nine of ten of them: its snapshot, and a tick in which 50 or all of its ships move, as the stream holds it, with short and with longer names of ships.",
		"./internal/benchmark", "FullTileBytes"},
	{"The bridge", "Batches from the log to fan-out, against the bare publisher.", "./bridge", "Memory|Redis"},
	{"The bridge under load",
		"Owners in another process, two Redis clusters, and the bridge, all on this machine. Idle: 10,000 tiles without events. " +
			"Paced: tiles that commit 700 bytes twice a second each, at phases of their own; from the answer to a commit to the return of the publish, with wake hints and without; masters without replicas. " +
			"KeepUp: one node, committed to as fast as it takes it; `ratio` is forwarded over committed meanwhile. `cores` is the bridge's processor time, the stopwatch included.",
		"./bridge", "Idle|Paced|KeepUp|Wake"},
	{"The bridge at saturated tiles",
		"Tiles that commit 3.4 KB twice a second each: 1,000 of them. From the answer to a commit to the return of the publish; `ratio` is forwarded over committed, `cores` the bridge's processor time, the stopwatch included.",
		"./bridge", "Saturated"},
	{"What durability costs",
		"From an intent to its outcome, on real servers, for one tile and for 64 at once that are played as fast as they go. The durable store is on this machine's processors too.",
		"./tile", "Durability"},
	{"Fan-out",
		"Sharded pub/sub, against the bare command; and 10,000 subscriptions until all are in force again: after every connection was lost, and after one of three nodes died, from when its slots have a new home.",
		"./stream/fanout/redisfanout", "^BenchmarkPublish$|^BenchmarkDeliver$|Resubscribe"},
	{"A tile that everybody watches",
		"Frames of one tile, from one node of the fan-out to so many relays (BrokerNode on NATS, Node on Redis), and from one relay to so many watchers. Processor time is that of the node or relay alone. " +
			"`/core` and `/Gbit` are how many relays, or watchers, of a tile that ticks twice a second one core and one link serve; [decision 6](decisions/06-broker-tier.md) calculates 200,000 watchers from them.",
		"./stream/fanout/...", "BrokerNode|RelayNode|^BenchmarkNode$"},
	{"Wake hints", "Noting that a tile has something new, sending that, and hearing it.", "./stream/fanout/...",
		"Hint"},
	{"Marks and trims", "`server-us/op` is the node's own time for one call.", "./stream/redisstream", "."},
	{"Shared tiles", "One heartbeat of one of so many processes that share tiles.", "./stream/share/...", "."},
	{"The relay", "One frame to many clients, against writing the same bytes to bare sockets.", "./relay",
		"Broadcast|CommitToClient|Deliver"},
	{"A crowd at the relay",
		"What a connection of one tile costs the relay, with the bare client at its other end; what compressing a message wins, and takes.",
		"./relay", "ConnectionMemory|Deflate"},
	{"Commits in a storm of joins",
		"10,000 clients connect to a relay within a second and subscribe: all to one of 200 tiles of one coordination node, which tick at 2 Hz, or spread over all of them. " +
			"`x-p99` is the p99 of the 200 tiles' commits from the first connection to the last Sync, over that of the two seconds before (`calm-`): medians of nine rounds, each with a new relay. " +
			"Before each storm is one of as many clients at a server that only shakes hands and sends what lies ready (`bare-`); `x-over-bare` is the p99 of commits in the storm over that in the bare one. " +
			"Owner and coordination nodes have one half of the processors; relay, bridge, fan-out and clients share the other, which is why joining takes longer than in the row `shared-cores`, in which all share all.",
		"./internal/benchmark", "JoinStorm"},
	{"The relay beside other servers",
		"9,500 WebSockets, 600 bytes twice a second to each of them; each server is a process of its own in turn, and the clients are another process on the same processors. " +
			"`cores` is the server's processor time; for the relay with the owner's commits. Latency is from before the message is published until a client has read it. " +
			"`KiB/conn` is what a connection adds to the resident memory while messages are sent, `held-KiB/conn` to heap and stacks after a collection. " +
			"The relay and centrifuge let clients recover what they missed; gws and gorilla/websocket (with a writer for each connection, as in its chat example) promise nothing.",
		"./internal/benchmark/peers", "Peers"},
	{"Views that relays share",
		"10,000 clients join 50 tiles within a second, which they name in their handshakes, through four relays that know nothing, and again 2 s after all relays were replaced (`restart-`). The rows differ in how relays come to their views: each reads for itself; under a key with a time to live; written 250 ms behind the commits; or by versions, with one rebuild for each (`relay/viewcache`). " +
			"`reads/tile` are calls that read the coordination cluster, `reads/version` the most for one tile and version, `again` reads of what another relay had read. `outdated` are views that lack what was committed 1.5 s before, `wrong` those that are not the history, or regress; clients repair the first by themselves. " +
			"`x-memory` is the memory of the cache's keys over one copy of each view, `x-commit` the p99 of 250 other tiles' commits during the storm over `calm-p99-ms`. Owner and coordination nodes have one half of the processors, relays and clients the other; in the row `shared-cores` everything shares all of them, and in `nice` too, where relays and clients run under SCHED_IDLE. Before each storm is one at bare servers, which only make the handshake and send what lies ready for the tile that it names: what such a storm costs at least, and what it does to commits that it does not touch (`bare-`); `x-over-bare` is the p99 of commits over that in the bare storm, the median of the pairs. Relays run with GOGC=400. " +
			"`relays-us/join` and `clients-us/join` are processor time during a storm over its joins: of the relays' process, which plays the tiles too, and of the clients'. Latencies and commits are medians of seven cold storms.",
		"./internal/benchmark", "ViewStorm"},
	{"Views, audited",
		"Views read through four caches on one store, which is emptied every two seconds, while 20 tiles commit, trim and change owners; each view is compared with what their owners committed. 10 million, or as many as the time allows, the comparison included: a minute, or TILEFENCE_BENCH_VIEW_LENGTH.",
		"./internal/benchmark", "ViewAudit"},
	{"Intents from gateway to tile server",
		"One tile server at 2 Hz, one gateway's connection, and the former way of one request an intent, offered the same. " +
			"`late` is from the tick's commit to the answer.",
		"./tile/tilehttp", "Intents/steady"},
	{"What an order costs a gateway",
		"4,000 players on sockets of their own give a movement each 1.25 s; a tile server answers those of a tick of 100 ms together. `bare` is a process that reads the same frames and writes an answer of as many bytes, in the same run. " +
			"`us` is processor time an order that was answered (`answered` is how many of all, at most 1), `x-bare` the gateway's over that of bare; `idle-KiB` and `playing-KiB` are the gateway's resident memory a player.",
		"./internal/benchmark", "^BenchmarkOrderCost$"},
	{"Checkpoints",
		"A 100 KB snapshot against one bare write of the same bytes, a journal entry of 2 KiB likewise; what 10,000 tiles cost of which nothing is new.",
		"./checkpoint/...", "."},
	{"Routing",
		"A look-up among 100,000 tiles, alone and beside a writer that never pauses; and the map of 100,000 tiles as it travels.",
		"./fence/route/...", "Lookup|Route|Learn|Map"},
	{"Gossip",
		"Five members on loopback with the fast settings: from an announcement until all know, and from a member's silence until it is called dead.",
		"./fence/route/gossip", "Announce|Death"},
	{"Slow work off the tick",
		"Tick: 20 tiles at 20 Hz commit to the cluster that has the plans too, with nothing to decide, with 1,000 plans in flight, and with as many intents as plans that end, by turns. Calls take 5 to 30 s, as in the plan, or 1 to 5 s: 330 new plans a second. `x-p99` is plans over nothing, `intents-x-p99` intents over nothing, `x-intents-p99` plans over intents, and `calm-x-p99` nothing in other turns over nothing: four windows of 12 s of each together, of ticks with their commits. " +
			"PlayerPickup: from a player's request until its call begins, beside a background queue that never empties: 8 workers of 4 slots, calls of 20 to 100 ms, 50 players' requests a second; or of 64 slots, calls of 5 to 30 s, 4 a second. " +
			"EndToEnd: requests whose calls do nothing, on one Redis, asked, claimed, ended with a usage event, taken up and billed; desk, worker and billing in one process beside it, `redis-us/request` is the server's processor time. " +
			"Workers: one and two worker processes, calls of 20 ms. WorkerKilled: from SIGKILL until another worker has stored the result.",
		"./tile/plan/redisplan", "."},
	{"The ledger", "Admission of one action, against one bare transaction.", "./admission/...", "."},
	{matchTitle,
		"Tickets and seats on one node of a Redis cluster with replicas, which confirm what callers are told; workers, players and servers share this machine's processors. " +
			"Drain: 10,000 tickets that wait, one against one, 3 workers; `spread` is the difference of the two ratings, `wait` counts from the start of the workers. `sort-and-pair` sorts and pairs the same tickets in memory: the best spread there is if all must be matched. " +
			"Arrival: so many players ask about once a second each; `made` is from the return of the second player's enqueue, which makes the match possible, to the notice that it is published, `whole` from each player's own enqueue, the wait for somebody else included. " +
			"Kill: a worker with 500 tickets claimed is killed, with a lease of 5 s and a supervisor every 5 s. Depth: what the charts show.",
		"./admission/match/redismatch", "Drain|Arrival|Allocate|Kill|Depth"},
	{"Geometry", "The tile of a cell, against the H3 library.", "./tile/region", "."},
	{"The game of the example", "One tick of the rules, for scale.", "./examples/battle/game", "."},
	{shortTitle, "The headline for few players and a short time, as part of `make bench`.", "", ""},
}

// result is one line of go test -bench.
type result struct {
	Name    string   `json:"name"`
	Metrics []metric `json:"metrics"`
}

type metric struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// value is the figure of a unit; ok is false if there is none.
func (r result) value(unit string) (v float64, ok bool) {
	for _, m := range r.Metrics {
		if m.Unit == unit {
			return m.Value, true
		}
	}
	return 0, false
}

// parse reads the lines that go test -bench prints: the package, then per benchmark a name, a count, and
// pairs of value and unit.
func parse(out string) []result {
	var results []result
	back := "" // the last element of the package's path: several may have a benchmark of one name
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == "pkg:" {
			back = f[1][strings.LastIndexByte(f[1], '/')+1:]
		}
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i] // the number of processors
			}
		}
		r := result{Name: back + "." + name}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				break
			}
			r.Metrics = append(r.Metrics, metric{Value: v, Unit: f[i+1]})
		}
		if len(r.Metrics) > 0 {
			results = append(results, r)
		}
	}
	return results
}

// write puts the results into tables.
func (s *section) write(w io.Writer, in measured) {
	m := in.Machine
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n*%s: %s, %s, %d cores.*\n", s.title, s.about, m.Date, m.Processor, m.Go, m.Cores)
	for rest := in.Results; len(rest) > 0; {
		n := len(rest)
		if s.title == matchTitle { // its benchmarks have few units in common: a table for each
			name, _, _ := strings.Cut(rest[0].Name, "/")
			n = slices.IndexFunc(rest, func(r result) bool {
				return r.Name != name && !strings.HasPrefix(r.Name, name+"/")
			})
		}
		if n < 0 {
			n = len(rest)
		}
		writeResults(w, rest[:n])
		rest = rest[n:]
	}
}

// writeResults writes a table with a column for every unit that occurs.
func writeResults(w io.Writer, results []result) {
	var units []string
	for _, r := range results {
		for _, m := range r.Metrics {
			if !slices.Contains(units, m.Unit) {
				units = append(units, m.Unit)
			}
		}
	}
	fmt.Fprint(w, "\n| benchmark |")
	for _, u := range units {
		fmt.Fprintf(w, " %s |", u)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|", len(units)))
	for _, r := range results {
		fmt.Fprintf(w, "| %s |", r.Name)
		for _, u := range units {
			cell := ""
			if v, ok := r.value(u); ok {
				cell = figure(v)
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
}

// figure prints a number with about three significant digits and separators.
func figure(v float64) string {
	switch {
	case v == math.Trunc(v) && v < 1000:
		return strconv.Itoa(int(v))
	case v >= 1000:
		s := strconv.FormatInt(int64(v+0.5), 10)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
