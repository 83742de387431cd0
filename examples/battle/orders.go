package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/tilefence/tilefence/internal/figures"
)

// cut is what this process has counted, and the histograms since the last cut, so that a harness can leave out a
// warm-up.
func (p *plan) cut() (figures.Set, error) {
	m := p.meters
	r := newReport(p)
	err := r.fill(p)
	text, textErr := json.Marshal(r)
	var flat map[string]any
	if err = errors.Join(err, textErr, json.Unmarshal(text, &flat)); err != nil {
		return figures.Set{}, err
	}
	return figures.Set{Counters: figures.Flatten(flat), Histograms: map[string]figures.Sample{
		"commit": m.commitLatency.Cut(), "commit_to_client": m.players.Latency.Cut(), "lateness": m.lateness.Cut(),
		"tick": m.tickLatency.Cut(), "encode": m.encodeLatency.Cut(), "order": m.players.OrderLatency.Cut(),
	}}, nil
}

// takeOrders obeys the orders of standard input beside what the process does; an order that it cannot obey ends it.
// The end of the orders ends the process as SIGTERM does: the process that gave them is gone.
func (p *plan) takeOrders(ctx context.Context, in io.Reader, out io.Writer) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if err := figures.Obey(in, out, p.cut); err != nil {
			p.fail(err)
		}
		cancel()
	}()
	return ctx
}
