#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh - the demo of the README does what it says: it checks itself, and
# here it is checked that it really got to its end.
. "$(dirname "$0")/lib.sh"

DINST_BUILD=$build timeout 800 examples/demo.sh >"$work/demo.log" 2>&1 || fail "status $?: $(grep -A1 'NOT AS PROMISED\|demo failed' "$work/demo.log" | head -5)"
grep -q '^  equal: ' "$work/demo.log" || fail "there is no proof"
grep -qE '^  [1-9][0-9]* answers checked, 0 wrong' "$work/demo.log" || fail "no answers were checked"
grep -qE 'before +[1-9]' "$work/demo.log" || fail "no throughput was measured"
pass "$(grep 'answers checked' "$work/demo.log" | sed 's/^ *//')"
