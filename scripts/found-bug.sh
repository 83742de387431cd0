#!/usr/bin/env bash
# Reproduces rows of docs/found-bugs.md: the test of a row must fail on the commit before its fix.
#
#   scripts/found-bug.sh <fix>                      every row of that fix
#   scripts/found-bug.sh --all                      every row
#   scripts/found-bug.sh <fix> <package> <test> [<test's commit>]
#
# It works in a temporary worktree of <fix>^, and takes from the test's commit only test files and testdata of the
# test's package, and the shared test packages that the commit changed. Where those need code that came with the fix,
# scripts/found-bugs has a patch that takes the fix, and nothing else, out of its commit; it is applied there instead.
# Rows print
#
#   reproduced       the test fails without the fix
#   does not build   the test needs code that came with the fix: this proves nothing
#   passes           the test does not show the bug: the row is wrong
#   skipped          the test needs servers that cannot be started here
#
# Tests that need servers get those of bin/tilectl dev, built from the present tree.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
page=docs/found-bugs.md out=$(mktemp) tree=
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/w" 2>/dev/null; rm -rf "$tree" "$out"' EXIT
trap 'exit 130' INT TERM

# Packages that only tests use, but whose files are not named *_test.go.
shared='(^|/)([a-z]+test|harness[a-z]*|internal/(fault(line|inject)|robustness/(game|history)))/[^/]+$'

# rows prints fix, test (with its subtest), package and the test's commit of each row.
rows() {
	awk -F ' *[|] *' -v fix="$1" '/^\| / && $2 != "bug" && $5 ~ /^`Test/ && (fix == "" || index($6, fix) == 1) {
		test = $5; gsub(/`/, "", test); package = test; sub(/.* of /, "", package)
		if (package == test) package = "-"
		sub(/ of .*/, "", test); gsub(/[()]/, "", test); sub(/ /, "/", test); gsub(/ /, "_", test)
		print $6, test, package, ($7 == "" ? $6 : $7)
	}' $page
}

# find_packages TEST COMMIT names the packages that have the test in that commit, changed ones first.
find_packages() {
	local all changed
	all=$(git grep -l "^func $1(" "$2" -- '*_test.go' | cut -d: -f2 | xargs -rn1 dirname | sort -u)
	changed=$(git show --name-only --format= "$2" | grep '_test\.go$' | xargs -rn1 dirname | sort -u)
	comm -12 <(echo "$all") <(echo "$changed") | grep . || echo "$all"
}

# check_out FIX COMMIT makes the worktree: FIX's predecessor, with the tests of COMMIT.
check_out() {
	local dir
	git worktree add -q --detach "$tree/w" "$1^" || return
	for dir in $package; do
		rm -f "$tree/w/$dir"/*_test.go
		[ "$dir" = . ] && dir= || dir=$dir/
		git ls-tree -r --name-only "$2" -- "${dir:-.}" | grep -E "^$dir([^/]+_test\.go|testdata/.*)$"
	done >"$out"
	git diff --name-only --diff-filter=AM "$1^" "$2" | grep -E "$shared" >>"$out"
	xargs -r git archive "$2" -- <"$out" | tar -x -C "$tree/w"
}

reproduce() { # fix, test, package, test's commit
	local fix=$1 test=${2%%/*} package=$3 from=$4 pattern patch result=passes
	pattern="^${2//\//\$/^}\$"
	[ "$package" != - ] || package=$(find_packages "$test" "$from")
	[ -n "$package" ] || { printf 'no such test\t%s\t%s\n' "$fix" "$2"; return 1; }
	patch=$root/scripts/found-bugs/$fix-${2//\//-}.patch
	if [ -f "$patch" ]; then
		git worktree add -q --detach "$tree/w" "$from" && git -C "$tree/w" apply "$patch"
	else
		check_out "$fix" "$from"
	fi || { git worktree remove --force "$tree/w"; return 1; }
	(cd "$tree/w" && run "$pattern" $package)
	if grep -q -- '--- PASS' "$out" && ! grep -q -- '--- FAIL' "$out"; then # a race, perhaps
		(cd "$tree/w" && run "$pattern" $package -race -count=10)
	fi
	if grep -qE '^\s*--- FAIL|^panic:|panic: test timed out' "$out"; then
		result=reproduced
	elif grep -qE '\[(build|setup) failed\]' "$out"; then
		result='does not build'
	elif grep -q -- '--- SKIP' "$out" || ! grep -q -- '--- PASS' "$out"; then
		result=skipped
	fi
	git worktree remove --force "$tree/w"
	[ -z "$verbose" ] || cat "$out"
	printf '%s\t%s\t%s\n' "$result" "$fix" "$2"
	[ "$result" = reproduced ]
}

# run PATTERN PACKAGE... FLAG... writes the test's output to $out: without servers, and with them if it is skipped.
run() {
	local pattern=$1 word test packages=()
	shift
	test=(go test -count=1 -vet=off -timeout 5m -v -run "$pattern")
	for word; do
		case $word in -*) test+=("$word") ;; *) packages+=("./$word") ;; esac
	done
	test+=("${packages[@]}")
	"${test[@]}" >"$out" 2>&1
	! grep -q -- '--- SKIP' "$out" ||
		"$root/bin/tilectl" dev -parts all -memory -nosync -- "${test[@]}" >"$out" 2>&1
}

root=$PWD status=0 verbose=1
go build -buildvcs=false -o bin/tilectl ./examples/tilectl || exit
case ${1:-} in
'') sed -n '2,/^set/s/^# \?//p' "$0"; exit 2 ;;
--all) verbose=; list=$(rows '') ;;
*) if [ $# -gt 2 ]; then list="$1 $3 $2 ${4:-$1}"; else list=$(rows "$1"); fi ;;
esac
[ -n "$list" ] || { echo "$page has no row with a test for the fix $1" >&2; exit 2; }
while read -r fix test package from; do
	reproduce "$fix" "$test" "$package" "$from" </dev/null || status=1
done <<<"$list"
exit $status
