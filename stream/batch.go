package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tilefence/tilefence/fence"
)

// The first byte of every encoded batch. A reader refuses what it does not know.
const (
	batchVersion   = 1
	installVersion = 2
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
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

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

// Batch is what one tick commits: the game's events, opaque here, and the outcomes of the actions it
// resolved.
//
// Encoded, in this order, with unsigned LEB128 varints:
//
//	version      1 byte, 1
//	events       varint count, then per event: varint length, bytes
//	resolutions  varint count, then per resolution: outcome (1 byte), varint length, action ID
//
// or, for the first batch of an owner, which holds nothing else:
//
//	version      1 byte, 2
//	claim        16 bytes
type Batch struct {
	Events      [][]byte
	Resolutions []Resolution

	// Claim is the claim under which an owner installs itself; zero for any other batch. It makes the installs
	// of two claimants different batches, with different chains, even when an authority that was restored
	// has granted both the same epoch.
	Claim fence.ClaimID
}

// Len is the number of things in the batch: what fence.Commit.Events takes.
func (b *Batch) Len() int { return len(b.Events) + len(b.Resolutions) }

// AppendBatch appends the encoded batch to dst. A *fence.ArgumentError names an oversized event, action
// ID or batch, or a claim beside events; dst is then returned as it came.
func AppendBatch(dst []byte, b *Batch) ([]byte, error) {
	if b.Claim != (fence.ClaimID{}) {
		if b.Len() > 0 {
			return dst, &fence.ArgumentError{Field: "claim", Value: b.Claim, Want: "a batch of its own, without events and resolutions"}
		}
		return append(append(dst, installVersion), b.Claim[:]...), nil
	}
	start := len(dst)
	out := append(dst, batchVersion)
	out = binary.AppendUvarint(out, uint64(len(b.Events)))
	for _, e := range b.Events {
		if len(e) > MaxEvent {
			return dst, &fence.ArgumentError{Field: "event", Value: len(e), Want: "at most 65536 bytes"}
		}
		out = binary.AppendUvarint(out, uint64(len(e)))
		out = append(out, e...)
	}
	out = binary.AppendUvarint(out, uint64(len(b.Resolutions)))
	for _, r := range b.Resolutions {
		if len(r.ActionID) == 0 || len(r.ActionID) > MaxActionID || !r.Outcome.Valid() {
			return dst, &fence.ArgumentError{Field: "resolution", Value: r.ActionID, Want: "an action ID of 1 to 64 bytes and a terminal outcome"}
		}
		out = append(out, byte(r.Outcome))
		out = binary.AppendUvarint(out, uint64(len(r.ActionID)))
		out = append(out, r.ActionID...)
	}
	if len(out)-start > fence.MaxPayload {
		return dst, &fence.ArgumentError{Field: "batch", Value: len(out) - start, Want: "at most 1048576 bytes; commit the rest next tick"}
	}
	return out, nil
}

// DecodeBatch reads an encoded batch. Events alias p. An empty p is an empty batch (the payload of a
// refresh). A *FormatError says what is wrong; nothing is returned then.
func DecodeBatch(p []byte) (*Batch, error) {
	if len(p) == 0 {
		return &Batch{}, nil
	}
	if len(p) > fence.MaxPayload {
		return nil, &FormatError{What: "batch", Detail: fmt.Sprintf("%d bytes, at most %d", len(p), fence.MaxPayload)}
	}
	if p[0] == installVersion {
		return decodeInstall(p)
	}
	d := decoder{p: p}
	if v := d.byte(); v != batchVersion && d.err == nil {
		return nil, &FormatError{What: "batch", Detail: fmt.Sprintf("version %d, this reader knows %d", v, batchVersion)}
	}
	b := &Batch{}
	if n := d.count(1); n > 0 {
		b.Events = make([][]byte, 0, n)
		for range n {
			b.Events = append(b.Events, d.bytes(MaxEvent))
		}
	}
	if n := d.count(3); n > 0 {
		b.Resolutions = make([]Resolution, 0, n)
		for range n {
			o := Outcome(d.byte())
			id := d.bytes(MaxActionID)
			if d.err == nil && (!o.Valid() || len(id) == 0) {
				d.fail("resolution without a valid outcome and action ID")
			}
			b.Resolutions = append(b.Resolutions, Resolution{ActionID: string(id), Outcome: o})
		}
	}
	if d.err == nil && len(d.p) > 0 {
		d.fail(fmt.Sprintf("%d bytes after the end", len(d.p)))
	}
	if d.err != nil {
		return nil, &FormatError{What: "batch", Detail: d.err.Error()}
	}
	return b, nil
}

func decodeInstall(p []byte) (*Batch, error) {
	b := &Batch{}
	if len(p) != 1+len(b.Claim) {
		return nil, &FormatError{What: "batch", Detail: fmt.Sprintf("an install of %d bytes, not %d", len(p), 1+len(b.Claim))}
	}
	copy(b.Claim[:], p[1:])
	if b.Claim == (fence.ClaimID{}) {
		return nil, &FormatError{What: "batch", Detail: "an install without a claim"}
	}
	return b, nil
}

// FormatError is encoded bytes that cannot be read: damaged, cut short, or of a version this reader does
// not know.
type FormatError struct {
	What   string // "batch", "frame", "stream entry"
	Detail string
}

func (e *FormatError) Error() string { return "malformed " + e.What + ": " + e.Detail }

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

// count reads how many items follow, each of at least size bytes, so that a hostile count cannot make
// the reader allocate more than the input could hold.
func (d *decoder) count(size int) int {
	n := d.number(math.MaxInt32)
	if n > uint64(len(d.p)/size) {
		d.fail("count is larger than the input")
		return 0
	}
	return int(n)
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
