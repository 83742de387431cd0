package oteltrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config says what is recorded. Nil and the zero value are valid. All processes must have the same.
type Config struct {
	// Actions is the part of all actions whose traces are recorded, above 0, at most 1. Zero means 0.01.
	Actions float64
	// Batches is likewise the part of all batches. Zero means 0.01. With 1, each action that is recorded can be
	// followed to its clients, for one span of each batch in each process that handles it.
	Batches float64
}

const defaultPart = 0.01

// Traces make spans of what hooks report. Create one with New.
type Traces struct {
	tracer           trace.Tracer
	actions, batches float64
}

// scope is the name under which providers know this package.
const scope = "github.com/tilefence/tilefence/metrics/oteltrace"

// New returns traces that a provider takes: one of the SDK that was made with WithIDGenerator(IDs{}), or one that
// records nothing. Errors: a *fence.ArgumentError.
func New(provider trace.TracerProvider, cfg *Config) (*Traces, error) {
	c := setting.Of(cfg)
	for _, part := range []struct {
		field string
		value *float64
	}{{"Actions", &c.Actions}, {"Batches", &c.Batches}} {
		if *part.value == 0 {
			*part.value = defaultPart
		}
		if !(*part.value > 0 && *part.value <= 1) { // NaN is neither
			return nil, &fence.ArgumentError{Field: part.field, Value: *part.value,
				Want: "above 0 and at most 1, or zero for 0.01"}
		}
	}
	if provider == nil {
		return nil, &fence.ArgumentError{Field: "provider", Value: nil, Want: "a TracerProvider"}
	}
	tracer := provider.Tracer(scope)
	// A span that never ends is never exported.
	probe := digest(nil)
	_, span := tracer.Start(probe.first(), "probe")
	if got := span.SpanContext(); got.IsValid() && (got.TraceID() != probe.trace || got.SpanID() != probe.span) {
		return nil, &fence.ArgumentError{Field: "provider", Value: "without IDs",
			Want: "one that was made with sdktrace.WithIDGenerator(oteltrace.IDs{})"}
	}
	return &Traces{tracer: tracer, actions: c.Actions, batches: c.Batches}, nil
}

// span records what took place from then until now, and returns the context for spans below it. The span has ended.
func (t *Traces) span(ctx context.Context, name string, from, to time.Time, o options) context.Context {
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithSpanKind(o.kind),
		trace.WithAttributes(o.about...), trace.WithLinks(o.links...))
	if o.err != nil {
		span.SetStatus(codes.Error, o.err.Error())
	}
	span.End(trace.WithTimestamp(to))
	return ctx
}

// options are what a span has beside its name and times.
type options struct {
	kind  trace.SpanKind
	about []attribute.KeyValue
	links []trace.Link
	err   error
}

// Keys of attributes. Tiles, outcomes, kinds and durabilities are in their text form.
const (
	keyAction     = attribute.Key("tilefence.action")
	keyTile       = attribute.Key("tilefence.tile")
	keyOutcome    = attribute.Key("tilefence.outcome")
	keyReason     = attribute.Key("tilefence.reason")
	keyDuplicate  = attribute.Key("tilefence.duplicate")
	keyReplayed   = attribute.Key("tilefence.replayed")
	keyRedirects  = attribute.Key("tilefence.redirects")
	keyRefunded   = attribute.Key("tilefence.refunded")
	keyEpoch      = attribute.Key("tilefence.epoch")
	keySeq        = attribute.Key("tilefence.seq")
	keyTick       = attribute.Key("tilefence.tick")
	keyEvents     = attribute.Key("tilefence.events")
	keyActions    = attribute.Key("tilefence.actions")
	keyBytes      = attribute.Key("tilefence.bytes")
	keyDurability = attribute.Key("tilefence.durability")
	keyClients    = attribute.Key("tilefence.clients")
)

// place is what names a batch.
func place(tile fence.TileID, at fence.Position) []attribute.KeyValue {
	return []attribute.KeyValue{keyTile.String(tile.String()), keyEpoch.Int64(int64(at.Epoch)),
		keySeq.Int64(int64(at.Seq))}
}
