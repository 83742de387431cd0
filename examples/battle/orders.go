package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/tilefence/tilefence/internal/figures"
)

// obey answers each line "cut" on in with a line of figures: those of this process, as a figures.Set in JSON. The
// histograms begin anew, so that a harness can leave out a warm-up. It ends when in does.
func (p *plan) obey(in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if lines.Text() != "cut" {
			return errors.New("orders: there is no order " + lines.Text() + ", only cut")
		}
		set, err := p.cut()
		if err == nil {
			err = json.NewEncoder(out).Encode(set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut is what this process has counted, and the histograms since the last cut.
func (p *plan) cut() (figures.Set, error) {
	m := p.meters
	r := newReport(p)
	r.fill(p)
	text, err := json.Marshal(r)
	var flat map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &flat)); err != nil {
		return figures.Set{}, err
	}
	return figures.Set{Counters: figures.Flatten(flat), Histograms: map[string]figures.Sample{
		"commit": m.commitLatency.Cut(), "commit_to_client": m.clientLatency.Cut(), "lateness": m.lateness.Cut(),
		"tick": m.tickLatency.Cut(), "encode": m.encodeLatency.Cut(), "order": m.orderLatency.Cut(),
	}}, nil
}

// takeOrders obeys the orders of standard input beside what the process does; an order that it cannot obey ends it.
// The end of the orders ends the process as SIGTERM does: the process that gave them is gone.
func (p *plan) takeOrders(ctx context.Context, in io.Reader, out io.Writer) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if err := p.obey(in, out); err != nil {
			p.fail(err)
		}
		cancel()
	}()
	return ctx
}
