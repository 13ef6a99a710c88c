#!/bin/bash
# SPDX-License-Identifier: MIT
#
# steps.sh - tests/live/every_step for longer: SEED is that of the first round, each further one has
# the next number.
#
# fear C1, J1: 40 s of rounds in which a thread stands before any instruction while points go in and
#   come out: no wrong result, counts exact in the end, nothing left
. "$(dirname "$0")/lib.sh"

seed=${SEED:-1000}
ms=40000
[ -n "${DINST_SHORT:-}" ] && ms=5000
[ "$(id -u)" -eq 0 ] || skip "root is needed"

STEPS_SEED=$seed STEPS_MS=$ms "$build/tests/live/every_step" >"$work/steps" 2>&1 ||
	fail "seed $seed: $(grep -v '^\[' "$work/steps" | tail -90)"
grep -q '^[1-9][0-9]* rounds' "$work/steps" || fail "no round was played"
say "$(grep rounds "$work/steps")"
pass "seed $seed"
