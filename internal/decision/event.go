package decision

import (
	"encoding/binary"
	"errors"

	"github.com/tilefence/tilefence/fence"
)

// Kind says what an event is.
type Kind uint8

// The kinds. Calls are kept when they are answered.
const (
	Began    Kind = iota + 1 // a server begins: Server, Contact
	Closed                   // the log was closed in order
	Dropped                  // Count events are missing here
	Claim                    // a call of the authority: Contact, ID, Expected, Floor
	Promote                  // likewise
	Lookup                   // a call of the authority
	Release                  // a call of the authority: Epoch, Contact, ID of the grant
	Commit                   // a call of the store: a batch, an install or a refresh
	Rebase                   // a call of the store: Next, State
	Snapshot                 // a call of the store: Next is its position, State
	Ended                    // a tile's owner has ended: Epoch, Current its successor if it was superseded
	Admitted                 // a gateway was answered: Action, Outcome; Duplicate: the action was known
	Settled                  // a gateway was answered: Action; Refunded: the price was given back
	Assigned                 // a match plays: Action is its ID, Count the tile, Epoch that of the owner
	lastKind = Assigned
)

// Event is one decision with its answer. Fields that its Kind does not name are zero.
type Event struct {
	Kind   Kind
	Server int // of the file's, by the order in which they began
	Tile   fence.TileID
	Called int64 // nanoseconds since 1970; see the package comment
	Took   int64 // nanoseconds until the answer

	Contact         string // of the caller, if it is not its server's
	ID              fence.ClaimID
	Expected, Floor fence.Epoch
	Epoch           fence.Epoch
	Prev, Next      fence.Position // what a commit follows, or a rebase replaces, and where it takes the tile
	Tick            fence.Tick
	Bytes           int    // of a batch's payload
	State           uint64 // a sum of a batch's content, or of a state
	Replicas        int    // confirmations asked for, as in fence.Commit

	Install, Refresh bool
	Replaces         bool // Prev is where the history ends that a rebase is for

	Answer

	Action string // ID
	Count  uint64 // of dropped events; of Assigned, the tile: it is no decision of that tile's owner
}

// Answer is what a call was answered.
type Answer struct {
	Outcome   Outcome
	Reason    Reason
	At        fence.Position // of a receipt
	Copies    int            // replicas that a receipt names
	Duplicate bool
	Refunded  bool
	Current   fence.Owner // that a refusal names
	Grant     fence.Grant // granted, looked up, or the holder of a lost claim
}

// Outcome is the class of an answer.
type Outcome uint8

// The outcomes.
const (
	OK          Outcome = iota + 1
	Unconfirmed         // on the master, not on enough replicas
	Refused             // by the store: Reason, Current
	Lost                // by the authority: Grant is the holder
	NeverOwned
	NotApplied // nothing was, and nothing will be
	Unknown    // it may have been, or may still be
	Invalid    // a malformed argument
	Failed     // anything else; as Unknown
)

// Reason is why the store refused.
type Reason uint8

// Reasons are the refusals of the store; the Reason of each is its index. The first is none.
var Reasons = []error{nil, fence.ErrStale, fence.ErrReplay, fence.ErrBehind, fence.ErrForked, fence.ErrNoOwner,
	fence.ErrRegress, fence.ErrUncommitted, fence.ErrChecksum}

// Judge classifies an error of a store or an authority. What it does not know is Failed.
func Judge(err error) Answer {
	if err == nil {
		return Answer{Outcome: OK}
	}
	var refused *fence.RefusedError
	var unconfirmed *fence.UnconfirmedError
	var lost *fence.LostError
	switch {
	case errors.As(err, &refused):
		a := Answer{Outcome: Refused, Current: refused.Current}
		for i, r := range Reasons {
			if r != nil && errors.Is(refused.Reason, r) {
				a.Reason = Reason(i)
			}
		}
		return a
	case errors.As(err, &unconfirmed):
		a := Answer{Outcome: Unconfirmed}
		a.receipt(unconfirmed.Receipt)
		return a
	case errors.As(err, &lost):
		return Answer{Outcome: Lost, Grant: lost.Current}
	case errors.Is(err, fence.ErrNeverOwned):
		return Answer{Outcome: NeverOwned}
	case errors.Is(err, fence.ErrInvalidArgument):
		return Answer{Outcome: Invalid}
	case errors.Is(err, fence.ErrNotApplied):
		return Answer{Outcome: NotApplied}
	case errors.Is(err, fence.ErrUnknownOutcome):
		return Answer{Outcome: Unknown}
	}
	return Answer{Outcome: Failed}
}

func (a *Answer) receipt(r fence.Receipt) {
	a.At, a.Duplicate, a.Copies = r.Position, r.Duplicate, r.Replicas
}

// Flags of an encoded event: which of its parts follow.
const (
	hasContact = 1 << iota
	hasClaim
	hasWrite
	hasReceipt
	hasCurrent
	hasGrant
	hasAction
	isInstall
	isRefresh
	replaces
	isDuplicate
	isRefunded
)

func (e *Event) flags() uint64 {
	return part(e.Contact != "", hasContact) | part(e.ID != fence.ClaimID{}, hasClaim) |
		part(!e.Next.IsZero(), hasWrite) | part(!e.At.IsZero() && e.At != e.Next, hasReceipt) |
		part(e.Current.Epoch != 0 || !e.Current.Position.IsZero(), hasCurrent) |
		part(e.Grant.Epoch != 0, hasGrant) | part(e.Action != "" || e.Count != 0, hasAction) |
		part(e.Install, isInstall) | part(e.Refresh, isRefresh) | part(e.Replaces, replaces) |
		part(e.Duplicate, isDuplicate) | part(e.Refunded, isRefunded)
}

func part(is bool, flag uint64) uint64 {
	if is {
		return flag
	}
	return 0
}

// AppendFrame appends the event as a file has it. Most are shorter than 128 bytes, so that their length takes one byte;
// the others are moved.
func (e *Event) AppendFrame(b []byte) []byte {
	at := len(b)
	b = e.appendTo(append(b, 0))
	n := len(b) - at - 1
	if n < 0x80 {
		b[at] = byte(n)
		return b
	}
	var head [binary.MaxVarintLen64]byte
	wide := binary.PutUvarint(head[:], uint64(n))
	b = append(b, head[:wide-1]...)
	copy(b[at+wide:], b[at+1:at+1+n])
	copy(b[at:], head[:wide])
	return b
}

// appendTo appends the encoded event.
func (e *Event) appendTo(b []byte) []byte {
	number := binary.AppendUvarint
	f := e.flags()
	b = append(b, byte(e.Kind), byte(e.Outcome), byte(e.Reason))
	b = number(b, f)
	b = number(b, uint64(e.Server))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Tile))
	b = number(b, uint64(e.Called))
	b = number(b, uint64(e.Took))
	b = number(b, uint64(e.Epoch))
	if f&hasContact != 0 {
		b = appendText(b, e.Contact)
	}
	if f&hasClaim != 0 {
		b = append(b, e.ID[:]...)
		b = number(number(b, uint64(e.Expected)), uint64(e.Floor))
	}
	if f&hasWrite != 0 {
		b = appendPosition(appendPosition(b, e.Prev), e.Next)
		b = number(number(b, uint64(e.Tick)), uint64(e.Bytes))
		b = binary.BigEndian.AppendUint64(b, e.State)
		b = number(number(b, uint64(e.Replicas+1)), uint64(e.Copies))
	}
	if f&hasReceipt != 0 {
		b = appendPosition(b, e.At)
	}
	if f&hasCurrent != 0 {
		b = appendText(number(b, uint64(e.Current.Epoch)), e.Current.Contact)
		b = number(appendPosition(b, e.Current.Position), uint64(e.Current.Tick))
	}
	if f&hasGrant != 0 {
		b = appendText(number(b, uint64(e.Grant.Epoch)), e.Grant.Contact)
		b = append(b, e.Grant.ID[:]...)
	}
	if f&hasAction != 0 {
		b = number(appendText(b, e.Action), e.Count)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPosition(b []byte, p fence.Position) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.Epoch)), uint64(p.Seq))
	return binary.BigEndian.AppendUint64(b, uint64(p.Chain))
}

// errDamaged is an event that no log has written.
var errDamaged = errors.New("no event: the file is damaged")

// Decode reads an encoded event. Its strings are copies.
func (e *Event) Decode(b []byte) error {
	d := decoder{b: b}
	*e = Event{Kind: Kind(d.byte())}
	e.Outcome, e.Reason = Outcome(d.byte()), Reason(d.byte())
	f := d.number()
	e.Server = int(d.number())
	e.Tile = fence.TileID(d.eight())
	e.Called, e.Took = int64(d.number()), int64(d.number())
	e.Epoch = fence.Epoch(d.number())
	d.call(e, f)
	d.answer(e, f)
	e.Install, e.Refresh, e.Replaces = f&isInstall != 0, f&isRefresh != 0, f&replaces != 0
	e.Duplicate, e.Refunded = f&isDuplicate != 0, f&isRefunded != 0
	if d.bad || len(d.b) > 0 || e.Kind < Began || e.Kind > lastKind || f != e.flags() ||
		int(e.Reason) >= len(Reasons) || e.Outcome > Failed || e.Server < 0 || e.Called < 0 || e.Took < 0 {
		return errDamaged
	}
	return nil
}

// call reads the parts that say what was asked.
func (d *decoder) call(e *Event, f uint64) {
	if f&hasContact != 0 {
		e.Contact = d.text()
	}
	if f&hasClaim != 0 {
		copy(e.ID[:], d.bytes(len(e.ID)))
		e.Expected, e.Floor = fence.Epoch(d.number()), fence.Epoch(d.number())
	}
	if f&hasWrite != 0 {
		e.Prev, e.Next = d.position(), d.position()
		e.Tick, e.Bytes = fence.Tick(d.number()), int(d.number())
		e.State = d.eight()
		e.Replicas, e.Copies = int(d.number())-1, int(d.number())
	}
}

// answer reads the parts that say what was answered.
func (d *decoder) answer(e *Event, f uint64) {
	if (e.Kind == Commit || e.Kind == Rebase) && (e.Outcome == OK || e.Outcome == Unconfirmed) {
		e.At = e.Next
	}
	if f&hasReceipt != 0 {
		e.At = d.position()
	}
	if f&hasCurrent != 0 {
		e.Current = fence.Owner{Tile: e.Tile, Epoch: fence.Epoch(d.number()), Contact: d.text()}
		e.Current.Position, e.Current.Tick = d.position(), fence.Tick(d.number())
	}
	if f&hasGrant != 0 {
		e.Grant = fence.Grant{Tile: e.Tile, Epoch: fence.Epoch(d.number()), Contact: d.text()}
		copy(e.Grant.ID[:], d.bytes(len(e.Grant.ID)))
	}
	if f&hasAction != 0 {
		e.Action, e.Count = d.text(), d.number()
	}
}

// decoder takes fields from the front of b. Once one is missing all others are zero, and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	got := d.b[:n]
	d.b = d.b[n:]
	return got
}

func (d *decoder) byte() byte {
	if got := d.bytes(1); got != nil {
		return got[0]
	}
	return 0
}

func (d *decoder) eight() uint64 {
	if got := d.bytes(8); got != nil {
		return binary.BigEndian.Uint64(got)
	}
	return 0
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return ""
	}
	return string(d.bytes(int(n)))
}

func (d *decoder) position() fence.Position {
	return fence.Position{Epoch: fence.Epoch(d.number()), Seq: fence.Seq(d.number()), Chain: fence.Chain(d.eight())}
}
