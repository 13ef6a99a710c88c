#!/bin/bash
# SPDX-License-Identifier: MIT
#
# windows.sh - tests/live/storms for longer, with few and with many threads, and
# the tortured target for longer: SEED for both.
#
# fear C1, C7: 2, 8 and 32 threads at full speed in windows of one-byte instructions, across cache
#   lines and pages, inserted and removed in any order for most of a minute: tens of thousands of changes
#   on an idle machine, no wrong result
. "$(dirname "$0")/lib.sh"

seed=${SEED:-1}
ms=14000
[ -n "${DINST_SHORT:-}" ] && ms=2000
[ "$(id -u)" -eq 0 ] || skip "root is needed"

for threads in 2 8 32; do
	STORM_SEED=$seed STORM_THREADS=$threads STORM_MS=$ms "$build/tests/live/storms" >"$work/storm" 2>&1 ||
		fail "storm of $threads threads, seed $seed: $(tail -8 "$work/storm")"
	grep -q '^[1-9][0-9]* changes' "$work/storm" || fail "storm of $threads threads: nothing was changed"
	say "$(grep changes "$work/storm")"
done
TORTURE_SEED=$seed TORTURE_MS=$((ms / 4)) TORTURE_CASES='*churn*' "$build/tests/live/torture" >"$work/torture" 2>&1 ||
	fail "torture, seed $seed: $(grep -v '^\[' "$work/torture" | tail -8)"
# A filter that no test's name fits is no failure to the program.
[ "$(grep -c '^\[       OK' "$work/torture")" -ge 2 ] || fail "torture: only $(grep -c '^\[       OK' "$work/torture") tests churn"
say "$(grep -E 'changes|waves' "$work/torture" | tr '\n' ' ')"
pass "seed $seed"
