package oteltrace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"github.com/tilefence/tilefence/fence"
)

// IDs generates the IDs of spans: those of the first spans of this package's traces are digests, all others random.
// Give it to the provider of the SDK by WithIDGenerator. The zero value is ready.
type IDs struct{}

// NewIDs implements IDGenerator of the SDK.
func (g IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if of, ok := ctx.Value(firstSpan{}).(origin); ok {
		return of.trace, of.span
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], 1+rand.Uint64N(math.MaxUint64)) // not zero
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements IDGenerator of the SDK.
func (IDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], 1+rand.Uint64N(math.MaxUint64))
	return id
}

// origin is the first span of a trace.
type origin struct {
	trace trace.TraceID
	span  trace.SpanID
}

// firstSpan is the key of an origin in the context with which the first span is made.
type firstSpan struct{}

// ofAction is the trace of an action.
func ofAction(id string) origin { return digest(append([]byte("tilefence action\x00"), id...)) }

// ofBatch is the trace of a batch.
func ofBatch(tile fence.TileID, at fence.Position) origin {
	b := []byte("tilefence batch\x00")
	for _, n := range [...]uint64{uint64(tile), uint64(at.Epoch), uint64(at.Seq), uint64(at.Chain)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return digest(b)
}

func digest(of []byte) (o origin) {
	sum := sha256.Sum256(of)
	copy(o.trace[:], sum[:])
	copy(o.span[:], sum[len(o.trace):])
	return o
}

// sampled reports whether a part of all traces, from 0 to 1, has this one.
func (o origin) sampled(part float64) bool {
	return part >= 1 || float64(binary.BigEndian.Uint64(o.trace[8:])) < part*math.MaxUint64
}

// context is the first span as other processes know it.
func (o origin) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: o.trace, SpanID: o.span,
		TraceFlags: trace.FlagsSampled, Remote: true})
}

// first is the context with which the first span is made.
func (o origin) first() context.Context {
	return context.WithValue(context.Background(), firstSpan{}, o)
}

// below is the context with which spans below the first are made.
func (o origin) below() context.Context {
	return trace.ContextWithRemoteSpanContext(context.Background(), o.context())
}
