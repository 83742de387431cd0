package match

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// Bounds of what players send, checked by Lobby.Enqueue.
const (
	MaxID         = 64  // bytes of an ID, a role or a name; letters, digits and "-_.:" only
	MaxPlayers    = 128 // players of a ticket, and of a match
	MaxAttributes = 16  // attributes of a ticket, 64 bytes each name and value
	MaxRating     = 1_000_000_000
)

// Ticket is one request to play: a player, or a party that stays together in one match and on one team.
type Ticket struct {
	// ID names the ticket for ever. The caller chooses it, at random: an Enqueue that is repeated with the same
	// ticket is the same ticket. A new try by the same player takes a new ID.
	ID string `json:"id"`
	// Players are the party, 1 to MaxPlayers; none in a backfill.
	Players []Player `json:"players,omitempty"`
	// Rating of the party, from -MaxRating to MaxRating in points of the game's own rating system (MMR, Elo). How the
	// ratings of a party's players make one is up to the game; their mean is usual.
	Rating int `json:"rating"`
	// Attributes are what a match may have to agree on (Queue.Same), such as a map or a mode.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Source is where the request comes from, as the game counts it: an address, the /64 of one, an account. The store
	// counts a source's open tickets (Queue.PerSource). It is not kept with the ticket: a repeated Enqueue may have
	// another one. Empty is not counted. At most 64 bytes.
	Source string `json:"-"`
	// Backfill, if not nil, makes this the request of a running battle for more players.
	Backfill *Backfill `json:"backfill,omitempty"`
}

// Has reports whether a player is one of the ticket's.
func (t Ticket) Has(player string) bool {
	return slices.ContainsFunc(t.Players, func(p Player) bool { return p.ID == player })
}

// Player is one member of a ticket.
type Player struct {
	ID   string `json:"id"`
	Role string `json:"role,omitempty"` // a role of Queue.Roles; empty takes any
}

// Backfill asks for players to join a battle that runs. The ticket's Rating is the battle's. The ticket waits in the
// queue like any other, and takes the nearest tickets that its open seats have room for, one match at a time: when
// it is Seated, the battle enqueues another for the seats that are still open. Teams and roles do not
// apply to it.
type Backfill struct {
	Tile fence.TileID `json:"tile"`
	Open int          `json:"open"` // seats to fill, 1 to MaxPlayers
}

// State is where a ticket stands.
type State int

// The states; package comment draws them. The last two are terminal.
const (
	Waiting   State = iota + 1 // in the queue
	Claimed                    // a worker compares it with others, under a lease
	Matched                    // in a recorded match, which is being allocated
	Seated                     // its match has a tile and seats, which are held until Assignment.TakeBy
	Cancelled                  // by Cancel
	TimedOut                   // it waited Queue.MaxWait without a match, or did not take MaxLapses seats
)

// String returns the state in lower case.
func (s State) String() string {
	return enum.Name(s, "state", "waiting", "claimed", "matched", "seated", "cancelled", "timed out")
}

// LogValue implements slog.LogValuer with the form of String.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Terminal reports whether the state is final. Seated is not: a seat that is not taken in time goes back, and its
// ticket waits again.
func (s State) Terminal() bool { return s == Cancelled || s == TimedOut }

// Status is a ticket as the store has it.
type Status struct {
	Ticket     Ticket
	Shard      string // the part of the queue that has it
	State      State
	Enqueued   time.Time     // by the store's clock
	Waited     time.Duration // since Enqueued, by the store's clock; it ends with a match, a cancellation or a timeout
	Deadline   time.Time     // when it times out unless it is matched, by the store's clock
	Why        Why           // why it was not matched when a worker last looked at it; not cleared by a match
	Match      string        // ID of its match, if Matched or Seated
	Assignment *Assignment   // if Seated
}

// Reason says why a ticket was not matched.
type Reason string

// The reasons.
const (
	NotSeen     Reason = ""             // no worker has looked at it yet: does one run for this queue?
	Alone       Reason = "alone"        // no other waits that agrees on the attributes of Queue.Same
	OutOfWindow Reason = "window"       // others wait, further away than its window; the window grows with time
	TooFew      Reason = "players"      // too few within its window for a match, or their parties do not fit
	RoleMissing Reason = "role"         // players are there, and a role is missing (Why.Roles)
	NoSeat      Reason = "no free seat" // it was matched, and no tile that serves had enough free seats
	SeatLapsed  Reason = "seat lapsed"  // it had a seat and did not take it in time
	Reclaimed   Reason = "reclaimed"    // the worker that had it died; it waits as before
	Superseded  Reason = "superseded"   // a player of it has another ticket; it has ended if it lost its seat
)

// Why explains why a ticket was not matched when it was last looked at.
type Why struct {
	Reason     Reason   `json:"reason,omitempty"`
	Window     int      `json:"window,omitempty"`     // +- rating it accepted then
	Candidates int      `json:"candidates,omitempty"` // other tickets it was compared with
	Nearest    int      `json:"nearest,omitempty"`    // distance in rating of the nearest of them
	Roles      []string `json:"roles,omitempty"`      // roles that no player within its window plays
}

// String returns a sentence for people.
func (w Why) String() string {
	switch w.Reason {
	case NotSeen:
		return "no worker has looked at this ticket yet"
	case Alone:
		return "nobody else waits with the same attributes"
	case OutOfWindow:
		return fmt.Sprintf("the nearest of %d others is %d points away; the window is +-%d and grows", w.Candidates,
			w.Nearest, w.Window)
	case TooFew:
		return fmt.Sprintf("%d others, the nearest %d points away, are too few within +-%d for a match", w.Candidates,
			w.Nearest, w.Window)
	case RoleMissing:
		return fmt.Sprintf("%d others wait, and these roles are missing: %v", w.Candidates, w.Roles)
	case NoSeat:
		return "a match was found, and no tile has enough free seats"
	case SeatLapsed:
		return "the seat was not taken in time; the ticket waits again, unless that was its last one"
	case Reclaimed:
		return "the worker that had this ticket is gone; the ticket waits again"
	case Superseded:
		return "a player of this ticket has another ticket"
	}
	return string(w.Reason)
}

// LogValue implements slog.LogValuer with the form of String.
func (w Why) LogValue() slog.Value { return slog.StringValue(w.String()) }

// Match is a group of tickets that play together.
type Match struct {
	ID      string       `json:"id"` // random, given by the worker; everything about a match is keyed by it
	Queue   string       `json:"queue"`
	Shard   string       `json:"shard"`
	Tickets []Ticket     `json:"tickets"`
	Teams   [][]string   `json:"teams,omitempty"` // ticket IDs by team, if the queue has teams
	Spread  int          `json:"spread"`          // highest rating less lowest
	Tile    fence.TileID `json:"tile,omitempty"`  // not zero: the battle that a backfill of the match asked for
}

// Players is how many seats the match needs.
func (m Match) Players() int {
	n := 0
	for _, t := range m.Tickets {
		n += len(t.Players)
	}
	return n
}
