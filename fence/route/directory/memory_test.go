package directory_test

import (
	"testing"
	"time"

	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/directorytest"
)

func TestConformance(t *testing.T) {
	directorytest.Run(t, func(*testing.T) directorytest.Backend {
		m := directorystore.NewMemory()
		return directorytest.Backend{Store: m, Age: func(_ string, by time.Duration) { m.Step(by) }}
	})
}
