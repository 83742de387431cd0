package memmatch_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
	"github.com/tilefence/tilefence/internal/matchtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	matchtest.Run(t, func(*testing.T) match.Backend { return memmatch.New() })
}
