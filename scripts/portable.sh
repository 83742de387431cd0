#!/usr/bin/env bash
# Builds and vets everything, tests included, for other systems and without cgo. Nothing is run but the test of what
# package region says where H3 is missing. What each system lacks: docs/operations.md, "Systems".
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0
for target in ${*:-linux/amd64 linux/arm64 darwin/arm64 windows/amd64}; do
	began=$SECONDS
	GOOS=${target%/*} GOARCH=${target#*/} go build ./...
	GOOS=${target%/*} GOARCH=${target#*/} go vet ./...
	printf 'ok  \t%s without cgo\t%ds\n' "$target" $((SECONDS - began))
done
go test -count=1 ./tile/region
