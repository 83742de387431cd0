//go:build linux

package benchmark

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/tile"
)

// lanes is how many rounds of BenchmarkPartitionRedirect run beside each other: each waits for gossip most of the time.
const lanes = 10

// partitionRounds is how many rounds the benchmark has.
func partitionRounds(b *testing.B) int { return numberOf(b, "TILEFENCE_BENCH_ROUNDS", 100) }

// numberOf is a number from the environment, or n.
func numberOf(b *testing.B, variable string, n int) int {
	text, set := os.LookupEnv(variable)
	if !set {
		return n
	}
	n, err := strconv.Atoi(text)
	require.NoError(b, err)
	require.Positive(b, n)
	return n
}

// BenchmarkPartitionRedirect cuts an owner off from its peers while it goes on to tick, and measures until a client
// that keeps sending it intents holds the redirect to the successor: detection by gossip, one mint, the successor's
// replay and first commit, the old owner's next commit and its refusal. The owner's gossip is a process of its own,
// which is stopped: so is a network that carries the owner's commits and nothing to its peers. PostgreSQL, from which
// it is cut off too, is not asked by an owner.
func BenchmarkPartitionRedirect(b *testing.B) {
	total := partitionRounds(b)
	for b.Loop() {
		var mu sync.Mutex
		var all, detected, beside []time.Duration
		var work sync.WaitGroup
		for lane := range min(lanes, total) {
			l := newLane(b)
			work.Go(func() {
				for i := lane; i < total && !b.Failed(); i += lanes {
					detection, whole, err := l.round(b)
					if err != nil {
						b.Error(err)
						return
					}
					mu.Lock()
					all, detected = append(all, whole), append(detected, detection)
					beside = append(beside, whole-detection)
					mu.Unlock()
				}
			})
		}
		work.Wait()
		percentiles(b, "redirect", all)
		percentiles(b, "detection", detected)
		percentiles(b, "beside-detection", beside)
		b.ReportMetric(float64(len(all)), "rounds")
	}
	b.ReportMetric(0, "ns/op")
}

// percentiles gives the middle and the 99th percentile of some durations, in milliseconds.
func percentiles(b *testing.B, name string, d []time.Duration) {
	b.Helper()
	require.NotEmpty(b, d, name)
	slices.Sort(d)
	b.ReportMetric(ms(d[len(d)/2]), name+"-p50-ms")
	b.ReportMetric(ms(d[(len(d)*99+99)/100-1]), name+"-p99-ms")
}

// lane is an owner and its warm follower, whose gossip runs in this process.
type lane struct {
	*pair
	postgres string
	gossip   string // the follower's address
	died     chan time.Time
	tiles    []fence.TileID // of rounds to come
}

func newLane(b *testing.B) *lane {
	l := &lane{pair: newPair(b), postgres: stacktest.PostgresDB(b), died: make(chan time.Time, 1),
		tiles: someTiles(1000)}
	node, err := gossip.New(contactOf(l.servers[1]), new(route.Table), &gossip.Config{Bind: "127.0.0.1:0",
		Timing: gossip.Fast(), Notify: func(e route.Event) {
			if e.Kind == route.Died && e.Member.Contact == contactOf(l.servers[0]) {
				l.hosts[1].Suspect(e.Member.Contact)
				l.died <- time.Now()
			}
		}})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		require.NoError(b, <-ended)
	})
	<-node.Ready()
	l.gossip = node.Addr()
	return l
}

// round is one partition: how long gossip took, and all of it.
func (l *lane) round(b *testing.B) (detection, whole time.Duration, err error) {
	id := l.tiles[0]
	l.tiles = l.tiles[1:]
	if err := errors.Join(l.hosts[0].Own(id), l.hosts[0].Await(b.Context(), id), l.hosts[1].Follow(id)); err != nil {
		return 0, 0, err
	}
	l.await(b, l.hosts[1], id, tile.Following)
	voice := launch(b, envNode, nodeConfig{Redis: stacktest.Redis(b), Postgres: l.postgres, Seed: l.gossip,
		Contact: contactOf(l.servers[0])})
	defer voice.kill()
	voice.await(b, "ready")
	time.Sleep(time.Second + rand.N(500*time.Millisecond)) // anywhere in gossip's and the ticks' intervals

	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	var redirected time.Time
	var client errgroup.Group
	client.Go(func() error {
		for {
			_, err := l.client.Forward(ctx, contactOf(l.servers[0]),
				tile.Intent{Tile: id, Actor: "ann", Body: []byte("go")})
			if errors.Is(err, tile.ErrRedirect) || errors.Is(err, tile.ErrUnresolved) {
				redirected = time.Now()
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	cut := time.Now()
	if err := voice.cmd.Process.Signal(devstack.Pause); err != nil {
		return 0, 0, err
	}
	select {
	case at := <-l.died:
		detection = at.Sub(cut)
	case <-ctx.Done():
		return 0, 0, errors.New("gossip did not notice the partition within 30 s")
	}
	err = client.Wait()
	return detection, redirected.Sub(cut), err
}
