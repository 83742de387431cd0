package relay

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// While frames are late, Syncs are made one at a time, and who would have to wait for them is asked to come back; those
// who are connected are served as before.
func TestALateRelaySendsNewClientsAway(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	before := s.watch(t, nil, tileA)
	before.reaches(o)
	dial := func() (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), s.url, &websocket.DialOptions{Subprotocols: []string{relaypb.Subprotocol}})
	}
	turns := s.backlog.turns
	for ahead := range 40 { // the next two seconds, as writers of frames tell them
		turns.Observe(time.Now().Add(time.Duration(ahead)*frameTarget), 2*frameTarget)
	}
	var syncs sync.WaitGroup
	free := make(chan struct{})
	for range runtime.GOMAXPROCS(0) + 1 {
		syncs.Go(func() {
			if turns.Enter(t.Context(), overload.Request{}) == nil {
				<-free
				turns.Leave(time.Now())
			}
		})
	}
	waittest.Until(t, func() bool { return turns.Stats(time.Now()).Waiting == runtime.GOMAXPROCS(0) }, 5*time.Second,
		time.Millisecond)
	_, resp, err := dial()
	require.Error(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, after)
	require.NotZero(t, s.Stats().Late)
	require.GreaterOrEqual(t, s.Stats().Delay, 2*frameTarget)
	o.publish(o.commit())
	before.reaches(o)

	close(free)
	syncs.Wait()
	conn, _, err := dial()
	require.NoError(t, err, "nothing waits, so one turn is enough")
	require.NoError(t, conn.CloseNow())
}
