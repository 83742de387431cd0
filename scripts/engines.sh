#!/usr/bin/env bash
# The tests of what runs inside Redis, on one server after another: the Redis that is installed, and those that Debian
# has in other releases. Their packages are unpacked under the cache directory, with the C library that they were built
# for; nothing is installed. Arguments name engines: scripts/engines.sh valkey-8.0
# -skip leaves out an engine whose package cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/tilefence/engines
packages=(./fence/redisfence ./stream/redisstream ./stream/fanout/redisfanout ./stream/share/redisshare
	./relay/viewcache/redisviewcache ./tile/plan/redisplan ./admission/match/redismatch)
parts=coordination,fanout,views skip=
if [ "${1:-}" = -skip ]; then
	skip=1
	shift
fi
declare -A suite=([redis-8.0]=trixie [valkey-8.0]=bookworm-backports [valkey-8.1]=trixie [valkey-9.1]=forky)

# debian SUITE COMMAND... runs apt-get or apt-cache on a suite, with lists of its own.
debian() {
	local dir=$cache/apt/$1 suite=$1 base
	shift
	base=$(ls /etc/apt/sources.list.d/*.sources | head -n 1)
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	awk 'BEGIN {RS = ""; ORS = "\n\n"} NR == 1' "$base" | sed "s/^Suites:.*/Suites: $suite/" >"$dir/list.sources"
	"$@" -o Dir::Etc::sourcelist="$dir/list.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root \
		-o Acquire::Retries=0 -o Acquire::http::Timeout=10
}

# unpack ENGINE puts a program redis-server into the engine's directory.
unpack() {
	local dir=$cache/$1 from=${suite[$1]} tools=${1%%-*}-tools lib
	[ ! -x "$dir/bin/redis-server" ] || return 0
	rm -rf "$dir"
	mkdir -p "$dir/root" "$dir/bin"
	debian "$from" apt-get -qq update
	(cd "$dir" && debian "$from" apt-get -qq download "$tools/$from")
	case $from in trixie | forky) # built for a later C library
		(cd "$dir" && debian "$from" apt-get -qq download libc6/"$from" libstdc++6/"$from" libgcc-s1/"$from") ;;
	esac
	for deb in "$dir"/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
	# Debian's server is one program with the checker of its files, which goes by the name it is called.
	server=$dir/root/usr/bin/redis-server
	ln -sf "$(basename "$dir"/root/usr/bin/*-check-rdb)" "$server"
	lib=$dir/root/usr/lib/x86_64-linux-gnu
	if [ -e "$lib/libc.so.6" ]; then
		printf '#!/bin/sh\nexec %s --library-path %s:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu %s "$@"\n' \
			"$lib/ld-linux-x86-64.so.2" "$lib" "$server" >"$dir/bin/redis-server"
	else
		printf '#!/bin/sh\nexec %s "$@"\n' "$server" >"$dir/bin/redis-server"
	fi
	chmod +x "$dir/bin/redis-server"
}

mkdir -p "$cache"
if [ "${1:-}" = -unpack ]; then
	unpack "$2"
	exit
fi
go build -buildvcs=false -o bin/tilectl ./examples/tilectl
failed=()
for engine in "${@:-installed redis-8.0 valkey-8.0 valkey-8.1 valkey-9.1}"; do
	for one in $engine; do
		path=$PATH
		if [ "$one" != installed ]; then
			if [ -n "$skip" ]; then
				# In a shell of its own, which ends at the first command that fails.
				scripts/engines.sh -unpack "$one" >"$cache/$one.log" 2>&1 || {
					echo "skip: there is no package of $one: $(tail -n 1 "$cache/$one.log")"
					continue
				}
			else
				unpack "$one"
			fi
			path=$cache/$one/bin:$PATH
		fi
		echo "== $one: $(PATH=$path redis-server --version)"
		log=$cache/$one.log
		if PATH=$path bin/tilectl dev -parts "$parts" -memory -- \
			go test -count=1 -vet=off "${packages[@]}" >"$log" 2>&1; then
			grep '^ok' "$log" || true
		else
			grep -E '^(ok|FAIL|\s*--- FAIL)' "$log" || true
			failed+=("$one")
		fi
	done
done
[ ${#failed[@]} = 0 ] || { echo "failed on: ${failed[*]}"; exit 1; }
