package dynamoledger_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/admissiontest"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/stream"
)

// policies refuse requests that none of some of deploy/iam's policies allows, as IAM would, and note what was used.
type policies struct {
	http.RoundTripper
	t     *testing.T
	table string

	mu   sync.Mutex
	used map[string]bool // by action and resource; all that are allowed are keys
}

// under is a client's transport that has the rights of actors.
func under(t *testing.T, table string, actors ...string) *policies {
	t.Helper()
	p := &policies{t: t, table: table, used: map[string]bool{}}
	for _, actor := range actors {
		text, err := os.ReadFile(filepath.Join("../../deploy/iam", actor+".json"))
		require.NoError(t, err)
		var document struct {
			Version   string
			Statement []struct {
				Sid, Effect, Resource string
				Action                []string
			}
		}
		require.NoError(t, json.Unmarshal(text, &document))
		require.Equal(t, "2012-10-17", document.Version)
		for _, s := range document.Statement {
			require.Equal(t, "Allow", s.Effect)
			resource, found := strings.CutPrefix(s.Resource, "arn:aws:dynamodb:REGION:ACCOUNT:table/tilefence-ledger")
			require.True(t, found, s.Resource)
			for _, a := range s.Action {
				p.used[a+resource] = false
			}
		}
	}
	return p
}

func (p *policies) store() admission.Store {
	client := connect(p.t, func(next http.RoundTripper) http.RoundTripper {
		p.RoundTripper = next
		return p
	})
	store, err := dynamoledger.New(client, p.table, nil)
	require.NoError(p.t, err)
	return store
}

// RoundTrip implements http.RoundTripper.
func (p *policies) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	for _, right := range p.rights(r.Header.Get("X-Amz-Target"), body) {
		p.mu.Lock()
		_, allowed := p.used[right]
		if allowed {
			p.used[right] = true
		}
		p.mu.Unlock()
		if !allowed {
			denied := `{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not authorized: ` + right +
				`"}`
			return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Request: r,
				Body: io.NopCloser(strings.NewReader(denied))}, nil
		}
	}
	return p.RoundTripper.RoundTrip(r)
}

// rights are the actions IAM asks for, the operation's or those of a transaction's items, with the index in the table.
func (p *policies) rights(target string, body []byte) []string {
	type item struct{ TableName string }
	var in struct {
		item
		IndexName     string
		TransactItems []map[string]item
	}
	assert.NoError(p.t, json.Unmarshal(body, &in))
	_, operation, _ := strings.Cut(target, ".")
	if operation != "TransactWriteItems" {
		assert.Equal(p.t, p.table, in.TableName)
		if in.IndexName != "" {
			in.IndexName = "/index/" + in.IndexName
		}
		return []string{"dynamodb:" + operation + in.IndexName}
	}
	needs := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem",
		"ConditionCheck": "ConditionCheckItem"}
	var all []string
	for _, items := range in.TransactItems {
		for kind, it := range items {
			assert.Equal(p.t, p.table, it.TableName)
			all = append(all, "dynamodb:"+needs[kind])
		}
	}
	return all
}

// unneeded fails the test for each right that nothing used.
func (p *policies) unneeded() {
	p.t.Helper()
	for right, used := range p.used {
		assert.True(p.t, used, "%s is allowed and not needed", right)
	}
}

// TestPolicies runs all that a ledger does under the policies of deploy/iam, and each actor under its own: nothing it
// does is refused, nothing that it is allowed goes unused, and what is not its business is refused.
func TestPolicies(t *testing.T) {
	t.Run("the whole contract", func(t *testing.T) {
		p := under(t, newTable(t), "ledger-gateway", "ledger-auditor")
		admissiontest.Run(t, func(*testing.T) admission.Store { return p.store() })
		p.unneeded()
	})
	for actor, work := range map[string]func(*testing.T, *admission.AdmissionLedger, []admission.Artifact){
		"ledger-gateway": func(t *testing.T, l *admission.AdmissionLedger, open []admission.Artifact) {
			gatewayWork(t, l, open)
			_, err := l.Audit(t.Context(), time.Now())
			require.ErrorContains(t, err, "not authorized: dynamodb:Scan")
		},
		"ledger-auditor": func(t *testing.T, l *admission.AdmissionLedger, open []admission.Artifact) {
			_, err := l.Audit(t.Context(), time.Now())
			require.NoError(t, err)
			_, err = l.Lookup(t.Context(), open[0].ActionID)
			require.NoError(t, err)
			_, err = l.Resolve(t.Context(), open[0].ActionID, stream.Applied)
			require.ErrorContains(t, err, "not authorized")
			_, err = l.Settle(t.Context(), open[0].ActionID, admission.Finding{Never: true})
			require.ErrorContains(t, err, "not authorized")
		},
		"ledger-settler": func(t *testing.T, l *admission.AdmissionLedger, open []admission.Artifact) {
			_, err := l.Audit(t.Context(), time.Now())
			require.NoError(t, err)
			_, err = l.Settle(t.Context(), open[0].ActionID, admission.Finding{Outcome: stream.Applied})
			require.NoError(t, err)
			_, err = l.Settle(t.Context(), open[1].ActionID, admission.Finding{Never: true})
			require.NoError(t, err)
			require.ErrorContains(t, l.Credit(t.Context(), "ann", "gold", 1, "forged"), "not authorized")
			_, err = l.Admit(t.Context(), admission.Action{ID: "forged", Actor: "ann", Asset: "gold", Tile: 7})
			require.ErrorContains(t, err, "not authorized")
		},
	} {
		t.Run(actor, func(t *testing.T) {
			table := newTable(t)
			everything, err := dynamoledger.New(connect(t, nil), table, nil)
			require.NoError(t, err)
			admin, err := admission.New(everything, nil)
			require.NoError(t, err)
			require.NoError(t, admin.Credit(t.Context(), "ann", "gold", 10, "deck"))
			var open []admission.Artifact
			for _, id := range []string{"a", "b", "c"} {
				art, err := admin.Admit(t.Context(),
					admission.Action{ID: id, Actor: "ann", Asset: "gold", Cost: 1, Tile: 7})
				require.NoError(t, err)
				open = append(open, art)
			}
			p := under(t, table, actor)
			ledger, err := admission.New(p.store(), nil)
			require.NoError(t, err)
			work(t, ledger, open)
			p.unneeded()
		})
	}
}

// gatewayWork is everything that a gateway, its sweeps and its game ask of the ledger.
func gatewayWork(t *testing.T, l *admission.AdmissionLedger, open []admission.Artifact) {
	t.Helper()
	now, err := l.Now(t.Context())
	require.NoError(t, err)
	_, err = l.Pending(t.Context(), time.Time{}, now.Add(time.Hour), 10)
	require.NoError(t, err)
	require.NoError(t, l.Credit(t.Context(), "bob", "gold", 1, "welcome"))
	_, err = l.Balance(t.Context(), "bob", "gold")
	require.NoError(t, err)
	art, err := l.Admit(t.Context(), admission.Action{ID: "d", Actor: "bob", Asset: "gold", Cost: 1, Tile: 7})
	require.NoError(t, err)
	require.NoError(t, l.Withdraw(t.Context(), art))
	art, err = l.Attempt(t.Context(), "d")
	require.NoError(t, err)
	_, err = l.Abandon(t.Context(), art, stream.Redirected)
	require.NoError(t, err)
	art, err = l.Admit(t.Context(), admission.Action{ID: "e", Actor: "bob", Asset: "gold", Cost: 100, Tile: 7})
	require.NoError(t, err)
	require.Equal(t, admission.ReasonBalance, art.Reason)
	_, err = l.Resolve(t.Context(), open[0].ActionID, stream.Applied)
	require.NoError(t, err)
	_, err = l.Settle(t.Context(), open[1].ActionID, admission.Finding{Never: true})
	require.NoError(t, err)
}
