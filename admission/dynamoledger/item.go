package dynamoledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

type item = map[string]types.AttributeValue

const (
	accountPrefix = "account/"
	actionPrefix  = "action/"
	creditPrefix  = "credit/"
)

func accountKey(owner, asset string) item {
	return item{"pk": text(accountPrefix + owner), "sk": text(asset)}
}
func actionKey(id string) item { return item{"pk": text(actionPrefix + id), "sk": text("action")} }
func creditKey(id string) item { return item{"pk": text(creditPrefix + id), "sk": text("credit")} }

func text[T ~string](s T) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(s)}
}

func number[T ~int | ~int64 | ~uint64](n T) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

func binary(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{}
	}
	return &types.AttributeValueMemberB{Value: b}
}

func flag(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

func ptr[T any](v T) *T { return &v }

// names maps #x to x: DynamoDB reserves hundreds of words, and may reserve more.
func names(attributes ...string) map[string]string {
	m := make(map[string]string, len(attributes))
	for _, a := range attributes {
		m["#"+a] = a
	}
	return m
}

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

func (s *Store) expires(at time.Time) types.AttributeValue {
	return number(at.Add(s.cfg.Retention).Unix() + 1)
}

func (s *Store) encodeArtifact(a admission.Artifact) item {
	it := merge(actionKey(a.ActionID), item{
		"admission_id": text(a.AdmissionID),
		"fingerprint":  binary(a.Fingerprint[:]),
		"actor":        text(a.Actor),
		"asset":        text(a.Asset),
		"cost":         number(a.Cost),
		"cooldown":     number(a.Cooldown.Milliseconds()),
		"tile":         text(a.Tile.String()),
		"body":         binary(a.Body),
		"attempts":     number(a.Attempts),
		"attempt_id":   text(a.AttemptID),
		"admitted_at":  number(a.Admitted.UnixMilli()),
		"attempted_at": number(a.Attempted.UnixMilli()),
	})
	if a.Open() {
		it["open"] = text(shardOf(a.ActionID))
		return it
	}
	it["outcome"] = text(a.Outcome.String())
	it["resolved_at"] = number(a.Resolved.UnixMilli())
	if a.Reason != 0 {
		it["reason"] = text(a.Reason.String())
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
	d := decoder{item: it}
	a := admission.Artifact{
		ActionID:    d.text("pk"),
		AdmissionID: admission.AdmissionID(d.text("admission_id")),
		Actor:       d.text("actor"),
		Asset:       d.text("asset"),
		Cost:        admission.Amount(d.number("cost", uint64(admission.MaxAmount))),
		Cooldown:    time.Duration(d.number("cooldown", maxCooldown)) * time.Millisecond,
		Body:        d.binary("body"),
		Attempts:    int(d.number("attempts", fence.MaxNumber)), // a small count
		AttemptID:   admission.AttemptID(d.optional("attempt_id")),
		Admitted:    d.date("admitted_at"),
		Attempted:   d.date("attempted_at"),
	}
	a.ActionID = strings.TrimPrefix(a.ActionID, actionPrefix)
	if copy(a.Fingerprint[:], d.binary("fingerprint")) != len(a.Fingerprint) {
		d.fail("fingerprint")
	}
	var err1, err2, err3 error
	a.Tile, err1 = fence.ParseTileID(d.text("tile"))
	if outcome := d.optional("outcome"); outcome != "" {
		a.Outcome, err2 = stream.ParseOutcome(outcome)
		a.Reason, err3 = admission.ParseReason(d.optional("reason"))
		a.Resolved = d.date("resolved_at")
		a.Refunded = d.flag("refunded")
	}
	return a, cmp.Or(d.err, err1, err2, err3)
}

// decodeAccount reads an item. No item is an account that was never touched.
func decodeAccount(it item, owner, asset string) (admission.Account, error) {
	a := admission.Account{Owner: owner, Asset: asset}
	if len(it) == 0 {
		return a, nil
	}
	d := decoder{item: it}
	a.Balance = admission.Amount(d.number("balance", math.MaxInt64)) // an audit shows one above the limit
	a.Version = d.number("version", math.MaxInt64)
	if _, set := it["cooldown_until"]; set {
		a.CooldownUntil = d.date("cooldown_until")
	}
	return a, d.err
}

// decoder reads attributes; it keeps the first thing that is not as this package writes it.
type decoder struct {
	item item
	err  error
}

func (d *decoder) fail(attribute string) {
	if d.err == nil {
		d.err = &fence.CorruptError{What: "ledger item", Detail: fmt.Sprintf("attribute %q is missing or damaged",
			attribute)}
	}
}

func (d *decoder) text(attribute string) string {
	v, ok := d.item[attribute].(*types.AttributeValueMemberS)
	if !ok {
		d.fail(attribute)
		return ""
	}
	return v.Value
}

func (d *decoder) optional(attribute string) string {
	if _, set := d.item[attribute]; !set {
		return ""
	}
	return d.text(attribute)
}

// number reads a number from 0 to most.
func (d *decoder) number(attribute string, most uint64) uint64 {
	v, ok := d.item[attribute].(*types.AttributeValueMemberN)
	if !ok {
		d.fail(attribute)
		return 0
	}
	n, err := strconv.ParseUint(v.Value, 10, 64)
	if err != nil || n > most {
		d.fail(attribute)
		return 0
	}
	return n
}

func (d *decoder) date(attribute string) time.Time {
	return time.UnixMilli(int64(d.number(attribute, fence.MaxNumber))).UTC()
}

func (d *decoder) binary(attribute string) []byte {
	v, ok := d.item[attribute].(*types.AttributeValueMemberB)
	if !ok {
		d.fail(attribute)
		return nil
	}
	return v.Value
}

func (d *decoder) flag(attribute string) bool {
	v, ok := d.item[attribute].(*types.AttributeValueMemberBOOL)
	return ok && v.Value
}
