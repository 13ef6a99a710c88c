#!/bin/bash
# SPDX-License-Identifier: MIT
#
# steps.sh - tests/live/every_step and every_step_state for longer: SEED is that of the first round, each
# further one has the next number.
#
# fear C1, J1: 40 s of rounds in which a thread stands before any instruction while points go in and
#   come out: no wrong result, counts exact in the end, nothing left
# fear D7, E3, E4, J2, J7: 35 s of rounds in which three threads stand before any instruction while metrics
#   with timers and flags go in and come out, trampolines move, handlers jump out, mutators die: no wrong
#   result, nothing stays on in any thread, counts exact in the end, nothing left
. "$(dirname "$0")/lib.sh"

seed=${SEED:-1000}
[ "$(id -u)" -eq 0 ] || skip "root is needed"

# play PROGRAM MILLISECONDS
play() {
	local ms=$2

	[ -n "${DINST_SHORT:-}" ] && ms=5000
	STEPS_SEED=$seed STEPS_MS=$ms "$build/tests/live/$1" >"$work/steps" 2>&1 ||
		fail "$1, seed $seed: $(grep -v '^\[' "$work/steps" | tail -90)"
	grep -q '^[1-9][0-9]* rounds' "$work/steps" || fail "$1: no round was played"
	say "$1: $(grep rounds "$work/steps")"
}

play every_step 40000
play every_step_state 35000
pass "seed $seed"
