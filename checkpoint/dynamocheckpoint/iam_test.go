package dynamocheckpoint_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
)

// policy refuses what one of deploy/iam's policies does not allow, as IAM would, and notes what was used.
type policy struct {
	mu      sync.Mutex
	allowed map[string]bool // whether it was used
}

func readPolicy(t *testing.T, actor string) *policy {
	t.Helper()
	text, err := os.ReadFile("../../deploy/iam/" + actor + ".json")
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
	p := &policy{allowed: map[string]bool{}}
	for _, s := range document.Statement {
		require.Equal(t, "Allow", s.Effect)
		require.Equal(t, "arn:aws:dynamodb:REGION:ACCOUNT:table/tilefence-checkpoints", s.Resource)
		for _, a := range s.Action {
			p.allowed[a] = false
		}
	}
	return p
}

func (p *policy) without(action string) *policy {
	delete(p.allowed, action)
	return p
}

func (p *policy) fault(_ context.Context, input any, send func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range actionsOf(input) {
		if _, ok := p.allowed[a]; !ok {
			return &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized to perform: " + a}
		}
		p.allowed[a] = true
	}
	return send()
}

// actionsOf are the actions IAM asks for: the operation's or, for a transaction, its items'.
func actionsOf(input any) []string {
	if in, ok := input.(*dynamodb.TransactWriteItemsInput); ok {
		actions := map[string]bool{}
		for _, item := range in.TransactItems {
			actions["dynamodb:PutItem"] = actions["dynamodb:PutItem"] || item.Put != nil
			actions["dynamodb:UpdateItem"] = actions["dynamodb:UpdateItem"] || item.Update != nil
			actions["dynamodb:DeleteItem"] = actions["dynamodb:DeleteItem"] || item.Delete != nil
			actions["dynamodb:ConditionCheckItem"] = actions["dynamodb:ConditionCheckItem"] ||
				item.ConditionCheck != nil
		}
		maps.DeleteFunc(actions, func(_ string, used bool) bool { return !used })
		return slices.Collect(maps.Keys(actions))
	}
	name := reflect.TypeOf(input).Elem().Name()
	return []string{"dynamodb:" + strings.TrimSuffix(name, "Input")}
}

// TestPolicies runs every actor under its policy of deploy/iam: nothing it does is refused, and nothing that it
// is allowed goes unused.
func TestPolicies(t *testing.T) {
	w := newTiles(t, 1)
	for actor, work := range map[string]func(t *testing.T, st *dynamocheckpoint.Store){
		"checkpointer": func(t *testing.T, st *dynamocheckpoint.Store) {
			c, err := checkpoint.New(w.log, st, st, w.ids(), nil)
			require.NoError(t, err)
			for range 3 {
				w.play(tile)
				require.NoError(t, c.CheckpointNow(t.Context(), tile))
			}
			require.EqualValues(t, 3, c.Stats().Truncated)
		},
		"tile": func(t *testing.T, st *dynamocheckpoint.Store) {
			_, _, err := checkpoint.Restore(t.Context(), st, tile)
			require.NoError(t, err)
			require.NoError(t, st.Seal(t.Context(), tile, 8))
			tail, err := st.Tail(t.Context(), tile, 0)
			require.NoError(t, err)
			require.NotEmpty(t, tail)
			base := snapshot(8, 500, 3500)
			require.NoError(t, st.Base(t.Context(), tile, base))
			require.NoError(t, st.Append(t.Context(), tile, journalEntry(8, base.Position, 2500)))
			require.NoError(t, st.Base(t.Context(), tile, snapshot(8, 501, 3500)))
		},
		"reader": func(t *testing.T, st *dynamocheckpoint.Store) {
			_, _, err := checkpoint.Restore(t.Context(), st, tile)
			require.NoError(t, err)
			require.Error(t, st.Seal(t.Context(), tile, 9))
			require.Error(t, st.Append(t.Context(), tile, journalEntry(9, fence.Position{}, 10)))
			require.Error(t, st.Put(t.Context(), tile, snapshot(9, 900, 10)))
			require.Error(t, st.Base(t.Context(), tile, snapshot(9, 900, 10)))
		},
		"viewer": func(t *testing.T, st *dynamocheckpoint.Store) {
			view(t, st)
			require.Error(t, st.Truncate(t.Context(), tile, 1000))
		},
		"operator": func(t *testing.T, st *dynamocheckpoint.Store) {
			view(t, st)
			_, err := st.Collect(t.Context(), tile)
			require.NoError(t, err)
			require.Error(t, st.Put(t.Context(), tile, snapshot(9, 900, 10)))
		},
	} {
		t.Run(actor, func(t *testing.T) {
			table := newTable(t)
			everything := newSmall(t, table, nil)
			require.NoError(t, everything.Seal(t.Context(), tile, 7))
			require.NoError(t, everything.Append(t.Context(), tile, journalEntry(7, fence.Position{}, 2500)))
			if actor != "checkpointer" {
				require.NoError(t, everything.Put(t.Context(), tile, snapshot(1, 10, 3500)))
				killed := newSmall(t, table, killAt(isManifest))
				require.Error(t, killed.Put(t.Context(), tile, snapshot(1, 11, 3500)))
				untidy := newSmall(t, table, readPolicy(t, "checkpointer").without("dynamodb:DeleteItem").fault)
				require.NoError(t, untidy.Put(t.Context(), tile, snapshot(1, 12, 3500)))
			}
			p := readPolicy(t, actor)
			work(t, newSmall(t, table, p.fault))
			for action, used := range p.allowed {
				assert.True(t, used, "%s is allowed and not needed", action)
			}
		})
	}
}

func view(t *testing.T, st *dynamocheckpoint.Store) {
	t.Helper()
	for _, err := range st.List(t.Context()) {
		require.NoError(t, err)
	}
	_, found, err := st.Get(t.Context(), tile)
	require.NoError(t, err)
	require.True(t, found)
	_, err = st.JournalHead(t.Context(), tile)
	require.NoError(t, err)
}
