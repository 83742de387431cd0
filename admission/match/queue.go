package match

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// maxShards bounds Queue.Shards.
const maxShards = 1024

// Defaults of a Queue.
const (
	defaultWait      = 10 * time.Minute
	defaultRoom      = 100_000
	defaultPerSource = 64
)

// Queue is the rules of one queue. All processes that use a queue must have the same rules. A zero field other than
// Name and Max means its default.
type Queue struct {
	// Name of the queue, such as "ranked-eu": 1 to MaxID bytes of letters, digits and "-_.:". A region is a queue.
	Name string
	// Strategy forms the matches. Default Window{}.
	Strategy Strategy
	// Min, Target and Max are players per match. A group is a match with Target to Max players, and with Min or more
	// once a ticket of it has waited for Patience. Defaults: Target Max, Min Target.
	Min, Target, Max int
	// Patience is the wait after which a ticket accepts a match of fewer than Target players. Default 15 s.
	Patience time.Duration
	// Teams is how many teams of the same number of players a match has. Default 0: no teams.
	Teams int
	// Roles is how many players of each role a team (or a match without teams) has. If it is given, Max
	// must be their sum times the teams, and Min and Target must be Max or zero.
	Roles map[string]int
	// Same names attributes that all tickets of a match must have the same value of. A ticket without it has "".
	Same []string
	// MaxWait is how long a ticket may wait for a match. Then it is TimedOut. Default 10 min.
	MaxWait time.Duration
	// Room is how many open tickets the queue has at most; each shard has its part. Default 100,000: some 100 MB.
	Room int
	// PerSource is how many open tickets of one Ticket.Source a shard takes, and less as it fills: an eighth of the
	// room that is left. Default 64: an address that many players share.
	PerSource int
	// Shards is how many parts the queue has: a power of two, at most 1024. Default 1. Each part is kept on one
	// node of the store, and tickets of different parts do not meet, so split only a queue that has outgrown
	// a node (some 10,000 matched tickets a second). It may be raised while tickets wait, and not
	// lowered. With more than one, Enqueue asks the store once more for each player, since a player has one open
	// ticket in all of them.
	Shards int
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

const nameWant = `1 to 64 of letters, digits and "-_.:"`

// checked returns the queue with its defaults, or a *fence.ArgumentError.
func (q Queue) checked() (Queue, error) {
	q.Roles, q.Same = maps.Clone(q.Roles), slices.Clone(q.Same)
	if len(q.Roles) == 0 {
		q.Roles = nil
	}
	q.Target = cmp.Or(q.Target, q.Max)
	q.Min = cmp.Or(q.Min, q.Target)
	if q.Strategy == nil {
		q.Strategy = Window{}
	}
	q.Patience, q.MaxWait = cmp.Or(q.Patience, 15*time.Second), cmp.Or(q.MaxWait, defaultWait)
	q.Room, q.PerSource = cmp.Or(q.Room, defaultRoom), cmp.Or(q.PerSource, defaultPerSource)
	q.Shards = max(q.Shards, 1)
	if err := q.checkSizes(); err != nil {
		return Queue{}, err
	}
	bad := func(field string, value any, want string) (Queue, error) {
		return Queue{}, &fence.ArgumentError{Field: "Queue." + field, Value: value, Want: want}
	}
	switch {
	case !nameForm.MatchString(q.Name):
		return bad("Name", q.Name, nameWant)
	case q.Patience < 0:
		return bad("Patience", q.Patience, "a duration, or zero for 15s")
	case q.MaxWait < time.Millisecond:
		return bad("MaxWait", q.MaxWait, "at least 1ms, or zero for 10m")
	case q.Room < 1:
		return bad("Room", q.Room, "at least 1 ticket, or zero for 100000")
	case q.PerSource < 1:
		return bad("PerSource", q.PerSource, "at least 1 ticket, or zero for 64")
	case q.Shards > maxShards || q.Shards&(q.Shards-1) != 0:
		return bad("Shards", q.Shards, "a power of two up to 1024, or zero for 1")
	}
	return q, nil
}

func (q Queue) checkSizes() error {
	bad := func(field string, value any, want string) error {
		return &fence.ArgumentError{Field: "Queue." + field, Value: value, Want: want}
	}
	switch {
	case q.Max < 1 || q.Max > MaxPlayers:
		return bad("Max", q.Max, fmt.Sprint("1 to ", MaxPlayers, " players"))
	case q.Target < 1 || q.Target > q.Max:
		return bad("Target", q.Target, "at least 1 and at most Max players")
	case q.Min < 1 || q.Min > q.Target:
		return bad("Min", q.Min, "at least 1 and at most Target players")
	case q.Teams < 0 || q.Teams > 0 && (q.Max%q.Teams != 0 || q.Target%q.Teams != 0 || q.Min%q.Teams != 0):
		return bad("Teams", q.Teams, "a divisor of Min, Target and Max, or zero for none")
	case q.Roles != nil && (rolesSum(q.Roles)*max(q.Teams, 1) != q.Max || q.Min != q.Max):
		return bad("Roles", q.Roles, "counts above zero whose sum, times Teams, is Min, Target and Max")
	}
	return nil
}

// rolesSum is the players of a team, or -1 if a count is not above zero or a role has no name.
func rolesSum(roles map[string]int) int {
	sum := 0
	for r, n := range roles {
		if n < 1 || r == "" {
			return -1
		}
		sum += n
	}
	return sum
}

// shard returns part i of n as the store knows it.
func (q Queue) shard(i int) string { return q.Name + "/" + strconv.Itoa(i) }

// shards returns all parts.
func (q Queue) shards() []string {
	all := make([]string, q.Shards)
	for i := range all {
		all[i] = q.shard(i)
	}
	return all
}

// homes returns the parts that may have a ticket: first the part that new tickets of this ID go to, then those of
// every smaller number of parts that the queue may have had.
func (q Queue) homes(id string) []string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	var homes []string
	for n := q.Shards; n >= 1; n /= 2 {
		if s := q.shard(int(h.Sum32() % uint32(n))); !slices.Contains(homes, s) {
			homes = append(homes, s)
		}
	}
	return homes
}

// check returns a *fence.ArgumentError if the ticket can never be matched in the queue.
func (q Queue) check(t Ticket) error {
	bad := func(field string, value any, want string) error {
		return &fence.ArgumentError{Field: "Ticket." + field, Value: value, Want: want}
	}
	switch {
	case !nameForm.MatchString(t.ID):
		return bad("ID", t.ID, nameWant)
	case t.Rating < -MaxRating || t.Rating > MaxRating:
		return bad("Rating", t.Rating, fmt.Sprintf("from -%d to %d", MaxRating, MaxRating))
	case t.Source != "" && !fence.IsName(t.Source, MaxID):
		return bad("Source", t.Source, "1 to 64 bytes without spaces, or empty")
	case len(t.Attributes) > MaxAttributes:
		return bad("Attributes", len(t.Attributes), fmt.Sprint("at most ", MaxAttributes))
	case t.Backfill != nil && (t.Backfill.Tile == 0 || t.Backfill.Open < 1 || t.Backfill.Open > MaxPlayers):
		return bad("Backfill", *t.Backfill, fmt.Sprintf("a tile, and 1 to %d open seats", MaxPlayers))
	case t.Backfill != nil && len(t.Players) > 0:
		return bad("Players", len(t.Players), "none in a backfill, whose players are in the battle already")
	case t.Backfill == nil && (len(t.Players) < 1 || len(t.Players) > q.Max/max(q.Teams, 1)):
		return bad("Players", len(t.Players), fmt.Sprintf("1 to %d, which is what a team of queue %s has room for",
			q.Max/max(q.Teams, 1), q.Name))
	}
	return cmp.Or(checkAttributes(t.Attributes), q.checkPlayers(t.Players))
}

func checkAttributes(attributes map[string]string) error {
	for k, v := range attributes {
		if len(k) > MaxID || len(v) > MaxID {
			return &fence.ArgumentError{Field: "Ticket.Attributes", Value: k,
				Want: "names and values of at most 64 bytes"}
		}
	}
	return nil
}

func (q Queue) checkPlayers(players []Player) error {
	bad := func(value, want string) error {
		return &fence.ArgumentError{Field: "Ticket.Players", Value: value, Want: want}
	}
	seen, roles := map[string]bool{}, map[string]int{}
	for _, p := range players {
		if !nameForm.MatchString(p.ID) || seen[p.ID] {
			return bad(p.ID, "different player IDs, "+nameWant)
		}
		seen[p.ID] = true
		if p.Role == "" {
			continue
		}
		if roles[p.Role]++; roles[p.Role] > q.Roles[p.Role] {
			return bad(p.Role, fmt.Sprintf("roles of queue %s, no more of each than a team has: %v", q.Name,
				q.Roles))
		}
	}
	return nil
}

// entry is what the store keeps of a new ticket.
func (q Queue) entry() Entry {
	return Entry{MaxWait: q.MaxWait, Room: (q.Room + q.Shards - 1) / q.Shards, PerSource: q.PerSource}
}

// group is what tickets of one match agree on.
func (q Queue) group(t Ticket) string {
	if len(q.Same) == 0 {
		return ""
	}
	var b strings.Builder
	for _, name := range q.Same {
		b.WriteString(strconv.Quote(t.Attributes[name]))
	}
	return b.String()
}

// checkQueues returns the queues with their defaults by name.
func checkQueues(queues []Queue) (map[string]Queue, error) {
	if len(queues) == 0 {
		return nil, &fence.ArgumentError{Field: "queues", Value: 0, Want: "at least one Queue"}
	}
	byName := make(map[string]Queue, len(queues))
	for _, q := range queues {
		q, err := q.checked()
		if err != nil {
			return nil, err
		}
		if _, twice := byName[q.Name]; twice {
			return nil, &fence.ArgumentError{Field: "Queue.Name", Value: q.Name, Want: "different names"}
		}
		byName[q.Name] = q
	}
	return byName, nil
}
