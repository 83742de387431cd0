package stream

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"

	"github.com/tilefence/tilefence/fence"
)

// Limits of transfers; Encode and the decoder refuse more.
const (
	MaxEntity         = 64       // bytes of an entity's name, or of an actor's
	MaxTransfer       = 64 << 10 // bytes of one payload
	MaxRefusal        = 128      // bytes of a reason
	maxTransfersTick  = 1 << 16  // departures, or refusals, of one batch
	departureOverhead = 32       // bytes of an encoded departure beside names and payload, at most
)

// TransferID names a transfer: the commit by which it departed, and its place there, from 1. Within the history of a
// tile, later transfers have higher IDs, and none is used again: an owner that goes on from an older state has a higher
// epoch. Zero is no transfer.
type TransferID struct {
	Epoch fence.Epoch
	Seq   fence.Seq
	Index int
}

// IsZero reports whether id names no transfer.
func (id TransferID) IsZero() bool { return id == TransferID{} }

// Compare orders the transfers of one tile: -1 if id departed before other, 0 if they are one, 1 otherwise.
func (id TransferID) Compare(other TransferID) int {
	return cmp.Or(cmp.Compare(id.Epoch, other.Epoch), cmp.Compare(id.Seq, other.Seq),
		cmp.Compare(id.Index, other.Index))
}

// LogValue implements slog.LogValuer with the form of String.
func (id TransferID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// String is the form "epoch/seq.index".
func (id TransferID) String() string { return fmt.Sprintf("%d/%d.%d", id.Epoch, id.Seq, id.Index) }

// Departure is an entity that leaves a tile for another one. It is committed with the events by which the game takes it
// out of its state, and kept with the tile's state until the other tile has taken or refused it.
type Departure struct {
	To     fence.TileID // not the tile itself
	Entity string       // its name in the world, 1 to 64 bytes
	// Actor is the player who goes along with the entity, at most 64 bytes: later intents of this actor that come to
	// the tile are answered with where it went. Empty: no player goes along, as with coins that are sent.
	Actor   string
	Payload []byte // the game's, at most 64 KiB
}

// Validate returns a *fence.ArgumentError that names the first field that is not valid, for a departure from a tile.
func (d *Departure) Validate(from fence.TileID) error {
	switch {
	case d.To == 0 || d.To == from:
		return &fence.ArgumentError{Field: "To", Value: d.To, Want: "another tile"}
	case len(d.Entity) == 0 || len(d.Entity) > MaxEntity:
		return &fence.ArgumentError{Field: "Entity", Value: d.Entity, Want: "a name of 1 to 64 bytes"}
	case len(d.Actor) > MaxEntity:
		return &fence.ArgumentError{Field: "Actor", Value: d.Actor, Want: "at most 64 bytes"}
	case len(d.Payload) > MaxTransfer:
		return &fence.ArgumentError{Field: "Payload", Value: fmt.Sprint(len(d.Payload), " bytes"),
			Want: "at most 65536"}
	}
	return nil
}

// Size is about what the departure takes in a batch or a snapshot, in bytes.
func (d *Departure) Size() int {
	return departureOverhead + len(d.Entity) + len(d.Actor) + len(d.Payload)
}

// Transfer is a departure that was committed.
type Transfer struct {
	ID   TransferID
	Tick fence.Tick // of the tile that it has left, at which it did
	Departure
}

// Decision is what a tile has decided of the transfers that another tile has presented to it: all up to Mark, of which
// it has taken those that are not in Refused.
type Decision struct {
	From    fence.TileID
	Mark    TransferID // zero: nothing new
	Refused []Refusal  // new ones, in order
	// Forget is up to which transfer the other tile has settled: the refusals until there are no longer needed.
	Forget TransferID
}

// Refusal is a transfer that its destination has not taken.
type Refusal struct {
	ID     TransferID
	Reason string // at most 128 bytes
}

// Settlement is what a tile does with its departures to another tile once that has decided them: those up to UpTo are
// forgotten. The game takes those back that were refused, by the events of the same batch, but for those in Parked:
// its rules fail with them, and they stay with the tile's state until its rules, asked again, take them back: those are
// in Retaken.
type Settlement struct {
	To      fence.TileID
	UpTo    TransferID // zero: nothing new
	Parked  []Refusal
	Retaken []TransferID // in order
}

// AppendTransferID appends an ID as three varints.
func AppendTransferID(b []byte, id TransferID) []byte {
	b = binary.AppendUvarint(b, uint64(id.Epoch))
	b = binary.AppendUvarint(b, uint64(id.Seq))
	return binary.AppendUvarint(b, uint64(id.Index))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// AppendRefusals appends a list of refusals, with its length before it.
func AppendRefusals(b []byte, all []Refusal) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		b = appendText(AppendTransferID(b, all[i].ID), all[i].Reason)
	}
	return b
}

func appendDeparture(b []byte, d *Departure) []byte {
	b = binary.AppendUvarint(b, uint64(d.To))
	b = appendText(b, d.Entity)
	b = appendText(b, d.Actor)
	return appendText(b, d.Payload)
}

// AppendTransfer appends a transfer: its ID, its tick as a varint and what appendDeparture writes.
func AppendTransfer(b []byte, t *Transfer) []byte {
	return appendDeparture(binary.AppendUvarint(AppendTransferID(b, t.ID), uint64(t.Tick)), &t.Departure)
}

// transferSections appends the sections that are not empty.
func (b *Batch) transferSections(private []byte) ([]byte, error) {
	var content []byte
	for i := range b.Departures {
		if err := b.Departures[i].Validate(0); err != nil {
			return nil, err
		}
		content = appendDeparture(content, &b.Departures[i])
	}
	private = appendSection(private, tagDepartures, content)
	content = nil
	for i := range b.Decisions {
		d := &b.Decisions[i]
		if err := validRefusals(d.Refused); err != nil {
			return nil, err
		}
		content = AppendTransferID(binary.AppendUvarint(content, uint64(d.From)), d.Mark)
		content = AppendTransferID(AppendRefusals(content, d.Refused), d.Forget)
	}
	private = appendSection(private, tagDecisions, content)
	content = nil
	for i := range b.Settlements {
		s := &b.Settlements[i]
		if err := validRefusals(s.Parked); err != nil {
			return nil, err
		}
		content = AppendRefusals(AppendTransferID(binary.AppendUvarint(content, uint64(s.To)), s.UpTo), s.Parked)
		content = binary.AppendUvarint(content, uint64(len(s.Retaken)))
		for _, id := range s.Retaken {
			content = AppendTransferID(content, id)
		}
	}
	return appendSection(private, tagSettlements, content), nil
}

func validRefusals(all []Refusal) error {
	for i := range all {
		if all[i].ID.IsZero() || len(all[i].Reason) > MaxRefusal {
			return &fence.ArgumentError{Field: "refusal", Value: all[i],
				Want: "a transfer, and a reason of at most 128 bytes"}
		}
	}
	return nil
}

func appendSection(private []byte, tag fence.Area, content []byte) []byte {
	if len(content) == 0 {
		return private
	}
	return fence.AppendPart(private, tag, content)
}

// DecodeTransfer reads what AppendTransfer wrote at the beginning of b, and returns what follows. The payload aliases
// b. The error is a *fence.FormatError.
func DecodeTransfer(b []byte) (Transfer, []byte, error) {
	d := decoder{p: b}
	t := Transfer{ID: d.transfer(), Tick: fence.Tick(d.number(fence.MaxNumber))}
	if t.Departure = d.departure(); d.err == nil && t.ID.IsZero() {
		d.fail("no ID")
	}
	if d.err != nil {
		return Transfer{}, nil, &fence.FormatError{What: "transfer", Detail: d.err.Error()}
	}
	return t, d.p, nil
}

// DecodeTransferID reads what AppendTransferID wrote. The error is a *fence.FormatError.
func DecodeTransferID(b []byte) (TransferID, []byte, error) {
	d := decoder{p: b}
	id := d.transfer()
	if d.err != nil {
		return TransferID{}, nil, &fence.FormatError{What: "transfer ID", Detail: d.err.Error()}
	}
	return id, d.p, nil
}

// DecodeRefusals reads what AppendRefusals wrote. The error is a *fence.FormatError.
func DecodeRefusals(b []byte) ([]Refusal, []byte, error) {
	d := decoder{p: b}
	all := d.refusals()
	if d.err != nil {
		return nil, nil, &fence.FormatError{What: "refusals", Detail: d.err.Error()}
	}
	return all, d.p, nil
}

func (d *decoder) departure() Departure {
	out := Departure{To: d.tile(), Entity: string(d.bytes(MaxEntity)), Actor: string(d.bytes(MaxEntity)),
		Payload: d.bytes(MaxTransfer)}
	if d.err == nil && out.Entity == "" {
		d.fail("a departure without an entity")
	}
	return out
}

func (d *decoder) tile() fence.TileID {
	id := fence.TileID(d.number(1<<64 - 1))
	if d.err == nil && id == 0 {
		d.fail("no tile")
	}
	return id
}

func (d *decoder) transfer() TransferID {
	id := TransferID{Epoch: fence.Epoch(d.number(fence.MaxNumber)), Seq: fence.Seq(d.number(fence.MaxNumber)),
		Index: int(d.number(maxTransfersTick))}
	if d.err == nil && (id.Epoch == 0) != (id.Index == 0) {
		d.fail("a transfer without an epoch or without a place")
	}
	return id
}

func (d *decoder) departures() (all []Departure) {
	for len(d.p) > 0 {
		if all = append(all, d.departure()); len(all) > maxTransfersTick {
			d.fail("more departures than a batch may have")
		}
	}
	return all
}

func (d *decoder) refusals() (all []Refusal) {
	n := d.number(maxTransfersTick)
	if n > uint64(len(d.p)) {
		d.fail("more refusals than bytes")
	}
	for i := uint64(0); i < n && d.err == nil; i++ {
		r := Refusal{ID: d.transfer(), Reason: string(d.bytes(MaxRefusal))}
		switch {
		case d.err != nil:
		case r.ID.IsZero(), len(all) > 0 && all[len(all)-1].ID.Compare(r.ID) >= 0:
			d.fail("refusals that are not in order")
		}
		all = append(all, r)
	}
	return all
}

func (d *decoder) decisions() (all []Decision) {
	for len(d.p) > 0 {
		all = append(all, Decision{From: d.tile(), Mark: d.transfer(), Refused: d.refusals(), Forget: d.transfer()})
	}
	return all
}

func (d *decoder) settlements() (all []Settlement) {
	for len(d.p) > 0 {
		all = append(all, Settlement{To: d.tile(), UpTo: d.transfer(), Parked: d.refusals(), Retaken: d.transfers()})
	}
	return all
}

// transfers reads a list of IDs.
func (d *decoder) transfers() (all []TransferID) {
	n := d.number(maxTransfersTick)
	if n > uint64(len(d.p)) {
		d.fail("more transfers than bytes")
	}
	for i := uint64(0); i < n && d.err == nil; i++ {
		id := d.transfer()
		if d.err == nil && (id.IsZero() || len(all) > 0 && all[len(all)-1].Compare(id) >= 0) {
			d.fail("transfers that are not in order")
		}
		all = append(all, id)
	}
	return all
}
