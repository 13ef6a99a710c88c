#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gdb.sh - gdb beside us: it walks the stacks of an instrumented process, comes
# and goes, and while it is there it is named as what is in the way. It goes
# through a counter instruction by instruction, and leaves the process as it was.
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

# children_of_stepped: how many have ended well; more_children NUMBER: more than that.
children_of_stepped() {
	tail -1 "$work/stepped.log" | cut -d' ' -f2
}
more_children() {
	[ "$(children_of_stepped)" -gt "$1" ]
}

# A sequence is aborted at each step, so that the other way through the counter is taken, and flags are live.
gcc -O1 -Wall tests/hostile/programs/carried.c -o "$work/carried" || fail "carried cannot be built"
"$work/carried" >"$work/stepped.log" &
stepped=$!
children+=("$stepped")
wait_for 60 test -s "$work/stepped.log" || fail "carried does not start"
json attach attach "$stepped"
json steps insert calls /Code/carried/carried -p "$stepped"
for i in 1 2 3 4 5; do
	before=$(read_value "$(field id steps)" "$stepped")
	timeout 60 gdb -nx -batch -p "$stepped" -ex 'stepi 1500' -ex 'x/i $pc' -ex detach >"$work/gdb.out" 2>"$work/gdb.err" ||
		fail "gdb: $(tail -2 "$work/gdb.err")"
	grep -q '^=> 0x' "$work/gdb.out" || fail "gdb has not made its steps: $(cat "$work/gdb.out" "$work/gdb.err")"
	kill -0 "$stepped" 2>/dev/null || fail "carried does not survive a debugger's steps"
	wait_for 60 more_children $(($(children_of_stepped) + 1)) || fail "carried's children do not survive a debugger's steps"
	[ "$(read_value "$(field id steps)" "$stepped")" -gt "$before" ] || fail "nothing is counted after the steps"
done
json detach detach -p "$stepped"
[ "$(field left detach)" = 0 ] || fail "something is left: $(cat "$work/detach")"
wait_for 60 more_children $(($(children_of_stepped) + 1)) || fail "carried does not go on without us"
kill "$stepped"
wait "$stepped"
[ $? -eq 143 ] || fail "carried ended with status $?"
say "gdb went through a counter five times, and was followed by children"

pass "stacks walked, tracer named, nothing left"
