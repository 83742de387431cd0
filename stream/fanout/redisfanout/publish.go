package redisfanout

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Publish implements fanout.Publisher: one pipeline a node, all nodes at once, tried once. A
// *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already; nothing is sent
// then. Otherwise, if not all messages were handed over, a *fanout.PublishError.
func (f *Fanout) Publish(ctx context.Context, messages []fanout.Message) (int, error) {
	channel, err := hub.Begin(ctx, messages, f.channel)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	errs := f.post(ctx, len(messages), func(i int) (string, []byte) { return channel(i), messages[i].Data })
	return f.local.Published(messages, errs, refused)
}

// PublishHints implements fanout.HintPublisher: one message a group, one pipeline a node, all nodes at
// once, tried once. A *fence.ArgumentError if a tile is zero, a *fence.StoreError if ctx has ended already;
// nothing is sent then. Otherwise, if not all hints were handed over, a *fanout.PublishError.
func (f *Fanout) PublishHints(ctx context.Context, tiles []fence.TileID) error {
	messages, of, err := hub.HintMessages(tiles)
	if err != nil {
		return err
	}
	if err := guard.Ended(ctx, "publish hints", 0); err != nil {
		return err
	}
	errs := f.post(ctx, len(messages), func(i int) (string, []byte) {
		return f.hints[messages[i].Group], messages[i].Encode()
	})
	byTile := make([]error, len(tiles))
	for i := range tiles {
		byTile[i] = errs[of[i]]
	}
	return f.local.PublishedHints(tiles, byTile, refused)
}

// pipeline is what one node gets of a call. There are few nodes.
type pipeline struct {
	node     *redis.Client
	pipe     redis.Pipeliner
	messages []int // the message of each command
}

// post sends n messages, one pipeline a node, all nodes at once, and returns the error of each. A message whose node is
// not known is not sent.
func (f *Fanout) post(ctx context.Context, n int, message func(i int) (channel string, data []byte)) []error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.tuning.Timeout)
	defer cancel()
	f.nodes.refresh(ctx)
	var (
		errs    = make([]error, n)
		all     []*pipeline
		current *pipeline
		last    string // the channel of the message before, which usually is that of the next
		err     error
	)
	for i := range n {
		channel, data := message(i)
		if channel != last {
			last = channel
			current, all, err = f.pipelineOf(ctx, channel, all)
		}
		if err != nil {
			errs[i] = &hub.UnsentError{Err: err}
			continue
		}
		current.pipe.SPublish(ctx, channel, data)
		current.messages = append(current.messages, i)
	}
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			cmds, _ := p.pipe.Exec(ctx) // the error is that of a command
			for k, cmd := range cmds {
				errs[p.messages[k]] = cmd.Err()
			}
		})
	}
	wg.Wait()
	if errors.Join(errs...) != nil {
		f.nodes.reload(ctx)
	}
	return errs
}

// pipelineOf finds the pipeline of the node that serves a channel, or adds it.
func (f *Fanout) pipelineOf(ctx context.Context, channel string, all []*pipeline) (*pipeline, []*pipeline, error) {
	node, err := f.nodes.master(ctx, channel)
	if err != nil {
		return nil, all, err
	}
	for _, p := range all {
		if p.node == node {
			return p, all, nil
		}
	}
	p := &pipeline{node: node, pipe: node.Pipeline()}
	return p, append(all, p), nil
}

// refused reports whether a command was not run: the node said so, or could not be reached.
func refused(err error) bool {
	var answer redis.Error
	var dial *net.OpError
	return errors.As(err, &answer) || errors.As(err, &dial) && dial.Op == "dial"
}
