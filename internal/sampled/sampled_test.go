package sampled_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/internal/sampled"
)

func Example() {
	plain := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	refusals := sampled.Logger(plain)
	for i := range 1000 {
		refusals.Warn("a client was refused", "attempt", i)
	}
	plain.Info("the end")
	// Output:
	// level=WARN msg="a client was refused" attempt=0
	// level=WARN msg="a client was refused" attempt=1
	// level=WARN msg="a client was refused" attempt=2
	// level=WARN msg="a client was refused" attempt=3
	// level=WARN msg="a client was refused" attempt=4
	// level=WARN msg="a client was refused" attempt=5
	// level=WARN msg="a client was refused" attempt=6
	// level=WARN msg="a client was refused" attempt=7
	// level=WARN msg="a client was refused" attempt=8
	// level=WARN msg="a client was refused" attempt=9
	// level=INFO msg="the end"
}

func TestAFloodIsSampledAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := sampled.Logger(slog.New(slog.NewTextHandler(&out, nil))).With("part", "p")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 1000 {
					l.Warn("refused", "n", fmt.Sprint(i, j))
				}
			})
		}
		all.Wait()
		l.Info("another message")
		assert.Equal(t, 10, strings.Count(out.String(), "msg=refused"))
		assert.Equal(t, 1, strings.Count(out.String(), "another message"))
		assert.NotContains(t, out.String(), "left_out")
		time.Sleep(11 * time.Second)
		l.Warn("refused")
		assert.Equal(t, 1, strings.Count(out.String(), "left_out=7990"))
		l.Warn("refused")
		assert.Equal(t, 1, strings.Count(out.String(), "left_out"), "it is said once")
	})
}

// TestHTTP: handshakes that fail are sampled together, whatever their addresses, and panics apart from them.
func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := sampled.HTTP(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 1000 {
			l.Printf("http: TLS handshake error from 192.0.2.7:%d: EOF", i)
		}
		l.Printf("http: panic serving 192.0.2.7:1: a bug\ngoroutine 7")
		const failed = `level=WARN msg="an HTTP connection failed" error="TLS handshake`
		assert.Equal(t, 10, strings.Count(out.String(), failed))
		assert.Equal(t, 1, strings.Count(out.String(), "level=ERROR"))
		assert.Contains(t, out.String(), "goroutine 7")
	})
}

func TestNoLoggerDiscards(t *testing.T) { sampled.Logger(nil).Error("nothing") }

// TestReminder: what goes on is said at once, and then once in half a minute, with how often it was not.
func TestReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := sampled.Reminder(slog.New(slog.NewTextHandler(&out, nil)))
		for range 61 {
			l.Warn("the store is away")
			time.Sleep(time.Second)
		}
		assert.Equal(t, 3, strings.Count(out.String(), "the store is away"))
		assert.Equal(t, 2, strings.Count(out.String(), "left_out=29"))
	})
}
