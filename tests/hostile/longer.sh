#!/bin/bash
# SPDX-License-Identifier: MIT
#
# longer.sh - tests of the live suite that take seconds there, for as long and as
# often as it takes to believe them: some six minutes on an idle machine. Not part
# of `make test`, which has the live suite.
#
# fear A2: a minute of stops of 64 threads that send signals, and of 64 that run into breakpoints
# fear A7: 100 insertions, and 100 sessions, while threads are in calls that last 25 s
# fear B1: 1,000 attaches to a program whose threads are all in the loader and in malloc
# fear J2: death at 200 random steps from attach to detach
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "root is needed"

# live PROGRAM CASES: at least one case of that name, and all of them pass.
live() {
	"$build/tests/live/$1" "$2" >"$work/live" 2>&1 || fail "$1 $2: $(grep -v '^\[' "$work/live" | tail -8)"
	grep -q '^\[       OK' "$work/live" || fail "$1 $2: there is no such test"
	say "$1 $2: $(grep -v '^\[' "$work/live" | tail -2 | tr '\n' ' ')"
}

unset DINST_SHORT
LIFE_MS=60000 live life_threads test_ring_of_signals
LIFE_MS=60000 live life_threads test_breakpoints
BLOCKING_MS=25000 live signals 'test_blocking_*'
LOADING_ATTACHES=1000 live loading test_often
DEATHS=200 live death test_hundred_deaths
pass
