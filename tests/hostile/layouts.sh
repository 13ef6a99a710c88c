#!/bin/bash
# SPDX-License-Identifier: MIT
#
# layouts.sh - programs of random control flow in machine code (layouts.py), which
# must do with all of it instrumented what they do without: from their first
# instruction, and with all of it going in and out under threads that compare.
#
#   layouts.sh [SEED]...   only those; else ROUNDS of them from 1000 * SEED on
#
# fear C3, C4, C5, C10: blocks that fall, branch and jump into their own and others' functions, into padding
#   that runs on, through tables and registers, with all registers, flags and the red zone live across
#   all of it; functions with names, sizes, unwind data or none of these, and data between them: 60
#   programs, with entries, exits, calls, blocks, edges, loops, instructions and memory counted
#
# Pairs of entries and exits go in all at once or not at all. A program whose stacks hold addresses of its code in
# every round may refuse them to the end, as any other may that returns there; of 20 programs one may.
. "$(dirname "$0")/lib.sh"

need python3 gcc setarch strip
instrument=$build/tests/tools/instrument
[ -x "$instrument" ] || skip "instrument is not built (make tests)"
rounds=${ROUNDS:-60}
[ -n "${DINST_SHORT:-}" ] && rounds=${ROUNDS:-12}
export INSTRUMENT_LOG=$work/log
mkdir "$work/log"
points=0
unwilling=()
gcc -O1 -c -o "$work/main.o" tests/hostile/layouts.c || fail "cannot be compiled"

# make_program SEED: some at fixed addresses, some without symbols.
make_program() {
	local kind=-pie

	python3 tests/hostile/layouts.py "$1" >"$work/program.S" || fail "seed $1: cannot be made"
	[ $(($1 % 3)) -eq 0 ] && kind=-no-pie
	gcc $kind -pthread -o "$work/program" "$work/main.o" "$work/program.S" || fail "seed $1: cannot be built"
	[ $(($1 % 4)) -eq 0 ] && strip "$work/program"
}

# runs COMMAND...: at the same addresses each time, which are in its registers.
runs() {
	timeout 60 setarch -R "$@" 3 </dev/null
}

# from_the_start SEED KINDS
from_the_start() {
	runs "$instrument" --exec "$2" @main -- "$work/program" >"$work/result" 2>"$work/program.err" ||
		fail "seed $1, $2: status $?: $(tail -1 "$work/program.err")"
	cmp -s "$work/plain" "$work/result" || fail "seed $1, $2: $(diff "$work/plain" "$work/result" | head -2 | tr '\n' ' ')"
	followed "seed $1, $2"
	[ "$followed_hits" -gt 0 ] || fail "seed $1, $2: nothing was counted at $followed_points points"
	points=$((points + followed_points))
}

# in_and_out SEED
in_and_out() {
	local program status rounds_counted

	rm -f "$work/input" "$work/result"
	mkfifo "$work/input"
	setarch -R "$work/program" 1 2 <"$work/input" >"$work/result" &
	program=$!
	children+=("$program")
	exec 7>"$work/input"
	wait_for 60 test -s "$work/result" || fail "seed $1: it does not start"
	prove save "$program" "$work/picture" || fail "seed $1: cannot look at it"
	timeout 150 "$instrument" "$program" excabdlimp 2 20 @main >"$work/program.log" 2>&1
	status=$?
	if [ $status -eq 3 ]; then
		unwilling+=("$1")
		timeout 60 "$instrument" "$program" excabdlim 2 20 @main >"$work/program.log" 2>&1
		status=$?
	fi
	[ $status -eq 0 ] ||
		fail "seed $1: taken in and out: status $status: $(grep -v ' = ' "$work/program.log" | tail -4 | tr '\n' ' ')"
	# A round that found nothing to insert fails at nothing either.
	rounds_counted=$(awk '/^  [a-z].* = / { sub(/.* = /, ""); n += $1 } /^removed: / { if (n) rounds++; n = 0 } END { print rounds + 0 }' "$work/program.log")
	[ "$rounds_counted" -eq 2 ] || fail "seed $1: taken in and out: something was counted in $rounds_counted of 2 rounds"
	prove check "$program" "$work/picture" >"$work/proof" || fail "seed $1: not as before: $(head -c 600 "$work/proof")"
	exec 7>&-
	wait "$program"
	status=$?
	[ $status -eq 0 ] && [ "$(tail -1 "$work/result")" = done ] ||
		fail "seed $1: in and out under threads: status $status, $(tail -1 "$work/result")"
}

seeds=("$@")
[ $# -gt 0 ] || mapfile -t seeds < <(seq $((${SEED:-1} * 1000)) $((${SEED:-1} * 1000 + rounds - 1)))
for seed in "${seeds[@]}"; do
	make_program "$seed"
	runs "$work/program" >"$work/plain" || fail "seed $seed: it does not run by itself: status $?"
	for kinds in exc bd excabdlim; do
		from_the_start "$seed" "$kinds"
	done
	in_and_out "$seed"
done
[ ${#unwilling[@]} -le $(((${#seeds[@]} + 19) / 20)) ] || fail "no pairs in programs ${unwilling[*]}"
[ "$points" -ge $((100 * ${#seeds[@]})) ] || fail "only $points points"
pass "${#seeds[@]} programs, $points points, ${#unwilling[@]} without pairs"
