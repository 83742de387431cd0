package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// playing is a battle in this process, which a test watches on its page, and ends when it has seen enough.
type playing struct {
	page   string
	out    bytes.Buffer
	errs   screen
	stop   context.CancelFunc
	done   chan struct{} // closed when it has ended, with status
	status int
}

func play(t *testing.T, args ...string) *playing {
	t.Helper()
	p := &playing{done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	t.Cleanup(func() {
		stop()
		p.await(t)
		if t.Failed() {
			t.Log(args, p.errs.String(), p.out.String())
		}
	})
	args = append([]string{"-report", "json", "-listen", "127.0.0.1:0"}, args...)
	go func() {
		defer close(p.done)
		p.status = run(ctx, args, &p.out, &p.errs)
	}()
	p.page = p.errs.find(t, `watch the battle:  (http://\S+/)`)
	return p
}

// await waits for the end of a battle that was stopped. Together with watch it takes less than a run of go test may.
func (p *playing) await(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(3 * time.Minute):
		stacks := make([]byte, 1<<20)
		t.Fatalf("the battle does not end:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// watch asks the battle's page for the status until it is as wanted. A battle that has ended fails the test at once.
func (p *playing) watch(t *testing.T, as func(statuspoller.Status) bool) statuspoller.Status {
	t.Helper()
	return watch(t, p.page, as, p.done)
}

// counts waits until a metric is not zero, all its labels together.
func (p *playing) counts(t *testing.T, name string) {
	t.Helper()
	sample := regexp.MustCompile(`(?m)^tilefence_` + name + `(?:\{[^}]*\})? (\S+)$`)
	waittest.Until(t, func() bool {
		sum := 0.0
		for _, found := range sample.FindAllSubmatch(get(t, p.page+"metrics"), -1) {
			n, err := strconv.ParseFloat(string(found[1]), 64)
			require.NoError(t, err)
			sum += n
		}
		return sum > 0
	}, time.Minute, 50*time.Millisecond, name)
}

// takeOver presses the page's button until a host takes the tile. Only one that follows it can.
func (p *playing) takeOver(t *testing.T, tile fence.TileID) {
	t.Helper()
	waittest.Until(t, func() bool {
		response, err := pageClient.Post(p.page+"api/takeover?tile="+tile.String(), "", nil)
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode < 300
	}, time.Minute, 100*time.Millisecond)
}

// end ends the battle as SIGTERM does.
func (p *playing) end(t *testing.T) (r measure.Report) {
	t.Helper()
	p.stop()
	p.await(t)
	require.Equal(t, exitOK, p.status)
	require.NoError(t, json.Unmarshal(p.out.Bytes(), &r))
	return r
}
