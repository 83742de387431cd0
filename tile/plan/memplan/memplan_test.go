package memplan_test

import (
	"testing"

	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

func TestConformance(t *testing.T) {
	plantest.Run(t, func(*testing.T) plan.Store { return memplan.New() })
}
