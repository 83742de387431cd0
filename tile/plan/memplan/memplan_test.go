package memplan_test

import (
	"testing"

	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
	"github.com/tilefence/tilefence/tile/plan/plantest"
)

func TestConformance(t *testing.T) {
	plantest.Run(t, func(*testing.T) plan.Store { return memplan.New() })
}
