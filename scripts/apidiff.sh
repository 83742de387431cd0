#!/usr/bin/env bash
# Compares the exported API with that of the last tag, or of the tag that is named, and fails if a change breaks
# callers. Before 1.0 a minor version may: then CHANGELOG.md says what to edit. Without a tag there is nothing to
# compare.
set -euo pipefail
cd "$(dirname "$0")/.."
apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20250620022241-b7579e27df2b

tag=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
[ -n "$tag" ] || { echo "apidiff: there is no tag yet, so nothing to compare with"; exit 0; }
dir=$(mktemp -d)
trap 'git worktree remove -f "$dir/tag" 2>/dev/null || true; rm -rf "$dir"' EXIT
git worktree add -q --detach "$dir/tag" "$tag"
GOBIN=$dir go install "$apidiff"
module=$(go list -m)
(cd "$dir/tag" && "$dir/apidiff" -m -w "$dir/old" "$module")
"$dir/apidiff" -m -incompatible "$dir/old" "$module" >"$dir/out" || { cat "$dir/out"; exit 1; }
broken=$(grep -v '^Ignoring internal' "$dir/out" || true) # grep fails if there is nothing
[ -z "$broken" ] || { printf 'since %s, these changes break callers:\n%s\n' "$tag" "$broken"; exit 1; }
echo "apidiff: no change since $tag breaks callers"
