package oteltrace

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/tile"
)

// Traceable is what traces can be attached to: the hooks of a part, or the configuration of a server or a client, which
// has those of its parts.
type Traceable interface {
	tile.Hooks | bridge.Hooks | relay.Hooks | admission.Hooks | tilefence.TileServerConfig |
		tilefence.GatewayServerConfig | tilefence.BridgeServerConfig | tilefence.RelayServerConfig | relayclient.Config
}

// Attach attaches traces to hooks; what they call already is still called. The ledger of a gateway has the gateway's
// hooks. A Host.Configure of a tile server that replaces hooks takes them off again. A client's span is as long as the
// call of Config.Frame.
func Attach[H Traceable](t *Traces, hooks *H) {
	switch h := any(hooks).(type) {
	case *tile.Hooks:
		t.tile(h)
	case *bridge.Hooks:
		t.bridge(h)
	case *relay.Hooks:
		t.relay(h)
	case *admission.Hooks:
		t.admission(h)
	case *tilefence.TileServerConfig:
		t.tile(&h.Host.Tile.Hooks)
	case *tilefence.GatewayServerConfig:
		t.admission(&h.Gateway.Hooks)
	case *tilefence.BridgeServerConfig:
		t.bridge(&h.Bridge.Hooks)
	case *tilefence.RelayServerConfig:
		t.relay(&h.Relay.Hooks)
	case *relayclient.Config:
		t.client(h)
	}
}

// admission attaches traces to the hooks of a gateway, and of the ledger that has the same.
func (t *Traces) admission(h *admission.Hooks) {
	hook.Attach(&h.Admitted, func(i admission.AdmitInfo) {
		about := []attribute.KeyValue{keyDuplicate.Bool(i.Duplicate)}
		if i.Reason != 0 {
			about = append(about, keyReason.String(i.Reason.String()))
		}
		t.ledger("ledger.admit", i.ActionID, i.Took, options{about: about, err: i.Err})
	})
	hook.Attach(&h.Settled, func(i admission.SettleInfo) {
		about := []attribute.KeyValue{keyOutcome.String(i.Outcome.String()), keyRefunded.Bool(i.Refunded)}
		t.ledger("ledger.settle", i.ActionID, i.Took, options{about: about, err: i.Err})
	})
	hook.Attach(&h.Done, func(i admission.DoneInfo) {
		of := ofAction(i.ActionID)
		if i.ActionID == "" || !of.sampled(t.actions) {
			return
		}
		name, ctx := "action.attempt", of.below()
		if i.First {
			name, ctx = "action", of.first()
		}
		now := time.Now()
		t.span(ctx, name, now.Add(-i.Took), now, options{kind: trace.SpanKindServer, err: i.Err,
			about: []attribute.KeyValue{keyAction.String(i.ActionID), keyTile.String(i.Tile.String()),
				keyOutcome.String(i.Outcome.String()), keyReplayed.Bool(i.Replayed), keyRedirects.Int(i.Redirects)}})
	})
}

// ledger records a call of the ledger.
func (t *Traces) ledger(name, action string, took time.Duration, o options) {
	of := ofAction(action)
	if !of.sampled(t.actions) {
		return
	}
	now := time.Now()
	o.kind = trace.SpanKindClient
	t.span(of.below(), name, now.Add(-took), now, o)
}

// tile attaches traces to the hooks of tiles.
func (t *Traces) tile(h *tile.Hooks) { hook.Attach(&h.Committed, t.committed) }

// maxLinks is how many links a span of the SDK has by default.
const maxLinks = 128

func (t *Traces) committed(i tile.CommitInfo) {
	if i.Refresh {
		return
	}
	end := time.Now()
	formed := end.Add(-i.Took)
	begun := formed.Add(-i.Resolve)
	batch := ofBatch(i.Tile, i.Position)
	recorded := batch.sampled(t.batches)
	var links []trace.Link
	for _, a := range i.Actions {
		of := ofAction(a.ActionID)
		if !of.sampled(t.actions) {
			continue
		}
		if len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: of.context()})
		}
		outcome := keyOutcome.String(a.Outcome.String())
		ctx := t.span(of.below(), "tile", a.Came, end, options{kind: trace.SpanKindServer,
			about: []attribute.KeyValue{keyAction.String(a.ActionID), keyTile.String(i.Tile.String()), outcome}})
		t.span(ctx, "tile.wait", a.Came, begun, options{})
		t.span(ctx, "tile.resolve", begun, formed,
			options{about: []attribute.KeyValue{keyTick.Int64(int64(i.Tick)), outcome}})
		commit := options{kind: trace.SpanKindClient,
			about: append(place(i.Tile, i.Position), keyDurability.String(i.Durability.String()))}
		if recorded {
			commit.links = []trace.Link{{SpanContext: batch.context()}}
		}
		t.span(ctx, "tile.commit", formed, end, commit)
	}
	if recorded {
		t.span(batch.first(), "batch", begun, end, options{kind: trace.SpanKindProducer, links: links,
			about: append(place(i.Tile, i.Position), keyTick.Int64(int64(i.Tick)), keyEvents.Int(i.Events),
				keyActions.Int(len(i.Actions)), keyBytes.Int(i.Bytes), keyDurability.String(i.Durability.String()))})
	}
}

// bridge attaches traces to the hooks of a bridge.
func (t *Traces) bridge(h *bridge.Hooks) {
	hook.Attach(&h.Published, func(i bridge.PublishedInfo) {
		// From the commit of the first batch, by the owner's clock.
		for _, at := range i.Earlier {
			t.batch("bridge.publish", i.Tile, at, i.Lag, options{kind: trace.SpanKindProducer})
		}
		t.batch("bridge.publish", i.Tile, i.Last, i.Lag, options{kind: trace.SpanKindProducer})
	})
}

// relay attaches traces to the hooks of a relay.
func (t *Traces) relay(h *relay.Hooks) {
	hook.Attach(&h.Queued, func(i relay.QueuedInfo) {
		t.batch("relay.queue", i.Tile, i.Position, i.Waited, options{kind: trace.SpanKindConsumer,
			about: []attribute.KeyValue{keyClients.Int(i.Clients)}})
	})
}

// batch records what a process did with a batch, for as long as took, until now.
func (t *Traces) batch(name string, tile fence.TileID, at fence.Position, took time.Duration, o options) {
	of := ofBatch(tile, at)
	if !of.sampled(t.batches) {
		return
	}
	now := time.Now()
	o.about = append(o.about, place(tile, at)...)
	t.span(of.below(), name, now.Add(-took), now, o)
}

// client attaches traces to what a client is given: a span is as long as the call of cfg.Frame.
func (t *Traces) client(cfg *relayclient.Config) {
	own := cfg.Frame
	cfg.Frame = func(e fence.Entry) {
		began := time.Now()
		if own != nil {
			own(e)
		}
		t.batch("client.apply", e.Tile, e.Position, time.Since(began), options{kind: trace.SpanKindConsumer})
	}
}
