package statuspoller

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
)

// Status is the servers' side of the story at one instant. Rates are per second, averaged as the server
// likes; zero numbers are shown as zero, absent latencies as unknown.
type Status struct {
	At       int64   `json:"at"`       // server clock when this was sent, milliseconds since 1970; set by the handler
	Commits  float64 `json:"commits"`  // batches committed a second, over all tiles
	Events   float64 `json:"events"`   // game events committed a second
	Watchers int     `json:"watchers"` // WebSockets the relays hold
	Bots     int     `json:"bots"`     // players driven by the servers
	Gaps     uint64  `json:"gaps"`     // gaps that the servers' own clients and relays have met
	Repairs  uint64  `json:"repairs"`  // of those, closed again

	// What relays and bridge read besides the stream, or refused. Nil: not known to the process behind the page.
	ColdReads       *uint64 `json:"cold_reads,omitempty"`       // of the store by relays, to open or repair a tile
	StaleDrops      *uint64 `json:"stale_drops,omitempty"`      // frames of superseded owners
	SupersededTails *uint64 `json:"superseded_tails,omitempty"` // what superseded owners left in the streams
	DeadLetters     *uint64 `json:"dead_letters,omitempty"`     // entries that could not be read, put aside

	Ledger       map[string]uint64 `json:"ledger,omitempty"` // actions settled so far, by outcome
	BytesPerTick float64           `json:"bytes_per_tick"`   // payload that a bot is sent for a batch; zero: unknown

	Latency Latency      `json:"latency"` // commit to client, as the bots measure it
	Tiles   []TileStatus `json:"tiles"`

	Routing *Routing `json:"routing,omitempty"` // of the gateway behind the page; nil where it is elsewhere

	Lobby *Lobby `json:"lobby,omitempty"` // nil: there is none

	Pilots *Pilots `json:"pilots,omitempty"` // nil: there are none

	Chaos *Chaos `json:"chaos,omitempty"` // nil: nothing is broken on purpose
}

// Routing counts how a gateway has found the owners, by where the answers came from; see package route.
type Routing struct {
	Gossip     Source `json:"gossip"`
	Store      Source `json:"store"`
	Redirect   Source `json:"redirect"`
	StoreReads uint64 `json:"store_reads"` // owner hashes read
	Failures   uint64 `json:"failures"`    // tiles whose owner was not found
}

// Source is one place an answer came from.
type Source struct {
	Answers uint64 `json:"answers"` // owners named
	Stale   uint64 `json:"stale"`   // of those, found wrong
}

// String lists the sources.
func (r *Routing) String() string {
	return fmt.Sprintf("%d owners from gossip (%d stale), %d from the store (%d stale), %d from redirects (%d stale), "+
		"%d not found",
		r.Gossip.Answers, r.Gossip.Stale, r.Store.Answers, r.Store.Stale, r.Redirect.Answers, r.Redirect.Stale,
		r.Failures)
}

// Chaos is the breaking of things on purpose, one at a time.
type Chaos struct {
	Seed    uint64   `json:"seed"`    // the same seed breaks the same things in the same order
	Faults  int      `json:"faults"`  // how many there have been, with the one under way
	Systems []System `json:"systems"` // what can break besides the hosts
	Fault   *Fault   `json:"fault"`   // the one under way, or the last until the next; nil before the first
}

// System is one part of the deployment, such as the coordination store.
type System struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"` // its servers; one entry, or none, where there is nothing to tell apart
}

// Fault is something broken on purpose: from its beginning until it is healed, and on until every tile that
// suffered is well again. Times are milliseconds since 1970, durations milliseconds.
type Fault struct {
	ID       uint64         `json:"id"`
	Kind     string         `json:"kind"`             // two or three words, such as "owner killed"
	Means    string         `json:"means"`            // one sentence: what happens, and what must happen now
	Host     string         `json:"host,omitempty"`   // contact of the host that suffers
	System   string         `json:"system,omitempty"` // name of the system that suffers
	Node     string         `json:"node,omitempty"`   // which node of it
	Suffer   []fence.TileID `json:"suffer"`           // tiles that are not yet well again
	Began    int64          `json:"began"`
	Lasts    int64          `json:"lasts"`              // how long it is meant to last; zero: as long as it takes
	Healed   int64          `json:"healed,omitempty"`   // when what was broken was put right; zero: not yet
	Over     int64          `json:"over,omitempty"`     // when the last tile was well again; zero: not yet
	Recovery float64        `json:"recovery,omitempty"` // from the beginning until the last tile was well
	Summary  string         `json:"summary,omitempty"`  // one sentence about the recovery, once it is over
}

// Latency summarises a distribution of durations in milliseconds. No samples: unknown.
type Latency struct {
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Samples int     `json:"samples"` // how many it is drawn from
}

// TileStatus is one tile as the servers see it.
type TileStatus struct {
	Tile  fence.TileID `json:"tile"`
	Owner string       `json:"owner"` // contact of the owner, empty when there is none
	Epoch fence.Epoch  `json:"epoch"`
	Seq   fence.Seq    `json:"seq"`
	Tick  fence.Tick   `json:"tick"`
	Since int64        `json:"since"` // when the epoch was minted: authority's clock, milliseconds since 1970
	Mints int64        `json:"mints"` // how many epochs were minted for the tile, ever; zero: unknown, as Since is

	Position  string  `json:"position"`  // where the tile's history ends: epoch, sequence and chain
	State     string  `json:"state"`     // tile.State's name of the owner's processor
	Heat      float64 `json:"heat"`      // events a tick, averaged over the last ones
	Followers int     `json:"followers"` // warm ones

	Dilation float64   `json:"dilation,omitempty"` // how many tick intervals a tick lasts, above 1 if ticks are slow
	Marks    []Mark    `json:"marks,omitempty"`    // how far the consumers of the stream are
	Floor    string    `json:"floor,omitempty"`    // the consumer that holds the trim floor
	AtRisk   fence.Seq `json:"at_risk"`            // batches that no checkpoint has: lost with Redis and the owner
	// Lost is how many ticks would be lost with Redis and the owner, at most; nil: not known yet.
	Lost *fence.Tick `json:"lost,omitempty"`

	// Processors are those that own the tile, want it, or lost it a short while ago.
	Processors []Processor `json:"processors"`

	// Digest is the game's digest of the owner's state (game.Rules.Digest) right after the batch with
	// sequence DigestSeq: the page shows that its own state has the same. Empty: not known.
	Digest    string    `json:"digest,omitempty"`
	DigestSeq fence.Seq `json:"digestSeq,omitempty"`
}

// Mark is the watermark of one consumer of a tile's stream.
type Mark struct {
	Consumer string    `json:"consumer"` // stream.Consumer
	Behind   fence.Seq `json:"behind"`   // batches
}

// Processor is one process's part in one tile.
type Processor struct {
	Contact string      `json:"contact"`
	State   string      `json:"state"` // tile.State's name, such as "serving" or "stood down"
	Epoch   fence.Epoch `json:"epoch"` // that it holds or held
}

// Kind classifies an event, and decides how the page shows it.
type Kind string

// The kinds. The page shows any other like KindNote.
const (
	KindInstalled Kind = "installed"  // Owner has installed itself under Epoch
	KindRefused   Kind = "refused"    // a commit of Owner under Epoch was refused as stale
	KindStoodDown Kind = "stood-down" // Owner, which held Epoch, has stood down
	KindFault     Kind = "fault"      // something broke, or was broken on purpose
	KindRecovered Kind = "recovered"  // what the Fault of the same number had broken is well again
	KindNote      Kind = "note"
)

// Event is one thing worth a line in the history.
type Event struct {
	ID    uint64       `json:"id"` // ascending from 1
	At    int64        `json:"at"` // server clock, milliseconds since 1970
	Kind  Kind         `json:"kind"`
	Tile  fence.TileID `json:"tile,omitempty"`
	Owner string       `json:"owner,omitempty"` // contact of the process it is about
	Epoch fence.Epoch  `json:"epoch,omitempty"`
	Fault uint64       `json:"fault,omitempty"` // Fault.ID, of an event of KindFault or KindRecovered
	Text  string       `json:"text"`            // one short sentence, shown as it is
}

// Lobby is the matchmaking of the battle: its queue, and the seats of the tiles.
type Lobby struct {
	Created   uint64 `json:"created"` // tickets so far: the sum of the next six
	Waiting   uint64 `json:"waiting"`
	Matching  uint64 `json:"matching"`  // compared by a worker, or matched and about to get seats
	Seated    uint64 `json:"seated"`    // so far
	Cancelled uint64 `json:"cancelled"` // so far
	TimedOut  uint64 `json:"timedOut"`  // so far

	Matches int64   `json:"matches"` // that got seats
	NoSeat  int64   `json:"noSeat"`  // that found none, and were dissolved
	Wait    Latency `json:"wait"`    // of tickets, until they had seats
	Workers int     `json:"workers"` // that make matches
	Killed  int64   `json:"killed"`  // of them, on purpose

	Longest *Ticket `json:"longest,omitempty"` // the ticket that waits longest
	Tiles   []Seats `json:"tiles"`             // in the order of the World; not those that never offered seats
}

// Ticket is a party that waits for a match.
type Ticket struct {
	ID      string   `json:"id"`
	Players []string `json:"players"`
	Rating  int      `json:"rating"`
	Waited  int64    `json:"waited"` // milliseconds
	Why     string   `json:"why"`    // one sentence: why it has no match
}

// Seats are those of one tile.
type Seats struct {
	Tile    fence.TileID `json:"tile"`
	Seats   int          `json:"seats"`
	Used    int          `json:"used"`    // held for players, or taken
	Serving bool         `json:"serving"` // its owner offers them
}

// Pilots are the ships that planners fly, whose calls take seconds.
type Pilots struct {
	Ships   int     `json:"ships"`
	Workers int     `json:"workers"`
	Killed  int     `json:"killed"`  // of them, on purpose
	Running int     `json:"running"` // of Waits
	Applied uint64  `json:"applied"` // plans so far
	Refused uint64  `json:"refused"` // plans that the tile did not accept
	Stale   uint64  `json:"stale"`   // plans of an owner before the one that got them
	Dead    uint64  `json:"dead"`    // requests that failed in their last attempt
	Billed  int     `json:"billed"`  // requests that were charged
	Tokens  int64   `json:"tokens"`
	Waits   []Pilot `json:"waits"` // that wait for a plan, the oldest first
}

// Pilot is a ship that waits for a plan.
type Pilot struct {
	Tile    fence.TileID `json:"tile"`
	Ship    string       `json:"ship"`    // its actor
	Age     int64        `json:"age"`     // milliseconds since it asked
	Player  bool         `json:"player"`  // a player has asked: it goes first
	Running bool         `json:"running"` // a worker is at it
}

// Log keeps the last things that happened, for the spectator page. It may be used from any goroutine.
type Log struct {
	mu     sync.Mutex
	last   uint64
	events []Event // at most logLimit
}

const logLimit = 200

// Add adds an event.
func (l *Log) Add(
	kind Kind, tile fence.TileID, owner string, epoch fence.Epoch, format string, args ...any,
) {
	l.Put(Event{Kind: kind, Tile: tile, Owner: owner, Epoch: epoch, Text: fmt.Sprintf(format, args...)})
}

// Put adds an event, and numbers and dates it.
func (l *Log) Put(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.ID, e.At = l.last, time.Now().UnixMilli()
	l.events = append(l.events[max(0, len(l.events)+1-logLimit):], e)
}

// After returns the events newer than id, oldest first.
func (l *Log) After(id uint64) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events[len(l.events)-int(min(l.last-min(id, l.last), uint64(len(l.events)))):])
}

// ChaosOf is what the page shows of a runner.
func ChaosOf(r *chaos.Runner, seed uint64) *Chaos {
	now, faults := r.Now()
	s := &Chaos{Seed: seed, Faults: faults}
	for _, system := range r.Systems() {
		s.Systems = append(s.Systems, System(system))
	}
	if now == nil {
		return s
	}
	s.Fault = &Fault{ID: now.ID, Kind: now.Title, Means: now.Means, Host: now.Host, System: now.System,
		Node: now.Node, Suffer: now.Tiles, Began: now.Began.UnixMilli(), Lasts: now.Lasts.Milliseconds(),
		Recovery: float64(now.Recovery.Microseconds()) / 1000, Summary: now.Summary}
	if !now.Healed.IsZero() {
		s.Fault.Healed = now.Healed.UnixMilli()
	}
	if !now.Ended.IsZero() {
		s.Fault.Over = now.Ended.UnixMilli()
	}
	return s
}
