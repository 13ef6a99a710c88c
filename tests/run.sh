#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh - runs test programs and scripts, one line each, and adds them up.
#
#   tests/run.sh [-t SECONDS] [-p] PROGRAM... [-s] PROGRAM...
#
# Programs behind -p run beside each other, those behind -s (the default) one
# at a time. A program speaks cmocka's output, or lines that start with PASS,
# FAIL or SKIP. One that dies, hangs, or reports no test at all has failed.
# The line before the last tells how long all of it took, the last one is
# "N passed, N failed, N skipped"; the exit status is 0 only if something ran
# and nothing failed. The logs of failures are shown, and those of all
# are in $DINST_BUILD/test-logs.
#
# With STRICT=1 a program that skips something because that is not installed has
# failed, too: ./bootstrap has installed all that the tests can use.
set -u

limit=300
jobs=$(nproc)
build=${DINST_BUILD:-build}
logs=$build/test-logs
mkdir -p "$logs" || exit 2
export DINST_BUILD=$build
# Plans are remembered from one test to the next, but not beyond this build.
XDG_CACHE_HOME=$(realpath "$build")/test-cache
# Nobody's own metrics are in the tests.
XDG_CONFIG_HOME=$(realpath "$build")/test-config
export XDG_CACHE_HOME XDG_CONFIG_HOME

passed=0
failed=0
skipped=0
failures=()

begun=$(date +%s)

now_ms() {
	date +%s%3N
}

# run_one PROGRAM: runs it, leaves NAME.log and NAME.result (status, milliseconds).
run_one() {
	local program=$1 name start status
	name=$(log_name "$program")
	rm -f "$logs/$name.log" "$logs/$name.result"
	start=$(now_ms)
	timeout --kill-after=10 "$limit" "$program" </dev/null >"$logs/$name.log" 2>&1
	status=$?
	echo "$status $(($(now_ms) - start))" >"$logs/$name.result"
}

log_name() {
	local name=${1#"$build"/}
	name=${name#tests/}
	echo "${name//\//-}"
}

count_lines() {
	grep -cE "$1" "$2" || true
}

# report_one PROGRAM: prints its line and adds its numbers up.
report_one() {
	local program=$1 name log status ms ok bad skip word
	name=$(log_name "$program")
	log=$logs/$name.log
	read -r status ms <"$logs/$name.result" || { status=125; ms=0; }
	ok=$(count_lines '^(\[       OK \]|PASS( |$))' "$log")
	skip=$(($(count_lines '^SKIP( |$)' "$log") + $(count_summary SKIPPED "$log")))
	bad=$(($(count_lines '^FAIL( |$)' "$log") + $(count_summary FAILED "$log")))
	word=ok
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
		word="died (status $status)"
		[ "$status" -eq 124 ] && word="timeout after $limit s"
		[ "$status" -eq 137 ] && word="killed (timeout after $limit s?)"
	elif [ "$status" -eq 0 ] && [ $((ok + bad + skip)) -eq 0 ]; then
		bad=1
		word="reported no test"
	elif [ "$bad" -gt 0 ]; then
		word=FAILED
	elif [ "$ok" -eq 0 ]; then
		word=skipped
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
	printf '%-44s %4d passed %3d failed %3d skipped %4d.%03d s  %s\n' "$name" "$ok" "$bad" \
		"$skip" $((ms / 1000)) $((ms % 1000)) "$word"
	if [ "$skip" -gt 0 ]; then
		grep -iE '^(skip|\[  SKIPPED \] [^0-9])' "$log" | awk '!seen[$0]++ { print "    " $0 }'
	fi
	if [ -n "${STRICT:-}" ] && grep -iE '^skip.* is not installed' "$log"; then
		echo "    FAIL $name: this was to be installed here (STRICT)"
		failed=$((failed + 1))
		bad=1
	fi
	if [ "$bad" -gt 0 ]; then
		failures+=("$name")
	fi
}

# count_summary WORD LOG: the sum of cmocka's "[  WORD ] N test(s), listed below:".
count_summary() {
	awk -v word="$1" '$1 == "[" && $2 == word && $5 == "test(s)," { n += $4 } END { print n + 0 }' "$2"
}

parallel=()
sequential=()
mode=sequential
while [ $# -gt 0 ]; do
	case $1 in
	-t) limit=$2; shift ;;
	-p) mode=parallel ;;
	-s) mode=sequential ;;
	*) if [ $mode = parallel ]; then parallel+=("$1"); else sequential+=("$1"); fi ;;
	esac
	shift
done

for program in "${parallel[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	run_one "$program" &
done
wait
for program in "${parallel[@]}"; do
	report_one "$program"
done
for program in "${sequential[@]}"; do
	run_one "$program"
	report_one "$program"
done

for name in "${failures[@]}"; do
	echo
	echo "--- $name: $logs/$name.log"
	if [ "$(wc -l <"$logs/$name.log")" -gt 120 ]; then
		grep -nE '^FAIL|\[  FAILED|\[   LINE|Error|ERROR|error:' "$logs/$name.log" | head -60
		echo "..."
	fi
	tail -n 120 "$logs/$name.log"
done
[ ${#failures[@]} -gt 0 ] && echo
seconds=$(($(date +%s) - begun))
echo "$((seconds / 60)) min $((seconds % 60)) s in all"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
