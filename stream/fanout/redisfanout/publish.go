package redisfanout

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// PublishError is a Publish of which some messages, or a PublishHints of which some hints, were not handed
// over for sure.
type PublishError struct {
	what  string  // "messages" or "hints"
	errs  []error // by message; nil: handed over
	first *fence.StoreError
	count int
}

var _ fanout.PartialError = (*PublishError)(nil)

// Handed implements fanout.PartialError.
func (e *PublishError) Handed(i int) bool { return i >= 0 && i < len(e.errs) && e.errs[i] == nil }

func (e *PublishError) Error() string {
	return fmt.Sprintf("%d of %d %s not published, the first: %v", e.count, len(e.errs), e.what, e.first)
}

// Unwrap gives the first failure, a *fence.StoreError: with ErrNotApplied if the node refused the message
// or could not be reached, with ErrUnknownOutcome if it may have been sent.
func (e *PublishError) Unwrap() error { return e.first }

// Publish implements fanout.Publisher: one pipeline a node, all nodes at once, tried once. A
// *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already; nothing is sent
// then. Otherwise, if not all messages were handed over, a *PublishError.
func (f *Fanout) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	for i := range messages {
		if err := hub.ValidTile(messages[i].Tile); err != nil {
			return 0, err
		}
	}
	if ctx.Err() != nil {
		var tile fence.TileID
		if len(messages) > 0 {
			tile = messages[0].Tile
		}
		return 0, &fence.StoreError{Op: "publish", Tile: tile, Outcome: fence.ErrNotApplied, Err: context.Cause(ctx)}
	}
	if len(messages) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	f.nodes.refresh(ctx)
	errs := make([]error, len(messages))
	f.send(ctx, f.group(ctx, messages, errs), errs)
	return f.settle(ctx, messages, errs)
}

// pipeline is what one node gets of a call.
type pipeline struct {
	node     *redis.Client
	pipe     redis.Pipeliner
	messages []int // the message of each command
}

// group queues the messages by node. A message whose node is not known gets an error.
func (f *Fanout) group(ctx context.Context, messages []fanout.Message, errs []error) pipelines {
	var all pipelines
	// Messages of one tile usually come together: name and find its channel once.
	var (
		tile    fence.TileID
		channel string
		node    *redis.Client
		err     error
	)
	for i := range messages {
		if messages[i].Tile != tile {
			tile = messages[i].Tile
			channel = fanout.Channel(tile)
			node, err = f.nodes.master(ctx, channel)
		}
		if err != nil {
			errs[i] = &unsentError{err}
			continue
		}
		p := all.of(node)
		p.pipe.SPublish(ctx, channel, messages[i].Data)
		p.messages = append(p.messages, i)
	}
	return all
}

// pipelines are those of one call.
type pipelines []*pipeline

// of returns the node's pipeline, a new one if it has none. There are few nodes.
func (all *pipelines) of(node *redis.Client) *pipeline {
	for _, p := range *all {
		if p.node == node {
			return p
		}
	}
	p := &pipeline{node: node, pipe: node.Pipeline()}
	*all = append(*all, p)
	return p
}

func (f *Fanout) send(ctx context.Context, all pipelines, errs []error) {
	exec := func(p *pipeline) {
		cmds, _ := p.pipe.Exec(ctx) // the error is that of a command
		for k, cmd := range cmds {
			errs[p.messages[k]] = cmd.Err()
		}
	}
	if len(all) == 1 {
		exec(all[0])
		return
	}
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { exec(p) })
	}
	wg.Wait()
}

func (f *Fanout) settle(ctx context.Context, messages []fanout.Message, errs []error) (int, error) {
	sent, failed := len(messages), 0
	for i, err := range errs {
		if err != nil {
			sent = min(sent, i)
			failed++
		}
	}
	f.published.Add(uint64(len(messages) - failed))
	if failed == 0 {
		return sent, nil
	}
	f.unpublished.Add(uint64(failed))
	f.nodes.reload(ctx)
	return sent, &PublishError{what: "messages", errs: errs, count: failed, first: &fence.StoreError{
		Op: "publish", Tile: messages[sent].Tile, Outcome: outcomeOf(errs[sent]), Err: errs[sent]}}
}

// unsentError is a message that was never put into a pipeline.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// outcomeOf classifies a command's failure; what is not known to be unsent may have been sent.
func outcomeOf(err error) error {
	var unsent *unsentError
	var refused redis.Error
	var dial *net.OpError
	if errors.As(err, &unsent) || errors.As(err, &refused) || (errors.As(err, &dial) && dial.Op == "dial") {
		return fence.ErrNotApplied
	}
	return fence.ErrUnknownOutcome
}
