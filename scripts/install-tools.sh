#!/usr/bin/env bash
# Installs what the tests and the local reference deployment need and this machine lacks: the servers
# (Redis, PostgreSQL, a DynamoDB-compatible one), promtool, a C compiler, and the linter. Everything already there
# is left as it is, so running it again takes no time. Needs Debian or a relative of it, and root or sudo
# where packages are missing. No server is started and no existing one touched.
#
#   install-tools.sh          what tests and deployment need
#   install-tools.sh bench    and etcd, a baseline of the benchmarks; they do without where there is no package of it
set -euo pipefail

dynoxide_version=1.2.1
# Of the package as published; npm's own check would only compare the download with the registry's word.
dynoxide_sha512=b011ea97127d00d90b96e1646117dde6bf18d00a457b0e0584eae5860440803e17cc4a053ae904a359ee053435fa34eda1fab09f83564369344e7e663538e052
typescript_version=5.9.3
typescript_sha512=8e5d6f6733c38a72ebf5e52ddc9feded5e8580d130f508ef04f772b33f4a7d00c3e357d0ac2d98e2f290762694a454f86d795bd511e12e9a7cc2d9ba3394e04b
lint_version=2.15.0

cache=${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/tilefence
dynoxide_dir=$cache/dynoxide-$dynoxide_version
dynoxide=$dynoxide_dir/package/dynoxide
typescript_dir=$cache/typescript-$typescript_version
lint=$cache/bin/golangci-lint

say() { printf '%-14s %s\n' "$1" "$2"; }
fail() { printf 'install-tools: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

undo=() # commands, run in reverse order at the end, however it ends
cleanup() {
	local i
	for ((i = ${#undo[@]} - 1; i >= 0; i--)); do eval "${undo[i]}" || true; done
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

postgres_server() {
	have postgres && have initdb && command -v postgres && return
	local path newest=
	for path in /usr/lib/postgresql/*/bin/postgres; do
		[ -x "$path" ] && newest=$path
	done
	[ -n "$newest" ] && printf '%s\n' "$newest"
}

# The tool the tests use is found through TILEFENCE_DYNOXIDE and PATH before the cache.
dynoxide_server() {
	if [ -n "${TILEFENCE_DYNOXIDE:-}" ]; then printf '%s\n' "$TILEFENCE_DYNOXIDE"
	elif have dynoxide; then command -v dynoxide
	elif [ -x "$dynoxide" ]; then printf '%s\n' "$dynoxide"
	else return 1; fi
}

# Packages start their services when installed, unless a policy forbids it. A policy of the machine's
# own is left alone.
forbid_service_start() {
	local policy=/usr/sbin/policy-rc.d
	[ -e "$policy" ] && return
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
	undo+=("as_root rm -f $policy")
	as_root chmod 755 "$policy"
}

# The PostgreSQL package creates a database cluster on port 5432 when it is installed, unless configured otherwise.
forbid_main_cluster() {
	local dir=/etc/postgresql-common/createcluster.d
	[ -d "$dir" ] || undo+=("as_root rmdir --ignore-fail-on-non-empty $dir")
	as_root mkdir -p "$dir"
	printf 'create_main_cluster = false\n' | as_root tee "$dir/tilefence.conf" >/dev/null
	undo+=("as_root rm -f $dir/tilefence.conf")
}

# Another apt may be running; its locks are waited for, ten minutes each.
apt_update() {
	local try log
	log=$(mktemp)
	undo+=("rm -f $log")
	for try in $(seq 120); do
		as_root apt-get -qq update </dev/null >"$log" 2>&1 && return
		grep -q 'Could not get lock' "$log" || break
		sleep 5
	done
	cat "$log" >&2
	fail 'apt-get update failed'
}

install_packages() {
	local packages=("$@") log
	have apt-get || fail "please install: ${packages[*]} (this script knows only apt-get)"
	[ "$(id -u)" = 0 ] || have sudo || fail "please install as root: ${packages[*]}"
	say packages "installing ${packages[*]} (a minute or so) ..."
	forbid_service_start
	case " ${packages[*]} " in *' postgresql '*) forbid_main_cluster ;; esac
	apt_update
	log=$(mktemp)
	undo+=("rm -f $log")
	if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
		-o DPkg::Lock::Timeout=600 install "${packages[@]}" </dev/null >"$log" 2>&1; then
		tail -n 30 "$log" >&2
		fail "could not install ${packages[*]}"
	fi
	# Not started now, and not at the next boot either.
	case " ${packages[*]} " in *' redis-server '*)
		if [ -d /run/systemd/system ]; then as_root systemctl --quiet disable redis-server || true; fi ;;
	esac
	case " ${packages[*]} " in *' etcd-server '*)
		if [ -d /run/systemd/system ]; then as_root systemctl --quiet disable etcd || true; fi ;;
	esac
	case " ${packages[*]} " in *' prometheus '*)
		if [ -d /run/systemd/system ]; then as_root systemctl --quiet disable prometheus || true; fi ;;
	esac
	case " ${packages[*]} " in *' pgbouncer '*)
		if [ -d /run/systemd/system ]; then as_root systemctl --quiet disable pgbouncer || true; fi ;;
	esac
	say packages "installed ${packages[*]}"
}

# etcd is installed if apt has it, and left out otherwise. The benchmarks look for it where the package puts it.
wanted_etcd() {
	[ "$target" = bench ] && ! [ -x /usr/bin/etcd ] && have apt-get &&
		[ -n "$(apt-cache search --names-only '^etcd-server$')" ]
}

# promtool checks the alert rules. It is left out where apt has no package of it; the test that runs it is skipped then.
wanted_promtool() {
	! have promtool && have apt-get && [ -n "$(apt-cache search --names-only '^prometheus$')" ]
}

missing_packages() {
	have make || echo make
	have git || echo git
	if ! have gcc; then echo gcc; echo libc6-dev; fi # for H3, and for the race detector
	have redis-server || echo redis-server
	postgres_server >/dev/null || echo postgresql
	if wanted_etcd; then echo etcd-server; fi
	if wanted_promtool; then echo prometheus; fi
	[ -x /usr/sbin/pgbouncer ] || have pgbouncer || echo pgbouncer # a pooler before PostgreSQL
	if ! have mcs || ! have mono; then echo mono-mcs; fi # tests the client in C#
	have ip || echo iproute2 # parts hosts in the robustness campaign
	if ! dynoxide_server >/dev/null && ! have npm; then echo npm; echo ca-certificates; fi
}

install_dynoxide() {
	[ "$(uname -sm)" = 'Linux x86_64' ] ||
		fail "no DynamoDB-compatible server is pinned for $(uname -sm);" \
			"build dynoxide $dynoxide_version and set TILEFENCE_DYNOXIDE to it"
	say dynoxide "fetching $dynoxide_version ..."
	fetch_npm "@dynoxide/linux-x64@$dynoxide_version" "$dynoxide_sha512" "$dynoxide_dir"
	chmod 755 "$dynoxide_dir/package/dynoxide"
}

# fetch_npm unpacks a package of npm, as published, into a directory of its own.
fetch_npm() { # package, checksum, directory
	local work tarball
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch-XXXXXX")
	undo+=("rm -rf '$work'")
	(cd "$work" && npm pack --silent "$1" </dev/null >/dev/null) || fail "npm could not fetch $1"
	tarball=$(echo "$work"/*.tgz)
	printf '%s  %s\n' "$2" "$tarball" | sha512sum --check --status ||
		fail "$1 is not what was published: its checksum differs"
	mkdir "$work/unpacked"
	tar -xzf "$tarball" -C "$work/unpacked" --no-same-owner
	chmod 755 "$work/unpacked"
	rm -rf "$3"
	mv -T "$work/unpacked" "$3"
}

lint_is_current() { "$lint" version 2>/dev/null | grep -Eq "version v?${lint_version//./\\.} "; }

install_lint() {
	say golangci-lint "building $lint_version (about two minutes, once) ..."
	mkdir -p "$cache/bin"
	# Not in the module's directory and without the caller's flags, which are meant for the module.
	local package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	(cd / && GOFLAGS='' GOBIN=$cache/bin go install "$package@v$lint_version" 2>&1 |
		{ grep -v '^go: downloading' || true; }) || fail 'could not build golangci-lint'
}

target=${1:-}
case $target in '' | bench) ;; *) fail "usage: $0 [bench]" ;; esac

have go || fail 'Go is not installed; go.mod names the version needed, https://go.dev/dl/ has it'
say go "$(go env GOVERSION)"

mapfile -t packages < <(missing_packages)
[ ${#packages[@]} = 0 ] || install_packages "${packages[@]}"
say gcc "$(command -v gcc)"
say redis "$(command -v redis-server)"
say postgresql "$(postgres_server)"
if [ "$target" = bench ]; then say etcd "$(command -v /usr/bin/etcd || echo 'none: its baseline is left out')"; fi

say promtool "$(command -v promtool || echo 'none: the alert rules are not checked')"

dynoxide_server >/dev/null || install_dynoxide
say dynoxide "$(dynoxide_server)"

# The declarations of relayjs are checked by TypeScript. Where there is no npm, the test that does so is skipped.
if have npm && ! [ -e "$typescript_dir" ]; then
	fetch_npm "typescript@$typescript_version" "$typescript_sha512" "$typescript_dir"
fi
say typescript "$([ -e "$typescript_dir" ] && echo "$typescript_dir" || echo 'none: the declarations are not checked')"

lint_is_current || install_lint
say golangci-lint "$lint"
