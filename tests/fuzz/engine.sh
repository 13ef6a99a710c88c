#!/bin/bash
# SPDX-License-Identifier: MIT
#
# engine.sh - each fuzzer for a while with clang's engine and sanitizers, from its
# corpus; a crash, a leak, an input that takes too long or too much memory fails.
#
#   tests/fuzz/engine.sh NAME...     (make fuzz [FUZZ_SECONDS=n] [ONLY_FUZZ="a b"])
#
# One line for each: what it executed, and the edges of code that it reached. What was
# found is in $DINST_BUILD-fuzz/found; a finding belongs into tests/fuzz/corpus, mended.
# Where there is no clang, or not its engine, the fuzzers run as tests, which is said.
set -u
cd "$(dirname "$0")/../.." || exit 2

build=${DINST_BUILD:-build}
out=$build-fuzz
seconds=${FUZZ_SECONDS:-60}
names=("$@")
[ -n "${ONLY_FUZZ:-}" ] && read -ra names <<<"$ONLY_FUZZ"
clang=
for candidate in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
	if echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n); int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n ? 0 : 0; }' |
		"$candidate" -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null; then
		clang=$candidate
		break
	fi
done

if [ -z "$clang" ]; then
	echo "there is no clang with -fsanitize=fuzzer (package clang): the fuzzers run as tests"
	exec tests/run.sh -p "${names[@]/#/$build/tests/fuzz/}"
fi

mkdir -p "$out/found"
# shellcheck disable=SC2016 # FUZZ_LDFLAGS is make's
make -s O="$out" CC="$clang" SAN=address,undefined OPT='-O1 -g' \
	CFLAGS='-fsanitize=fuzzer-no-link -DFUZZ_ENGINE' FUZZ_LDFLAGS=-fsanitize=fuzzer \
	-j"$(nproc)" fuzz-engine >"$out/build.log" 2>&1 || {
	tail -20 "$out/build.log"
	echo "FAIL the fuzzers cannot be built: $out/build.log"
	exit 1
}

# Files of this build that are worth starting from, beside the corpus.
seeds() {
	local targets=$build/tests/live/targets
	case $1 in
	elf) cp "$targets"/{image-asm,image-flow,image-jumps,image-fixed,image-parts,points-fixed,points-flow,image-stripped} "$2" ;;
	dwarf) cp "$targets"/{typed,classes} "$2" ;;
	mdl) cp data/metrics/*.mdl "$2" ;;
	esac
}

# options NAME: the longest input, and what one may take of memory (MiB) and time (s).
options() {
	case $1 in
	elf | dwarf) echo "-max_len=131072 -rss_limit_mb=1500 -timeout=20" ;;
	request) echo "-max_len=16384 -rss_limit_mb=2000 -timeout=30" ;;
	*) echo "-max_len=8192 -rss_limit_mb=1000 -timeout=10" ;;
	esac
}

failed=0
for name in "${names[@]}"; do
	name=${name%_fuzz}
	corpus=$out/corpus/$name
	log=$out/$name.log
	rm -rf "$out/seeds"
	mkdir -p "$corpus" "$out/seeds" "tests/fuzz/corpus/$name"
	seeds "$name" "$out/seeds" 2>/dev/null
	# shellcheck disable=SC2046 # options are words
	DINST_BUILD=$build ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:handle_abort=1 \
		UBSAN_OPTIONS=print_stacktrace=1 \
		timeout $((seconds * 2 + 120)) "$out/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" \
		$(options "$name") -print_final_stats=1 -verbosity=1 -artifact_prefix="$out/found/$name-" \
		"$corpus" "tests/fuzz/corpus/$name" "$out/seeds" >"$log" 2>&1 </dev/null
	status=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
	edges=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
	if [ $status -eq 0 ] && [ -n "$runs" ]; then
		printf 'PASS %-10s %8d executions, %s edges, %d s\n' "$name" "$runs" "${edges#cov: }" "$seconds"
	else
		failed=1
		printf 'FAIL %-10s status %d: %s\n' "$name" "$status" "$log"
		grep -nE 'ERROR|runtime error|SUMMARY|Test unit written' "$log" | head -8
	fi
done
exit $failed
