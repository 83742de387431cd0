package fence

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// Quarantine keeps a tile without an owner until an operator has decided: its history cannot be folded by the game's
// rules, here or elsewhere. It is a grant of the authority like any other, with an epoch of its own, to a contact that
// is no process and says why (Contact). So every process that asks for the tile meets it, and to set, change and lift
// it are the authority's conditional updates. The coordination store knows nothing of it.
//
//	         replay fails                 released by an operator
//	owned ───────────────▶ quarantined ───────────────────────────▶ free
//	  ▲                       │    ▲
//	  │     an operator lifts │    │ replay fails again
//	  │                       ▼    │
//	  └──────────────────── lifted ┘
//	  an owner leaves Skip out
type Quarantine struct {
	At     EventRef   // what cannot be folded; zero: a snapshot
	Skip   []EventRef // what the next owner leaves out
	Lifted bool       // a process may take the tile, and leaves Skip out
	By     string     // contact of the process that set it, or the operator's tool
	Reason string     // for people; cut to what a contact has room for
}

// EventRef names an event of a tile's stream: of the batch with a sequence the event of an index, counted from 1. The
// index zero means all events of the batch. Its text is "345/3", or "345" for all.
type EventRef struct {
	Seq   Seq
	Index int
}

// String returns the text form.
func (r EventRef) String() string {
	if r.Index == 0 {
		return strconv.FormatUint(uint64(r.Seq), 10)
	}
	return fmt.Sprintf("%d/%d", r.Seq, r.Index)
}

// MarshalText returns the text form.
func (r EventRef) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text form. Any other is an *ArgumentError.
func (r *EventRef) UnmarshalText(b []byte) error {
	seq, index, one := strings.Cut(string(b), "/")
	s, err := ParseNumber(seq)
	var i uint64
	if one && err == nil {
		i, err = ParseNumber(index)
	}
	if err != nil || one && i == 0 || i > MaxPayload {
		return argument("event", string(b), "a sequence, or a sequence, a slash and a number from 1 on")
	}
	*r = EventRef{Seq: Seq(s), Index: int(i)}
	return nil
}

// quarantineForm is the contact of a quarantine. No address begins with a brace.
type quarantineForm struct {
	State  string     `json:"quarantine"` // closed or lifted
	At     *EventRef  `json:"at,omitempty"`
	Skip   []EventRef `json:"skip,omitempty"`
	By     string     `json:"by"`
	Reason string     `json:"why,omitempty"`
}

const (
	closedQuarantine = "closed"
	liftedQuarantine = "lifted"
)

// Contact returns the contact of the grant that is the quarantine. An *ArgumentError if Skip and By do not fit.
func (q Quarantine) Contact() (string, error) {
	f := quarantineForm{State: closedQuarantine, Skip: q.Skip, By: q.By, Reason: strings.Map(func(r rune) rune {
		if !IsName(string(r), 4) {
			return ' '
		}
		return r
	}, q.Reason)}
	if q.Lifted {
		f.State = liftedQuarantine
	}
	if q.At != (EventRef{}) {
		f.At = &q.At
	}
	for {
		b, err := json.Marshal(f)
		switch over := len(b) - MaxContact; {
		case err != nil:
			return "", err
		case over <= 0:
			return string(b), nil
		case f.Reason == "":
			return "", argument("quarantine", len(q.Skip), "fewer events to leave out")
		default:
			most := min(MaxContact, len(f.Reason)-max(1, over/6)) // JSON makes six bytes of some
			f.Reason = strings.ToValidUTF8(f.Reason[:max(0, most)], "")
		}
	}
}

// ParseQuarantine reads the contact of a grant. ok is false if it is not that of a quarantine.
func ParseQuarantine(contact string) (q Quarantine, ok bool) {
	if !strings.HasPrefix(contact, "{") {
		return q, false
	}
	var f quarantineForm
	if json.Unmarshal([]byte(contact), &f) != nil || f.State != closedQuarantine && f.State != liftedQuarantine {
		return q, false
	}
	q = Quarantine{Skip: f.Skip, Lifted: f.State == liftedQuarantine, By: f.By, Reason: f.Reason}
	if f.At != nil {
		q.At = *f.At
	}
	return q, true
}

// String says for people what is quarantined, and why.
func (q Quarantine) String() string {
	what := "its snapshot"
	if q.At != (EventRef{}) {
		what = "event " + q.At.String()
	}
	text := fmt.Sprintf("%s cannot be folded, by %s: %s", what, q.By, q.Reason)
	if len(q.Skip) > 0 {
		text += fmt.Sprintf("; to be left out: %v", q.Skip)
	}
	return text
}

// LogValue implements slog.LogValuer with the form of String.
func (q Quarantine) LogValue() slog.Value { return slog.StringValue(q.String()) }
