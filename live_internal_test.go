package tilefence

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestALoopThatHangsIsNotLive: only a loop that stands is not live; one that has not begun or has ended is.
func TestALoopThatHangsIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &RelayServer{}
		expect := func(want int) {
			t.Helper()
			w := httptest.NewRecorder()
			LiveHandler(s, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
			if w.Code != want {
				t.Fatalf("status %d, want %d", w.Code, want)
			}
		}
		expect(http.StatusOK)
		s.loop.Round()
		time.Sleep(30 * time.Second)
		expect(http.StatusOK)
		time.Sleep(time.Second)
		expect(http.StatusServiceUnavailable)
		s.loop.Round()
		expect(http.StatusOK)
		time.Sleep(time.Hour)
		s.loop.Ends()
		expect(http.StatusOK)
	})
}
