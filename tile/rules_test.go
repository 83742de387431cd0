package tile_test

import "github.com/tilefence/tilefence/tile/internal/ledgertest"

type ledgerRules = ledgertest.Ledger
