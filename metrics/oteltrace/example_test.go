package oteltrace_test

import (
	"fmt"
	"slices"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/metrics/oteltrace"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// A world whose servers and client record every trace. In production each process has a provider of its own, with
// sdktrace.WithBatcher and the exporter of your choice.
func Example() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(oteltrace.IDs{}), sdktrace.WithSyncer(spans))
	t, err := oteltrace.New(provider, &oteltrace.Config{Actions: 1, Batches: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	var w world
	oteltrace.Attach(t, &w.gateway)
	oteltrace.Attach(t, &w.tiles)
	oteltrace.Attach(t, &w.bridge)
	oteltrace.Attach(t, &w.relay)
	oteltrace.Attach(t, &w.client)
	w.play("buy-7")

	print(spans.GetSpans())
	// Output:
	// action
	//   ledger.admit
	//   ledger.settle
	//   tile
	//     tile.commit linked to batch
	//     tile.resolve
	//     tile.wait
	// batch linked to action
	//   bridge.publish
	//   client.apply
	//   relay.queue
}

// world is the settings of the servers, and of a client that watches.
type world struct {
	gateway tilefence.GatewayServerConfig
	tiles   tilefence.TileServerConfig
	bridge  tilefence.BridgeServerConfig
	relay   tilefence.RelayServerConfig
	client  relayclient.Config
}

// print shows the traces that a batch with an action is part of, as trees.
func print(all tracetest.SpanStubs) {
	names, below := map[trace.SpanID]string{}, map[trace.SpanID]tracetest.SpanStubs{}
	slices.SortFunc(all, func(a, b tracetest.SpanStub) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range all {
		names[s.SpanContext.SpanID()] = s.Name
		below[s.Parent.SpanID()] = append(below[s.Parent.SpanID()], s)
	}
	var show func(s tracetest.SpanStub, indent string)
	show = func(s tracetest.SpanStub, indent string) {
		line := indent + s.Name
		for _, l := range s.Links {
			line += " linked to " + names[l.SpanContext.SpanID()]
		}
		fmt.Println(line)
		for _, child := range below[s.SpanContext.SpanID()] {
			show(child, indent+"  ")
		}
	}
	for _, s := range below[trace.SpanID{}] {
		if s.Name == "action" || len(s.Links) > 0 {
			show(s, "")
		}
	}
}
