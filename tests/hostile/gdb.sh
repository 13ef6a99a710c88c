#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gdb.sh - gdb beside us: it walks the stacks of an instrumented process, comes
# and goes, and while it is there it is named as what is in the way.
. "$(dirname "$0")/lib.sh"

need gdb
start_server
json attach attach "$server"
json all insert calls "$all" --each -p "$server"
[ "$(field points all | sum)" -ge 30 ] || fail "only $(field points all | sum) points"

for i in 1 2 3; do
	timeout 60 gdb -nx -batch -p "$server" -ex 'thread apply all backtrace' -ex detach >"$work/gdb.out" 2>"$work/gdb.err" ||
		fail "gdb: $(tail -2 "$work/gdb.err")"
	# Without debug information of libc its frames have no names, but ours have.
	[ "$(grep -c 'in worker_main ()' "$work/gdb.out")" -eq 3 ] || [ "$(grep -c ' worker_main (' "$work/gdb.out")" -eq 3 ] ||
		fail "gdb does not see the three workers: $(grep '^#' "$work/gdb.out" | tail -5)"
	[ "$(grep -c ' main (' "$work/gdb.out")" -eq 1 ] || fail "gdb does not reach main: $(grep '^#' "$work/gdb.out" | tail -5)"
	grep -qE 'corrupt stack|previous frame (inner|identical)' "$work/gdb.out" && fail "gdb sees a corrupt stack"
done
say "gdb walked the stacks of $(grep -c '^Thread' "$work/gdb.out") threads, three times"

# gdb stays until it is told to go, the process stopped or not.
mkfifo "$work/commands"
gdb -nx -q -p "$server" <"$work/commands" >"$work/gdb.log" 2>&1 &
debugger=$!
children+=("$debugger")
exec 5>"$work/commands"
echo 'echo here\n' >&5
wait_for 60 grep -q '^here\|(gdb) here' "$work/gdb.log" || fail "gdb does not start"
dinst --json insert calls /Code/libc.so.6/malloc -p "$server" >"$work/busy" 2>&1
status=$?
[ $status -eq 1 ] || fail "insert under gdb: status $status: $(cat "$work/busy")"
grep -q 'already-traced' "$work/busy" || fail "gdb is not named as the reason: $(cat "$work/busy")"
grep -q "$debugger" "$work/busy" || fail "the tracer's pid is not told: $(cat "$work/busy")"
say "while gdb is there: $(sed -n 's/.*"message": *"\(.*\)".*/\1/p' "$work/busy")"
dinst --json read -p "$server" >/dev/null 2>&1 || fail "values cannot be read while gdb is there"
printf 'detach\nquit\n' >&5
exec 5>&-
wait "$debugger"

# It has gone: what is inserted now goes in and counts.
json more insert calls /Code/demo-server/answer_request -p "$server"
wait_for 60 counts "$(field id more)" "$server" || fail "nothing was counted after gdb"
json detach detach -p "$server"
[ "$(field left detach)" = 0 ] || fail "something is left: $(cat "$work/detach")"
end_server
pass "stacks walked, tracer named, nothing left"
