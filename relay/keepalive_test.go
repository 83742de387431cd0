package relay

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/relaypb"
)

// written is what the queue's writer would write now.
func written(q *queue) [][]byte {
	f, _, what := q.next(nil)
	if what != nextFrames {
		return nil
	}
	q.written()
	return f
}

// TestKeepAlive: a quiet client has a heartbeat at once and every half interval, and a ping every interval. One that
// has messages has no heartbeat, and neither has one that does not read.
func TestKeepAlive(t *testing.T) {
	const interval = 20 * time.Second
	beat := heartbeats(interval / 2)[form(relaypb.Binary)]
	q := &queue{}
	q.init(2, 1000)
	now := q.pinged
	after := func(d time.Duration) [][]byte {
		now = now.Add(d)
		q.keepAlive(now, interval, beat)
		return written(q)
	}
	beats := [][]byte{beat}
	require.Equal(t, beats, after(time.Second), "the first says the interval")
	require.Empty(t, after(9*time.Second))
	require.Equal(t, beats, after(time.Second))
	require.Empty(t, after(8*time.Second))
	require.Equal(t, [][]byte{ping}, after(time.Second), "of the twenty seconds since the beginning")
	require.Equal(t, beats, after(time.Second), "a ping is no message")

	for range 30 {
		require.True(t, q.push([]byte("frame")))
		require.Len(t, written(q), 1)
		for _, f := range after(time.Second) {
			require.Equal(t, ping, f, "there was a message a second ago")
		}
	}
	require.NotContains(t, after(9*time.Second), beat)
	require.Contains(t, after(time.Second), beat)

	require.True(t, q.push([]byte("frame")))
	taken, _, _ := q.next(nil)
	require.Len(t, taken, 1)
	now = now.Add(time.Minute)
	q.keepAlive(now, interval, beat)
	now = now.Add(time.Minute)
	q.keepAlive(now, interval, beat)
	q.keepAlive(now.Add(time.Minute), interval, beat)
	require.NotContains(t, q.frames, beat, "a frame is being written")
	q.written()
	require.NotEmpty(t, written(q))
	require.True(t, q.push([]byte("one")) && q.push([]byte("two")))
	require.Len(t, after(2*time.Minute), 2, "the queue is full: neither heartbeat nor ping")
}

// TestAHeartbeatIsShared: its bytes are made once for all clients of an encoding, and sending it allocates nothing. At
// 10,000 quiet clients a relay sends a thousand a second, which is 7 kB/s of binary messages, and 38 kB/s at most of
// JSON.
func TestAHeartbeatIsShared(t *testing.T) {
	beats := heartbeats(10 * time.Second)
	require.Equal(t, []byte("\x82\x05\x3a\x03\x08\x90\x4e"), beats[relaypb.Binary])
	require.LessOrEqual(t, len(beats[relaypb.JSON]), 38)
	q := &queue{}
	q.init(256, 1<<20)
	now, spare := time.Now(), make([][]byte, 0, fewFrames)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		now = now.Add(30 * time.Second)
		q.keepAlive(now, time.Minute, beats[relaypb.Binary])
		frames, _, _ := q.next(spare)
		require.Same(t, &beats[relaypb.Binary][0], &frames[0][0])
		q.written()
		_, _, _ = q.next(frames)
	}))
}

// TestAClientThatVanishes: the peer is gone, and no FIN says so. The relay forgets it after two and a half intervals
// and the time that the answer to its close frame may take.
func TestAClientThatVanishes(t *testing.T) {
	cfg := still()
	cfg.PingInterval, cfg.closeTimeout = 40*time.Millisecond, 20*time.Millisecond
	s := newWorld(t).serve(cfg)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
		"Sec-WebSocket-Protocol: " + relaypb.Subprotocol + "\r\n\r\n"))
	require.NoError(t, err)
	eventually(t, func() bool { return s.Stats().Connected == 1 }, "it is there")
	eventually(t, func() bool { return s.Stats().IdleCloses == 1 && s.Stats().Clients == 0 }, "it is forgotten")
}
