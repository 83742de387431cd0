package stream

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/bits"
	"slices"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// Limits of a batch; the decoder refuses more before it allocates.
const (
	MaxEvent    = 64 << 10 // bytes of one event
	MaxActionID = 64       // bytes of one action ID
)

// Outcome is the terminal result of one intent. There is exactly one per action, for ever.
type Outcome uint8

// The outcomes. Zero is no outcome: the action is still open.
const (
	Applied    Outcome = 1 // the game's rules accepted it; its effects are in this batch
	Fizzled    Outcome = 2 // the fiction prevented it (dodged, blocked, out of range)
	Rejected   Outcome = 3 // invalid: not owned, not affordable, malformed
	Redirected Outcome = 4 // the tile moved twice while it travelled
)

var outcomeNames = [...]string{"none", "applied", "fizzled", "rejected", "redirected"}

// String returns the outcome's lower-case name.
func (o Outcome) String() string { return enum.In(o, "outcome", outcomeNames[:], 0) }

// LogValue implements slog.LogValuer with the form of String.
func (o Outcome) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Valid reports whether o is one of the four terminal outcomes.
func (o Outcome) Valid() bool { return o >= Applied && o <= Redirected }

// ParseOutcome reads the form String writes.
func ParseOutcome(s string) (Outcome, error) {
	for o := Applied; o <= Redirected; o++ {
		if outcomeNames[o] == s {
			return o, nil
		}
	}
	return 0, &fence.ArgumentError{Field: "outcome", Value: s, Want: "applied, fizzled, rejected or redirected"}
}

// Resolution is the outcome of one action, committed together with its effects. It is what lets the
// next owner give a retried action the same answer.
type Resolution struct {
	ActionID string
	Outcome  Outcome
}

// Batch is what one tick commits: the game's events, opaque here, and the outcomes of the actions it resolved.
// An entry carries it in two parts, so that what only owners read can be left out without decoding anything.
//
// The payload, which watchers are sent, is a list of parts (see fence.Part), one for each area that has events. The
// content of a part is the area's events, in order, each as a varint length and bytes.
//
// The private part is a list of sections, each at most once, ascending by tag; an empty section is left out:
//
//	tag     1 byte: 1 outcomes, 2 claim, 3 departures, 4 decisions, 5 settlements, 128 sum of the state
//	length  varint
//	bytes   of that length
//
// Outcomes are, one after the other, the outcome (1 byte), a varint length and the action ID. A claim is 16 bytes, the
// sum of the state 4, big-endian. Sections 3 to 5 are lists of the types of those names; docs/wire.md has their fields.
// A reader ignores sections with tags from 128 on that it does not know, and refuses
// other unknown ones: an owner that cannot read them must not go on from this batch. Varints are unsigned LEB128 in
// their shortest form.
type Batch struct {
	// Events are ordered by area: all readers fold them in this order.
	Events [][]byte
	// Areas says to which area each event belongs; nil: all of them to area 0.
	Areas       []fence.Area
	Resolutions []Resolution

	// What crosses the tile's border: see package tile.
	Departures  []Departure
	Decisions   []Decision
	Settlements []Settlement

	// Claim is the claim under which an owner installs itself; zero for any other batch. It makes the installs
	// of two claimants different entries, with different chains, even when an authority that was restored
	// has granted both the same epoch.
	Claim fence.ClaimID

	// StateSum is the SumState of the game's state where this batch begins, as its owner's Snapshot encodes it: other
	// readers compare theirs. Zero: not said. Owners give it with the first batch after a snapshot.
	StateSum uint32
}

// Sections of the private part.
const (
	tagOutcomes    = 1
	tagClaim       = 2
	tagDepartures  = 3
	tagDecisions   = 4
	tagSettlements = 5
	tagOptional    = 128 // the first that an old reader ignores
	tagState       = 128
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumState is the CRC-32C of a game's state. An owner computes it on its tick loop, where a digest would be slow: what
// it finds are bugs, not attacks.
func SumState(state []byte) uint32 { return crc32.Checksum(state, castagnoli) }

// Len is the number of things in the batch.
func (b *Batch) Len() int {
	return len(b.Events) + len(b.Resolutions) + len(b.Departures) + len(b.Decisions) + len(b.Settlements)
}

// Encode returns the parts of the entry that holds the batch; both are empty for an empty batch. A
// *fence.ArgumentError names an oversized event, action ID or batch, or a claim beside events.
func (b *Batch) Encode() (payload, private []byte, err error) {
	if b.Claim != (fence.ClaimID{}) {
		if b.Len() > 0 {
			return nil, nil, &fence.ArgumentError{Field: "claim", Value: b.Claim,
				Want: "a batch of its own, without events, resolutions and transfers"}
		}
		return nil, b.appendState(fence.AppendPart(nil, tagClaim, b.Claim[:])), nil
	}
	if payload, err = b.parts(); err != nil {
		return nil, nil, err
	}
	var outcomes []byte
	for _, r := range b.Resolutions {
		if len(r.ActionID) == 0 || len(r.ActionID) > MaxActionID || !r.Outcome.Valid() {
			return nil, nil, &fence.ArgumentError{Field: "resolution", Value: r.ActionID,
				Want: "an action ID of 1 to 64 bytes and a terminal outcome"}
		}
		outcomes = append(outcomes, byte(r.Outcome))
		outcomes = append(binary.AppendUvarint(outcomes, uint64(len(r.ActionID))), r.ActionID...)
	}
	if len(outcomes) > 0 {
		private = fence.AppendPart(nil, tagOutcomes, outcomes)
	}
	if private, err = b.transferSections(private); err != nil {
		return nil, nil, err
	}
	private = b.appendState(private)
	if n := len(payload) + len(private); n > fence.MaxPayload {
		return nil, nil, &fence.ArgumentError{Field: "batch", Value: n,
			Want: "at most 1048576 bytes; commit the rest next tick"}
	}
	return payload, private, nil
}

func (b *Batch) appendState(private []byte) []byte {
	if b.StateSum == 0 {
		return private
	}
	return fence.AppendPart(private, tagState, binary.BigEndian.AppendUint32(nil, b.StateSum))
}

// parts encodes the events.
func (b *Batch) parts() (list []byte, err error) {
	if b.Areas != nil && len(b.Areas) != len(b.Events) {
		return nil, &fence.ArgumentError{Field: "areas", Value: len(b.Areas), Want: "one for each event, or none"}
	}
	total := 0
	for i, e := range b.Events {
		switch {
		case len(e) > MaxEvent:
			return nil, &fence.ArgumentError{Field: "event", Value: fmt.Sprint(len(e), " bytes"),
				Want: "at most 65536; split it"}
		case i > 0 && b.area(i) < b.area(i-1):
			return nil, &fence.ArgumentError{Field: "areas", Value: b.area(i), Want: "ascending; see Divide"}
		case i == 0 || b.area(i) > b.area(i-1):
			total += 1 + binary.MaxVarintLen32 // the head of a part
		}
		total += encodedEvent(e)
	}
	if total > 0 {
		list = make([]byte, 0, total)
	}
	for from := 0; from < len(b.Events); {
		to, size := from, 0
		for ; to < len(b.Events) && b.area(to) == b.area(from); to++ {
			size += encodedEvent(b.Events[to])
		}
		list = binary.AppendUvarint(append(list, byte(b.area(from))), uint64(size))
		for _, e := range b.Events[from:to] {
			list = append(binary.AppendUvarint(list, uint64(len(e))), e...)
		}
		from = to
	}
	return list, nil
}

// encodedEvent is the size of an encoded event.
func encodedEvent(e []byte) int { return uvarintLen(len(e)) + len(e) }

// area is the area of an event.
func (b *Batch) area(i int) fence.Area {
	if b.Areas == nil {
		return 0
	}
	return b.Areas[i]
}

// Divide says to which area each event belongs and orders the events by area. Those of one area stay in order.
func (b *Batch) Divide(area func(event []byte) fence.Area) {
	type placed struct {
		event []byte
		area  fence.Area
	}
	all := make([]placed, len(b.Events))
	for i, e := range b.Events {
		all[i] = placed{e, area(e)}
	}
	slices.SortStableFunc(all, func(x, y placed) int { return cmp.Compare(x.area, y.area) })
	b.Events, b.Areas = make([][]byte, len(all)), make([]fence.Area, len(all))
	for i, p := range all {
		b.Events[i], b.Areas[i] = p.event, p.area
	}
}

func uvarintLen(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// DecodeBatch reads the batch of an entry, or what is there of it if the private part was left out. Events alias the
// entry's payload. A rebase holds no batch. A *fence.FormatError says what is wrong; nothing is returned then.
func DecodeBatch(e *fence.Entry) (*Batch, error) {
	b := &Batch{}
	if e.Kind == fence.KindRebase {
		return b, nil
	}
	d := decoder{p: e.Payload}
	if len(e.Payload)+len(e.Private) > fence.MaxPayload {
		d.fail(fmt.Sprintf("%d bytes, at most %d", len(e.Payload)+len(e.Private), fence.MaxPayload))
	}
	d.sections(func(area byte, part *decoder) {
		if area > 0 && b.Areas == nil {
			b.Areas = make([]fence.Area, len(b.Events))
		}
		b.Events = part.events(b.Events)
		for b.Areas != nil && len(b.Areas) < len(b.Events) {
			b.Areas = append(b.Areas, fence.Area(area))
		}
	})
	if d.err == nil {
		d.p = e.Private
		d.sections(b.section)
	}
	if d.err == nil && b.Claim != (fence.ClaimID{}) && b.Len() > 0 {
		d.fail("a claim beside events, outcomes or transfers")
	}
	if d.err != nil {
		return nil, &fence.FormatError{What: "batch", Detail: d.err.Error()}
	}
	return b, nil
}

// section reads a section of the private part.
func (b *Batch) section(tag byte, s *decoder) {
	switch {
	case tag == tagOutcomes:
		b.Resolutions = s.resolutions()
		return
	case tag == tagDepartures:
		b.Departures = s.departures()
		return
	case tag == tagDecisions:
		b.Decisions = s.decisions()
		return
	case tag == tagSettlements:
		b.Settlements = s.settlements()
		return
	case tag == tagClaim && len(s.p) == len(b.Claim):
		copy(b.Claim[:], s.p)
	case tag == tagState && len(s.p) == 4:
		b.StateSum = binary.BigEndian.Uint32(s.p)
	case tag >= tagOptional:
	default:
		s.fail(fmt.Sprintf("section %d of %d bytes, which this reader does not know", tag, len(s.p)))
	}
	s.p = nil
}

// sections reads a list of parts: areas of the payload, or tagged sections of the private part.
func (d *decoder) sections(read func(tag byte, content *decoder)) {
	list := d.p
	d.p = nil
	for p := range fence.Parts(list) {
		if p.Content == nil {
			d.fail("a part is cut short, empty, or not after the one before it")
			return
		}
		content := decoder{p: p.Content}
		if read(byte(p.Area), &content); content.err != nil {
			d.err = content.err
			return
		}
	}
}

// events appends the events that d holds.
func (d *decoder) events(to [][]byte) [][]byte {
	n := 0
	for c := *d; len(c.p) > 0; n++ {
		c.bytes(MaxEvent)
	}
	to = slices.Grow(to, n)
	for len(d.p) > 0 {
		to = append(to, d.bytes(MaxEvent))
	}
	return to
}

func (d *decoder) resolutions() (all []Resolution) {
	for len(d.p) > 0 {
		o := Outcome(d.byte())
		id := d.bytes(MaxActionID)
		if d.err == nil && (!o.Valid() || len(id) == 0) {
			d.fail("resolution without a valid outcome and action ID")
		}
		all = append(all, Resolution{ActionID: string(id), Outcome: o})
	}
	return all
}

// decoder reads varints and byte strings; after the first error it returns zeros.
type decoder struct {
	p   []byte
	err error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s", why)
	}
	d.p = nil
}

func (d *decoder) byte() byte {
	if len(d.p) == 0 {
		d.fail("cut short")
		return 0
	}
	b := d.p[0]
	d.p = d.p[1:]
	return b
}

// number reads a minimally encoded varint: one value has one encoding, so equal batches are equal bytes.
func (d *decoder) number(limit uint64) uint64 {
	v, n := binary.Uvarint(d.p)
	switch {
	case n <= 0:
		d.fail("cut short or oversized number")
		return 0
	case n > 1 && d.p[n-1] == 0:
		d.fail("number is not minimally encoded")
		return 0
	case v > limit:
		d.fail(fmt.Sprintf("number %d is over %d", v, limit))
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) bytes(limit uint64) []byte {
	n := d.number(limit)
	if n > uint64(len(d.p)) {
		d.fail("cut short")
		return nil
	}
	b := d.p[:n:n]
	d.p = d.p[n:]
	return b
}
