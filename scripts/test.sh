#!/usr/bin/env bash
# The whole check: formatting, lint with vet, and the tests that do something else where there is no server, then every
# test with the race detector against real servers. What runs inside Redis is also tested inside Valkey.
# A failed check does not keep the tests from running; the summary names everything that failed.
# Arguments are passed on to go test, in front of the packages: scripts/test.sh -run Failover
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

lint=${XDG_CACHE_HOME:-$HOME/.cache}/tilefence/bin/golangci-lint

# -count=1: a result kept from before says nothing about the servers of today. Tests wait more than they compute, so
# more of them run at once than there are processors. vet is a check of its own, and without debugger symbols a test
# program is linked in half the time.
gotest=(go test -count=1 -vet=off -ldflags=-w -parallel $((2 * $(nproc))))

# These play whole deployments, with clusters of their own, and wait for them half of the time: as many packages at once
# as there are processors, beside nothing else.
deployments='/(examples/battle|examples/tilectl|examples/tileserver|internal/benchmark|internal/robustness/campaign)$'

check() { # name, command...
	local name=$1 began=$SECONDS
	shift
	if "$@"; then
		printf 'ok  \t%s\t%ds\n' "$name" $((SECONDS - began))
	else
		printf 'FAIL\t%s\n' "$name"
		failed+=("$name")
	fi
}

formatted() {
	local files
	files=$(gofmt -l .) || return
	[ -z "$files" ] || { printf 'not formatted: %s\n' $files; return 1; }
}

# without_servers lists the packages whose tests may do something else in the run on servers: those that could use
# servers, and those with files for or against the race detector.
without_servers() {
	local module
	module=$(go list -m) || return
	go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}} {{end}}' ./... |
		sed -nE "s#^([^ ]+)\.test .* $module/internal/devstack .*#\1#p" # all that names the servers is there
	grep -rlE --include='*.go' '^//go:build !?race$' . | sed "s#/[^/]*\$##; s#^\.#$module#"
}

# What a newcomer runs first, go test ./..., must pass where there is no server. What needs none either way is tested
# once, below. These wait more than they compute, too.
serverless() {
	local out packages
	packages=$(without_servers | sort -u) && [ -n "$packages" ] || return
	out=$(env -u TILEFENCE_REQUIRE_SERVERS -u TILEFENCE_REDIS -u TILEFENCE_FANOUT -u TILEFENCE_POSTGRES \
		-u TILEFENCE_DYNAMODB -u TILEFENCE_VIEWS \
		"${gotest[@]}" -p $((3 * $(nproc))) -timeout 20m $packages 2>&1) || { grep -v '^ok' <<<"$out"; return 1; }
}

# The linter vets all of this module. The peers and the manifests are modules of their own, which it does not see.
vet() { (cd internal/benchmark/peers && go vet ./...) && (cd deploy/kubernetes && go vet ./...); }

manifests() { (cd deploy/kubernetes && go test -count=1 -vet=off ./...); }

checks() {
	failed=()
	check gofmt formatted
	check vet vet
	check manifests manifests
	check lint "$lint" run --allow-parallel-runners ./...
	check serverless serverless
	check valkey scripts/engines.sh -skip valkey-9.1
	go build -buildvcs=false -o bin/tilectl ./examples/tilectl || exit 1
	# In place of this shell, so that a signal from make arrives where the servers are stopped.
	TILEFENCE_FAILED_CHECKS="${failed[*]}" exec bin/tilectl dev -parts all -memory -nosync -- "$0" --with-servers "$@"
}

# on_servers tests packages that are named on standard input, so many at once, with the race detector.
on_servers() { # at once, arguments...
	local -a packages
	readarray -t packages
	"${gotest[@]}" -race -timeout 30m -p "$@" "${packages[@]}" 2>&1
}

all_on_servers() { # arguments...
	local packages status=0
	packages=$(go list ./...) || return
	grep -vE "$deployments" <<<"$packages" | on_servers $(($(nproc) + 1)) "$@" || status=$?
	[ $status -le 1 ] || return $status # over 128: a signal
	grep -E "$deployments" <<<"$packages" | on_servers "$(nproc)" -parallel $(($(nproc) + 1)) "$@" || status=$?
	return $status
}

tests() {
	local line name began=$SECONDS passed=0 status
	local -a failed
	read -ra failed <<<"${TILEFENCE_FAILED_CHECKS:-}"
	# go test ends on these signals by itself; its last output is still read and counted.
	trap : INT TERM
	shopt -s lastpipe
	all_on_servers "$@" | while IFS= read -r line; do
		case $line in
		*'[no test files]') continue ;;
		'ok '*) passed=$((passed + 1)) ;;
		FAIL$'\t'*)
			name=${line#FAIL$'\t'}
			failed+=("${name%%[$'\t' ]*}") # what follows is a time, or [build failed]
			;;
		esac
		printf '%s\n' "$line"
	done
	status=${PIPESTATUS[0]}
	printf '\n%d packages passed in %ds' "$passed" $((SECONDS - began))
	[ ${#failed[@]} = 0 ] || printf '; FAILED: %s' "${failed[*]}"
	[ "$status" -le 1 ] || printf '; go test ended with code %d' "$status" # over 128: a signal
	printf '\n'
	[ "$status" = 0 ] && [ ${#failed[@]} = 0 ]
	exit
}

if [ "${1:-}" = --with-servers ]; then
	shift
	tests "$@"
else
	checks "$@"
fi
