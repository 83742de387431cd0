package tile_test

import "github.com/tilefence/tilefence/tile/internal/tiletest"

type ledgerRules = tiletest.Ledger
