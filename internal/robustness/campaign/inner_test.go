//go:build unix

package campaign

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/tile"
)

// TestEveryFaultComesOnceARound, in an order that the seed gives; and the first run of a campaign with a
// run's own seed and fault is that run.
func TestEveryFaultComesOnceARound(t *testing.T) {
	cfg := Config{Seed: 5}.withDefaults()
	n := len(cfg.Faults)
	draw := func(cfg Config, number int) (string, uint64) {
		f, seed := cfg.draw(number)
		return f.Name, seed
	}
	for round := range 3 {
		seen := map[string]bool{}
		for i := range n {
			name, seed := draw(cfg, round*n+i+1)
			require.False(t, seen[name])
			seen[name] = true
			again, sameSeed := draw(cfg, round*n+i+1)
			require.Equal(t, name, again)
			require.Equal(t, seed, sameSeed)

			fault, err := FindFault(name)
			require.NoError(t, err)
			rerun := Config{Seed: seed, Faults: []*Fault{fault}}.withDefaults()
			again, sameSeed = draw(rerun, 1)
			require.Equal(t, name, again)
			require.Equal(t, seed, sameSeed)
		}
	}
}

func TestSilenceIsOfTheWorstTileFromTheFaultOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTraffic(nil, nil, []fence.TileID{1, 2}, nil)
		tr.heard(1)
		time.Sleep(time.Minute) // before the fault: not counted
		tr.watch()
		tr.heard(1)
		time.Sleep(3 * time.Second)
		tr.heard(2)
		time.Sleep(time.Second)
		tr.heard(1)
		require.Equal(t, 4*time.Second, tr.longest())
		time.Sleep(5 * time.Second)
		require.Equal(t, 6*time.Second, tr.longest(), "of a tile that is still silent")
		require.Error(t, tr.enough(2, time.Time{}))
		tr.heard(2)
		require.NoError(t, tr.enough(2, time.Time{}))
		require.Error(t, tr.enough(2, time.Now()), "the first tile was not heard since")
	})
}

func TestWhenATileGetsAnotherOwner(t *testing.T) {
	now := time.Now()
	live := &workerSlot{heard: now}
	serving := tileStatus{Status: tile.Status{State: tile.Serving}}
	superseded := tileStatus{Status: tile.Status{State: tile.StoodDown}, Err: "superseded"}
	for want, p := range map[string]*placement{
		"homeless": {},
		"silent":   {worker: &workerSlot{heard: now.Add(-time.Second)}, status: serving},
		"ended":    {worker: live, status: superseded, ordered: now},
		"frozen":   {worker: live, status: serving, frozen: now.Add(-2 * time.Second)},
	} {
		s := &supervisor{takeFrozen: true}
		require.Equal(t, want, s.whyMove(p))
	}
	s := &supervisor{}
	for name, p := range map[string]*placement{
		"serving":        {worker: live, status: serving},
		"just ordered":   {worker: live, ordered: now},
		"frozen, unless": {worker: live, status: serving, frozen: now.Add(-time.Minute)},
	} {
		require.Empty(t, s.whyMove(p), name)
	}
}

func TestReportNamesWhatWasFoundAndHowToRepeatIt(t *testing.T) {
	killed, err := FindFault("owner-killed")
	require.NoError(t, err)
	parted, err := FindFault("owner-alone")
	require.NoError(t, err)
	s := &Summary{Config: Config{Seed: 9, Faults: []*Fault{killed, parted}}.withDefaults(), Began: time.Unix(0, 0),
		Took: time.Minute,
		Results: []Result{
			{Number: 1, Seed: 9, Replicas: 2, Fault: killed, Target: "worker-1", Silence: time.Second,
				Detection: []time.Duration{400 * time.Millisecond}},
			{Number: 2, Seed: 77, Fault: killed,
				Violations: []check.Violation{{Check: "no fork", Tile: 1, Detail: "two histories"}}},
			{Number: 3, Seed: 78, Fault: killed, Err: errors.New("it hung"), State: []string{"tile 1: installing"}},
			{Number: 4, Fault: parted, Skipped: "no namespace"},
		}}
	require.True(t, s.Failed())
	text := s.Report()
	for _, want := range []string{"| owner-killed | 3 | 2 | 0s | 1s | 1s |", "skipped: no namespace",
		"-fault owner-killed -replicas 0 -seed 77",
		"no fork: tile 1: two histories", "it hung", "- tile 1: installing", "| **violations** | **1** |",
		"1970-01-01"} {
		require.Contains(t, text, want)
	}
	s.Results = s.Results[:1]
	require.False(t, s.Failed())
	require.Contains(t, s.Results[0].line(), "longest silence 1s")
}

// TestTheUnbrokenRun comes last, bears no fault that it would not outlast, and has a row and a command in the report.
func TestTheUnbrokenRun(t *testing.T) {
	s := &Summary{Config: Config{Unbroken: time.Minute, Travellers: 12}.withDefaults()}
	fault, _ := s.next(1)
	require.Same(t, unbroken, fault)
	bears := func(name string) bool {
		return slices.ContainsFunc(s.Config.bearable(), func(f *Fault) bool { return f.Name == name })
	}
	require.True(t, bears("owner-killed"))
	require.False(t, bears("durable-restored"))
	require.False(t, bears("coordination-lost"), "not every tile has a journal")

	s.Config.Durable, s.Config.Duration, s.Began = true, time.Hour, time.Now()
	require.True(t, bears("coordination-lost"))
	fault, _ = s.next(1)
	require.NotSame(t, unbroken, fault, "other runs come first")
	s.Config.Duration = time.Nanosecond
	fault, _ = s.next(2)
	require.Same(t, unbroken, fault)
	s.Results = []Result{{Number: 1, Fault: unbroken, Seed: 5, Replicas: 1, Violations: []check.Violation{{}},
		Census: &Census{Census: check.Census{Born: 12, Crossings: 700, Lost: []string{"a"}, Coins: -3}, UnderWay: 2,
			Faults: map[string]int{"owner-killed": 4}}}}
	fault, _ = s.next(3)
	require.Nil(t, fault, "it is the last")
	for _, want := range []string{"| 1m0s | write-behind | 12 | 4 | 700 | 1 | 0 | 2 | -3 |", "owner-killed 4,",
		"-unbroken 1m0s -travellers 12 -durable -replicas 1 -seed 5"} {
		require.Contains(t, s.Report(), want)
	}
	require.NotContains(t, s.Report(), "## How often each rule acted", "there was no run of one fault")
	require.Contains(t, s.Results[0].line(), "1 lost, 0 doubled, 2 stuck, coins -3")
}

func TestQuantiles(t *testing.T) {
	require.Equal(t, "-", quantile(nil, 0.5))
	d := []time.Duration{3 * time.Second, time.Second, 2 * time.Second, 4 * time.Second}
	require.Equal(t, "2s", quantile(d, 0.5))
	require.Equal(t, "4s", quantile(d, 0.9))
	require.Equal(t, "4s", quantile(d, 1))
	require.Equal(t, "1s", quantile(d, 0))
}

// TestPartedHosts cannot reach each other, in the direction asked for, until they are joined.
func TestPartedHosts(t *testing.T) {
	stacktest.RequireFullTest(t)
	n, err := newNetwork(t.Context())
	if err != nil {
		t.Skipf("hosts cannot be parted here: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.9.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	arrived := make(chan byte, 16)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					arrived <- b[0]
					_, _ = c.Write(b)
				}
			}()
		}
	}()
	var none accidents
	dial := none.dialer("127.0.9.2")
	conn, err := dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	exchange := func(b byte, within time.Duration) error {
		require.NoError(t, conn.SetDeadline(time.Now().Add(within)))
		if _, err := conn.Write([]byte{b}); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	require.NoError(t, exchange('a', 5*time.Second))
	require.Equal(t, byte('a'), <-arrived)

	require.NoError(t, n.drop(t.Context(), "127.0.9.1", "127.0.9.2"))
	require.Error(t, exchange('b', 300*time.Millisecond), "the answer is lost")
	require.Equal(t, byte('b'), <-arrived, "the request is not")
	require.NoError(t, n.join(t.Context()))
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err, "it arrives when the hosts are joined")

	require.NoError(t, n.part(t.Context(), "127.0.9.1", "127.0.9.2"))
	require.Error(t, exchange('c', 300*time.Millisecond))
	require.Empty(t, arrived)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = dial(ctx, "tcp", listener.Addr().String())
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "nothing refuses: %v", err)
	require.NoError(t, n.join(t.Context()))
	require.Empty(t, n.rules)
}

// TestAccidents: an answer that is lost was given.
func TestAccidents(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	ends := make(chan error, 2)
	go func() {
		for range 2 {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1)
			_, err = c.Read(b)
			if err == nil {
				_, _ = c.Write(b)
				_, err = c.Read(b)
			}
			ends <- err
		}
	}()
	var a accidents
	dial := a.dialer("127.0.0.1")
	conn, err := dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	a.answersLost.Store(1000)
	_, err = conn.Write([]byte{1})
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, errAccident)
	require.ErrorContains(t, <-ends, "reset", "the server's end is reset")

	a.answersLost.Store(0)
	conn, err = dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	a.requestsLost.Store(1000)
	_, err = conn.Write([]byte{1})
	require.ErrorIs(t, err, errAccident)
	require.ErrorContains(t, <-ends, "reset", "nothing arrives but the reset")
}
