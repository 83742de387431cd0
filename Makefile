# `make` alone lists the targets. Servers that targets need are started for them, and stopped after.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tilefence
TILECTL := bin/tilectl
FUZZTIME ?= 10s
TESTFLAGS ?=
BATTLEFLAGS ?=
HEADLINEFLAGS ?=
DURATION ?= 10m
UNBROKEN ?= 0
SEED ?=
SEEDS ?=
RUN ?= EqualSeeds|Protocol|Restored|Watchers|EveryCopy|Players|Travellers

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: install-tools
install-tools: ## install the servers and tools that are missing here (Debian; root or sudo)
	@scripts/install-tools.sh

.PHONY: test
test: install-tools ## format, vet, lint, tests without servers, and all tests with -race against real ones (TESTFLAGS="-run X")
	@scripts/test.sh $(TESTFLAGS)

.PHONY: test-quick
test-quick: ## the tests that need no servers; the others are skipped
	go test ./...

.PHONY: lint
lint: install-tools ## golangci-lint over everything
	$(TOOLS)/bin/golangci-lint run --allow-parallel-runners ./...

.PHONY: bench
bench: tilectl ## run all benchmarks on real servers; write docs/benchmarks.md, print missed budgets
	@scripts/install-tools.sh bench
	$(TILECTL) dev -parts all -memory -- go run ./internal/benchmark/cmd/benchreport -o docs/benchmarks.md

.PHONY: headline
headline: install-tools ## play 100, 1,000, 5,000 and 10,000 players on real servers (some 10 minutes; HEADLINEFLAGS="-seed 2")
	go run ./internal/benchmark/cmd/benchreport -headline -o docs/benchmarks.md $(HEADLINEFLAGS)

.PHONY: battle
battle: ## run the reference game server (BATTLEFLAGS="-stack local" for real servers)
	go run ./examples/battle $(BATTLEFLAGS)

.PHONY: fuzz
fuzz: ## fuzz every Fuzz target for a while (FUZZTIME=10s each)
	@{ grep -rlE '^func Fuzz' --include='*_test.go' . || true; } | sort | while read -r file; do \
		sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$$file" | while read -r target; do \
			echo "== $$target in $$(dirname "$$file")"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null; \
		done; \
	done

.PHONY: robustness
robustness: install-tools ## break a running system and check its promises (DURATION=10m, UNBROKEN=30m; docs/robustness-report.md)
	go run ./internal/robustness/cmd/robustness -duration $(DURATION) -unbroken $(UNBROKEN) -report docs/robustness-report.md

.PHONY: simulation
simulation: ## simulate whole systems, a seed the same each time (SEEDS=100, or SEED=7 alone; RUN=TestPlayersPayOnce)
	@echo "building Go's library and the simulation, which takes a minute the first time" >&2
	TILEFENCE_SEED=$(SEED) TILEFENCE_SEEDS=$(SEEDS) go run ./internal/robustness/cmd/seeded go test -count=1 -v \
		-timeout 12h -run '$(RUN)' ./internal/robustness/simulation

.PHONY: apidiff
apidiff: ## which changes of the API since the last tag break callers? (some minutes; needs the module proxy)
	@scripts/apidiff.sh

.PHONY: portable
portable: ## build and vet everything for Linux, macOS and Windows without cgo (10 minutes the first time, then 1)
	@scripts/portable.sh

.PHONY: matrix
matrix: install-tools ## test what runs on Redis 7.0, 8.0, Valkey 8.0, 8.1, 9.1 (10 minutes; ENGINES="valkey-8.0"; Debian)
	@scripts/engines.sh $(ENGINES)

.PHONY: spec
spec: ## search the model of the protocol to wider bounds (some minutes and 10 GB; make test searches narrower ones)
	TILEFENCE_SPEC=wide go test -count=1 -timeout 1h -v ./internal/robustness/spec

.PHONY: mutants
mutants: install-tools ## remove the protocol's rules one by one; which tests notice? (40 minutes; docs/mutants.md)
	go run ./internal/robustness/cmd/mutants -o docs/mutants.md

# The plugin comes in the version that go.mod has of its runtime.
.PHONY: proto
proto: ## regenerate internal/relaypb from its schema (needs protoc)
	@command -v protoc >/dev/null || { \
		echo "protoc is missing: install the package protobuf-compiler, or a release of protoc" >&2; exit 1; }
	GOBIN=$(TOOLS)/bin go install google.golang.org/protobuf/cmd/protoc-gen-go
	PATH=$(TOOLS)/bin:$$PATH protoc --go_out=. --go_opt=module=github.com/tilefence/tilefence relay/*.proto

# Not a file target: go build knows better than make whether it is up to date.
.PHONY: tilectl
tilectl:
	@go build -buildvcs=false -o $(TILECTL) ./examples/tilectl
