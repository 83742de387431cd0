package oteltrace_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/metrics/oteltrace"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// process is one process's part in traces: a provider and an exporter of its own.
func process(t *testing.T, cfg *oteltrace.Config) (*oteltrace.Traces, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(oteltrace.IDs{}), sdktrace.WithSyncer(exporter))
	traces, err := oteltrace.New(provider, cfg)
	require.NoError(t, err)
	return traces, exporter
}

// named is the one span of a name.
func named(t *testing.T, all tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStubs
	for _, s := range all {
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, "%s", name)
	return found[0]
}

func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// TestProcessesAgreeOnAnActionsSpans gives each server a provider of its own, and puts together what they export.
func TestProcessesAgreeOnAnActionsSpans(t *testing.T) {
	all := &oteltrace.Config{Actions: 1, Batches: 1}
	var w world
	gateway, gatewaySpans := process(t, all)
	tiles, tileSpans := process(t, all)
	forward, bridgeSpans := process(t, all)
	relay, relaySpans := process(t, all)
	client, clientSpans := process(t, all)
	oteltrace.Attach(gateway, &w.gateway)
	oteltrace.Attach(tiles, &w.tiles)
	oteltrace.Attach(forward, &w.bridge)
	oteltrace.Attach(relay, &w.relay)
	oteltrace.Attach(client, &w.client)
	w.play("buy-7")

	root := named(t, gatewaySpans.GetSpans(), "action")
	id := root.SpanContext.TraceID()
	assert.False(t, root.Parent.IsValid())
	assert.Equal(t, trace.SpanKindServer, root.SpanKind)
	assert.Equal(t, map[attribute.Key]string{"tilefence.action": "buy-7", "tilefence.tile": square.String(),
		"tilefence.outcome": "applied", "tilefence.replayed": "false", "tilefence.redirects": "0"}, attributes(root))
	below := func(child, parent tracetest.SpanStub) {
		t.Helper()
		assert.Equal(t, parent.SpanContext.TraceID(), child.SpanContext.TraceID(), "%s", child.Name)
		assert.Equal(t, parent.SpanContext.SpanID(), child.Parent.SpanID(), "%s", child.Name)
		assert.False(t, child.EndTime.Before(child.StartTime), "%s", child.Name)
	}
	for _, name := range []string{"ledger.admit", "ledger.settle"} {
		below(named(t, gatewaySpans.GetSpans(), name), root)
	}
	at := named(t, tileSpans.GetSpans(), "tile")
	below(at, root)
	assert.True(t, at.Parent.IsRemote())
	for _, name := range []string{"tile.wait", "tile.resolve", "tile.commit"} {
		below(named(t, tileSpans.GetSpans(), name), at)
	}

	commit := named(t, tileSpans.GetSpans(), "tile.commit")
	require.Len(t, commit.Links, 1)
	var batch tracetest.SpanStub
	for _, s := range tileSpans.GetSpans() {
		if s.SpanContext.SpanID() == commit.Links[0].SpanContext.SpanID() {
			batch = s
		}
	}
	require.Equal(t, "batch", batch.Name)
	require.Len(t, batch.Links, 1)
	assert.Equal(t, root.SpanContext.SpanID(), batch.Links[0].SpanContext.SpanID())
	assert.Equal(t, id, batch.Links[0].SpanContext.TraceID())
	assert.Equal(t, "1", attributes(batch)["tilefence.actions"])
	assert.Equal(t, "checkpointed", attributes(commit)["tilefence.durability"])
	of := func(spans *tracetest.InMemoryExporter) (mine tracetest.SpanStubs) {
		for _, s := range spans.GetSpans() {
			if s.SpanContext.TraceID() == batch.SpanContext.TraceID() {
				mine = append(mine, s)
			}
		}
		return mine
	}
	for name, spans := range map[string]*tracetest.InMemoryExporter{"bridge.publish": bridgeSpans,
		"relay.queue": relaySpans, "client.apply": clientSpans} {
		s := named(t, of(spans), name)
		below(s, batch)
		for _, key := range []attribute.Key{"tilefence.tile", "tilefence.epoch", "tilefence.seq"} {
			assert.NotEmpty(t, attributes(s)[key], "%s", key)
			assert.Equal(t, attributes(commit)[key], attributes(s)[key], "%s of %s", key, name)
		}
	}
	assert.Equal(t, "1", attributes(named(t, of(relaySpans), "relay.queue"))["tilefence.clients"])
}

// TestRepetitionsAreBelowTheAction: an action has one first span, whichever gateways it is repeated at.
func TestRepetitionsAreBelowTheAction(t *testing.T) {
	traces, spans := process(t, &oteltrace.Config{Actions: 1})
	var w world
	oteltrace.Attach(traces, &w.gateway)
	w.play("buy-8", "buy-8")
	root, repeat := named(t, spans.GetSpans(), "action"), named(t, spans.GetSpans(), "action.attempt")
	assert.Equal(t, root.SpanContext.SpanID(), repeat.Parent.SpanID())
	assert.Equal(t, "true", attributes(repeat)["tilefence.replayed"])
}

// TestFailuresAreShown: an action that was refused before it was admitted has no first span, which a later call has.
func TestFailuresAreShown(t *testing.T) {
	traces, spans := process(t, &oteltrace.Config{Actions: 1})
	var h admission.Hooks
	oteltrace.Attach(traces, &h)
	h.Done(admission.DoneInfo{Kind: admission.Act, ActionID: "a", Err: fence.ErrInvalidArgument})
	h.Done(admission.DoneInfo{Kind: admission.Move})
	require.Len(t, spans.GetSpans(), 1)
	s := named(t, spans.GetSpans(), "action.attempt")
	assert.Equal(t, codes.Error, s.Status.Code)
	assert.Equal(t, fence.ErrInvalidArgument.Error(), s.Status.Description)
}

// TestSamplingAgrees: of many traces two processes record the same ones, in about the part that was asked for.
func TestSamplingAgrees(t *testing.T) {
	cfg := &oteltrace.Config{Actions: 0.1, Batches: 0.25}
	gateway, gatewaySpans := process(t, cfg)
	owner, ownerSpans := process(t, cfg)
	forward, bridgeSpans := process(t, cfg)
	var at admission.Hooks
	var of tile.Hooks
	var publish bridge.Hooks
	oteltrace.Attach(gateway, &at)
	oteltrace.Attach(owner, &of)
	oteltrace.Attach(forward, &publish)
	const n = 4000
	var positions []fence.Position
	for i := range n {
		id, position := fmt.Sprint("action-", i), fence.Position{Epoch: 1, Seq: fence.Seq(i + 1)}
		positions = append(positions, position)
		at.Done(admission.DoneInfo{Kind: admission.Act, ActionID: id, First: true})
		of.Committed(tile.CommitInfo{Tile: square, Position: position, Durability: tile.Checkpointed,
			Actions: []tile.ActionInfo{{ActionID: id, Outcome: stream.Applied, Came: time.Now()}}})
	}
	publish.Published(bridge.PublishedInfo{Tile: square, Last: positions[n-1], Batches: n, Earlier: positions[:n-1]})

	traced := func(spans *tracetest.InMemoryExporter, name string) map[trace.TraceID]bool {
		all := map[trace.TraceID]bool{}
		for _, s := range spans.GetSpans() {
			if s.Name == name {
				all[s.SpanContext.TraceID()] = true
			}
		}
		return all
	}
	actions, batches := traced(gatewaySpans, "action"), traced(ownerSpans, "batch")
	assert.Equal(t, actions, traced(ownerSpans, "tile"))
	assert.Equal(t, batches, traced(bridgeSpans, "bridge.publish"))
	assert.InDelta(t, 0.1*n, len(actions), 100)
	assert.InDelta(t, 0.25*n, len(batches), 150)
	for _, s := range ownerSpans.GetSpans() {
		for _, l := range s.Links { // none leads to what is not recorded
			assert.True(t, actions[l.SpanContext.TraceID()] || batches[l.SpanContext.TraceID()])
		}
	}
}

func TestNewRefuses(t *testing.T) {
	right := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(oteltrace.IDs{}))
	for field, try := range map[string]func() (*oteltrace.Traces, error){
		"provider": func() (*oteltrace.Traces, error) { return oteltrace.New(sdktrace.NewTracerProvider(), nil) },
		"Actions": func() (*oteltrace.Traces, error) {
			return oteltrace.New(right, &oteltrace.Config{Actions: 1.5})
		},
		"Batches": func() (*oteltrace.Traces, error) {
			return oteltrace.New(right, &oteltrace.Config{Batches: math.NaN()})
		},
	} {
		_, err := try()
		var wrong *fence.ArgumentError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
	}
	_, err := oteltrace.New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = oteltrace.New(right, nil)
	require.NoError(t, err)
	_, err = oteltrace.New(noop.NewTracerProvider(), nil) // traces are off
	require.NoError(t, err)
}

// TestOtherSpansHaveIDs: the rest of a program may use the same provider.
func TestOtherSpansHaveIDs(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(oteltrace.IDs{}))
	seen := map[trace.TraceID]bool{}
	for range 100 {
		ctx, span := provider.Tracer("game").Start(t.Context(), "own")
		_, child := provider.Tracer("game").Start(ctx, "child")
		assert.True(t, span.SpanContext().IsValid())
		assert.True(t, child.SpanContext().IsValid())
		assert.NotEqual(t, span.SpanContext().SpanID(), child.SpanContext().SpanID())
		seen[span.SpanContext().TraceID()] = true
	}
	assert.Len(t, seen, 100)
}

// BenchmarkNotRecorded is what a commit with one action costs that is not recorded.
func BenchmarkNotRecorded(b *testing.B) {
	traces, err := oteltrace.New(sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(oteltrace.IDs{})),
		&oteltrace.Config{Actions: 1e-12, Batches: 1e-12})
	require.NoError(b, err)
	var h tile.Hooks
	oteltrace.Attach(traces, &h)
	info := tile.CommitInfo{Tile: square, Actions: []tile.ActionInfo{{ActionID: "buy-7"}}}
	b.ReportAllocs()
	for b.Loop() {
		h.Committed(info)
	}
}
