#!/usr/bin/env bash
# Says what a game links that imports package tile and the embedded back ends, and one that imports the back ends of
# production: modules, and bytes of the program without symbols. The program calls nothing, so the linker leaves out
# most code: a game has more bytes, and the same modules.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

footprint() { # name, packages...
	local name=$1 own
	shift
	own=$(go list -m)
	{
		printf 'package main\n\nimport (\n'
		printf "\t_ \"$own/%s\"\n" "$@"
		printf ')\n\nfunc main() {}\n'
	} >"$dir/main.go"
	go build -trimpath -ldflags='-s -w' -o "$dir/program" "$dir/main.go"
	local -a linked
	readarray -t linked < <(go version -m "$dir/program" | awk -v own="$own" '$1 == "dep" && $2 != own { print $2 }')
	printf '%s: %d other modules, %d bytes, of %s\n' "$name" ${#linked[@]} "$(stat -c %s "$dir/program")" "$*"
	printf '  %s\n' "${linked[@]}"
}

footprint embedded tile fence/memfence stream/memstream stream/fanout/memfanout checkpoint/memcheckpoint stream/share
footprint production tile fence/pgfence fence/redisfence fence/route/gossip stream/redisstream \
	stream/fanout/redisfanout stream/share/redisshare checkpoint/dynamocheckpoint admission/dynamoledger
printf 'the go.mod of this module names %d modules\n' "$(go list -m all | wc -l)"
