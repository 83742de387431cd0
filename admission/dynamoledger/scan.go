package dynamoledger

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// Scan implements admission.Store. It reads the whole table, in pages, and costs as much: an account may be seen as it
// was before a spend whose artifact is seen.
func (s *store) Scan(ctx context.Context, visit func(admission.Record) error) error {
	in := &dynamodb.ScanInput{TableName: s.table, ConsistentRead: ptr(true)}
	for {
		var out *dynamodb.ScanOutput
		err := s.persist(ctx, call{op: "scan"}, func(ctx context.Context) (err error) {
			out, err = s.client.Scan(ctx, in)
			return err
		})
		if err != nil {
			return err
		}
		for _, it := range out.Items {
			if pk, _ := it["pk"].(*types.AttributeValueMemberS); pk != nil && pk.Value == dynamotx.WorldKey {
				continue
			}
			if err := visit(decodeRecord(it)); err != nil {
				return err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}

// decodeRecord reads an item of any kind.
func decodeRecord(it item) admission.Record {
	d := decode(it)
	var r admission.Record
	var err error
	switch pk := d.Text("pk"); {
	case strings.HasPrefix(pk, actionPrefix):
		r, err = decodeArtifact(it)
	case strings.HasPrefix(pk, accountPrefix):
		r, err = decodeAccount(it, strings.TrimPrefix(pk, accountPrefix), d.Text("sk"))
	case strings.HasPrefix(pk, creditPrefix):
		r = admission.Credit{ID: strings.TrimPrefix(pk, creditPrefix), Owner: d.Text("owner"), Asset: d.Text("asset"),
			Amount: admission.Amount(d.Number("amount", uint64(admission.MaxAmount))), At: d.date("credited_at")}
	default:
		d.Fail("pk")
	}
	if err = cmp.Or(err, d.err()); err != nil {
		return &fence.CorruptError{What: fmt.Sprintf("ledger item %q", d.optional("pk")), Detail: err.Error()}
	}
	return r
}
