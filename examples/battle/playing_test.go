package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
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
		<-p.done
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
		response, err := http.Post(p.page+"api/takeover?tile="+tile.String(), "", nil)
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode < 300
	}, time.Minute, 100*time.Millisecond)
}

// end ends the battle as SIGTERM does.
func (p *playing) end(t *testing.T) (r report) {
	t.Helper()
	p.stop()
	<-p.done
	require.Equal(t, exitOK, p.status)
	require.NoError(t, json.Unmarshal(p.out.Bytes(), &r))
	return r
}
