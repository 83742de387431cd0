package dynamoledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/stream"
)

type item = dynamotx.Item

const (
	accountPrefix = "account/"
	actionPrefix  = "action/"
	creditPrefix  = "credit/"
)

func accountKey(owner, asset string) item {
	return item{"pk": dynamotx.Text(accountPrefix + owner), "sk": dynamotx.Text(asset)}
}
func actionKey(id string) item {
	return item{"pk": dynamotx.Text(actionPrefix + id), "sk": dynamotx.Text("action")}
}
func creditKey(id string) item {
	return item{"pk": dynamotx.Text(creditPrefix + id), "sk": dynamotx.Text("credit")}
}

func flag(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

func ptr[T any](v T) *T { return &v }

func merge(a, b item) item {
	maps.Copy(a, b)
	return a
}

// token derives a client request token, at most 36 characters, from what makes a request this one.
func token(parts ...string) *string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return ptr(hex.EncodeToString(h.Sum(nil)[:16]))
}

func (s *store) expires(at time.Time) types.AttributeValue {
	return dynamotx.Number(at.Add(s.cfg.Retention).Unix() + 1)
}

func (s *store) encodeArtifact(a admission.Artifact) item {
	it := merge(actionKey(a.ActionID), item{
		"admission_id": dynamotx.Text(a.AdmissionID),
		"fingerprint":  dynamotx.Binary(a.Fingerprint[:]),
		"actor":        dynamotx.Text(a.Actor),
		"asset":        dynamotx.Text(a.Asset),
		"cost":         dynamotx.Number(a.Cost),
		"cooldown":     dynamotx.Number(a.Cooldown.Milliseconds()),
		"tile":         dynamotx.Text(a.Tile.String()),
		"body":         dynamotx.Binary(a.Body),
		"attempts":     dynamotx.Number(a.Attempts),
		"attempt_id":   dynamotx.Text(a.AttemptID),
		"admitted_at":  dynamotx.Number(a.Admitted.UnixMilli()),
		"attempted_at": dynamotx.Number(a.Attempted.UnixMilli()),
	})
	if a.Open() {
		it["open"] = dynamotx.Text(shardOf(a.ActionID))
		return it
	}
	it["outcome"] = dynamotx.Text(a.Outcome.String())
	it["resolved_at"] = dynamotx.Number(a.Resolved.UnixMilli())
	if a.Reason != 0 {
		it["reason"] = dynamotx.Text(a.Reason.String())
	}
	if s.cfg.Retention > 0 {
		it["expires"] = s.expires(a.Resolved)
	}
	return it
}

// maxCooldown is 100 years, more than admission.Action allows, in milliseconds.
const maxCooldown = 100 * 366 * 24 * 3600 * 1000

// decodeArtifact reads an item. No item is admission.ErrUnknownAction.
func decodeArtifact(it item) (admission.Artifact, error) {
	if len(it) == 0 {
		return admission.Artifact{}, admission.ErrUnknownAction
	}
	d := decode(it)
	a := admission.Artifact{
		ActionID:    d.Text("pk"),
		AdmissionID: admission.AdmissionID(d.Text("admission_id")),
		Actor:       d.Text("actor"),
		Asset:       d.Text("asset"),
		Cost:        admission.Amount(d.Number("cost", uint64(admission.MaxAmount))),
		Cooldown:    time.Duration(d.Number("cooldown", maxCooldown)) * time.Millisecond,
		Body:        d.Binary("body"),
		Attempts:    int(d.Number("attempts", fence.MaxNumber)), // a small count
		AttemptID:   admission.AttemptID(d.optional("attempt_id")),
		Admitted:    d.date("admitted_at"),
		Attempted:   d.date("attempted_at"),
	}
	a.ActionID = strings.TrimPrefix(a.ActionID, actionPrefix)
	if copy(a.Fingerprint[:], d.Binary("fingerprint")) != len(a.Fingerprint) {
		d.Fail("fingerprint")
	}
	var err1, err2, err3 error
	a.Tile, err1 = fence.ParseTileID(d.Text("tile"))
	if outcome := d.optional("outcome"); outcome != "" {
		a.Outcome, err2 = stream.ParseOutcome(outcome)
		a.Reason, err3 = admission.ParseReason(d.optional("reason"))
		a.Resolved = d.date("resolved_at")
		a.Refunded = d.flag("refunded")
	}
	return a, cmp.Or(d.err(), err1, err2, err3)
}

// decodeAccount reads an item. No item is an account that was never touched.
func decodeAccount(it item, owner, asset string) (admission.Account, error) {
	a := admission.Account{Owner: owner, Asset: asset}
	if len(it) == 0 {
		return a, nil
	}
	d := decode(it)
	a.Balance = admission.Amount(d.Number("balance", math.MaxInt64)) // an audit shows one above the limit
	a.Version = d.Number("version", math.MaxInt64)
	if _, set := it["cooldown_until"]; set {
		a.CooldownUntil = d.date("cooldown_until")
	}
	return a, d.err()
}

// decoder reads the attributes of the ledger's items.
type decoder struct{ dynamotx.Reader }

func decode(it item) *decoder { return &decoder{dynamotx.Reader{Item: it}} }

// err is a *fence.CorruptError about the first attribute that is not as this package writes it.
func (d *decoder) err() error {
	if d.Err == nil {
		return nil
	}
	return &fence.CorruptError{What: "ledger item", Detail: d.Err.Error()}
}

func (d *decoder) optional(attribute string) string {
	if _, set := d.Item[attribute]; !set {
		return ""
	}
	return d.Text(attribute)
}

func (d *decoder) date(attribute string) time.Time {
	return time.UnixMilli(int64(d.Number(attribute, fence.MaxNumber))).UTC()
}

func (d *decoder) flag(attribute string) bool {
	v, ok := d.Item[attribute].(*types.AttributeValueMemberBOOL)
	return ok && v.Value
}
