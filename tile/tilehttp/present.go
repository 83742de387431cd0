package tilehttp

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// PresentPath is where tile servers present what has departed for a tile.
const PresentPath = "/tilefence/v1/present"

// presentType is the content type of a presentation:
//
//	version   1 byte: 1
//	class     1 byte: 1 if the tile that presents has a journal, otherwise 0
//	from, to  a varint each
//	after     ID: three varints
//	settled   ID
//	transfers as stream.AppendTransfer writes them, to the end
const presentType = "application/x-tilefence-presentation"

const (
	maxPresentation = 1 << 20 // bytes
	maxAnswer       = 4 << 20
)

type wirePresented struct {
	Version int           `json:"v"`
	Mark    [3]uint64     `json:"mark"`
	Refused []wireRefusal `json:"refused,omitempty"`
	Error   *wireError    `json:"error,omitempty"`
}

type wireRefusal struct {
	ID     [3]uint64 `json:"id"`
	Reason string    `json:"reason"`
}

// PresentHandler serves presentations to present, such as tilehost.Host.Present. It answers POST on whatever path it is
// mounted, and passes nothing on that it cannot read. Of cfg, which may be nil, Keys, Contact and Logger count. Without
// Keys only processes that run tiles may reach it: any caller can put entities into every tile of this process.
func PresentHandler(
	present func(ctx context.Context, p tile.Presentation) (tile.Answer, error), cfg *HandlerConfig,
) http.Handler {
	c := setting.Of(cfg)
	refusals := sampled.Logger(c.Logger)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST a presentation", http.StatusMethodNotAllowed)
			return
		}
		if !fromProgram(w, r, presentType) {
			return
		}
		b, err := readBody(w, r, maxPresentation)
		if err == nil {
			if unproven := c.Keys.checkRequest(rolePresenter, r.Header, c.Contact, b); unproven != nil {
				refusals.Warn("a presentation was refused", "remote", r.RemoteAddr, "error", unproven)
				http.Error(w, unproven.Error(), http.StatusUnauthorized)
				return
			}
		}
		var p tile.Presentation
		if err == nil {
			p, err = decodePresentation(b)
		}
		a := wirePresented{Version: version}
		status := http.StatusOK
		if err == nil {
			var got tile.Answer
			if got, err = present(r.Context(), p); err == nil {
				a.Mark, a.Refused = numbers(got.Mark), wireRefusals(got.Refused)
			}
		}
		if err != nil {
			e := encodeError(err)
			a.Error, status = &e, statuses[e.Code]
		}
		c.Keys.signAccepted(r.Header, w.Header(), mustEncode(a))
		reply(w, status, a)
	})
}

// Present presents to the process at contact what has departed for a tile that it owns. Errors: those of
// tile.TileProcessor.Present, or an *UnavailableError. The presentation may be repeated in any case.
func (c *Client) Present(ctx context.Context, contact string, p tile.Presentation) (tile.Answer, error) {
	if err := p.Validate(); err != nil {
		return tile.Answer{}, err
	}
	status, b, err := c.post(ctx, contact, request{path: PresentPath, kind: presentType, role: rolePresenter,
		body: encodePresentation(&p), most: maxAnswer})
	if err != nil {
		return tile.Answer{}, err
	}
	var w wirePresented
	if err := json.Unmarshal(b, &w); err != nil || w.Version != version {
		return tile.Answer{}, &UnavailableError{Contact: contact, Outcome: fence.ErrUnknownOutcome,
			Err: fmt.Errorf("status %d: %w", status, errNotOurs)}
	}
	if w.Error != nil {
		_, err := (&wireAnswer{Error: w.Error}).decode(contact, p.To)
		return tile.Answer{}, err
	}
	a := tile.Answer{Mark: identified(w.Mark)}
	for _, r := range w.Refused {
		a.Refused = append(a.Refused, stream.Refusal{ID: identified(r.ID), Reason: r.Reason})
	}
	return a, nil
}

func numbers(id stream.TransferID) [3]uint64 {
	return [3]uint64{uint64(id.Epoch), uint64(id.Seq), uint64(id.Index)}
}

func identified(n [3]uint64) stream.TransferID {
	return stream.TransferID{Epoch: fence.Epoch(n[0]), Seq: fence.Seq(n[1]), Index: int(n[2])}
}

func wireRefusals(all []stream.Refusal) (w []wireRefusal) {
	for _, r := range all {
		w = append(w, wireRefusal{ID: numbers(r.ID), Reason: r.Reason})
	}
	return w
}

func encodePresentation(p *tile.Presentation) []byte {
	class := byte(0)
	if p.Durable {
		class = 1
	}
	b := binary.AppendUvarint([]byte{version, class}, uint64(p.From))
	b = binary.AppendUvarint(b, uint64(p.To))
	b = stream.AppendTransferID(stream.AppendTransferID(b, p.After), p.Settled)
	for i := range p.Transfers {
		b = stream.AppendTransfer(b, &p.Transfers[i])
	}
	return b
}

// decodePresentation reads a request. Its error is a *fence.ArgumentError.
func decodePresentation(b []byte) (p tile.Presentation, err error) {
	bad := func(err error) (tile.Presentation, error) {
		return tile.Presentation{}, &fence.ArgumentError{Field: "request", Value: cut(err.Error()),
			Want: "a presentation of version 1, whole"}
	}
	if len(b) < 2 || b[0] != version || b[1] > 1 {
		return bad(errNotOurs)
	}
	p.Durable, b = b[1] == 1, b[2:]
	for _, id := range []*fence.TileID{&p.From, &p.To} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return bad(io.ErrUnexpectedEOF)
		}
		*id, b = fence.TileID(v), b[n:]
	}
	for _, id := range []*stream.TransferID{&p.After, &p.Settled} {
		if *id, b, err = stream.DecodeTransferID(b); err != nil {
			return bad(err)
		}
	}
	for len(b) > 0 {
		var t stream.Transfer
		if t, b, err = stream.DecodeTransfer(b); err != nil {
			return bad(err)
		}
		p.Transfers = append(p.Transfers, t)
	}
	return p, p.Validate()
}
