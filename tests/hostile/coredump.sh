#!/bin/bash
# SPDX-License-Identifier: MIT
#
# coredump.sh - a program that is instrumented crashes, and the kernel pipes its memory to a
# program that keeps it (as systemd-coredump, apport, abrt), slowly: all of it arrives,
# whatever dinst does meanwhile.
. "$(dirname "$0")/lib.sh"

setting=/proc/sys/kernel/core_pattern
# There is one for all: whoever runs this beside us has it first, or waits.
exec 9<$setting && flock -w 600 9 || skip "somebody else keeps $setting to himself"
# Somebody else's way to keep them is left alone.
[ "$(cat $setting)" = core ] || skip "core dumps are kept by somebody ($setting is not \"core\")"
echo core 2>/dev/null >$setting || skip "$setting cannot be written"

mib=96
cat >"$work/keep" <<KEEP
#!/bin/bash
# Of other programs that crash meanwhile nothing is kept.
[ "\$1" = dumping ] || exec cat >/dev/null
# The pipe is full, and the program waits in the midst of its dump, until it is told to go on.
head -c 1000000 >"$work/core"
touch "$work/begun"
while [ ! -e "$work/go" ]; do sleep 0.05; done
cat >>"$work/core"
touch "$work/kept"
KEEP
chmod 755 "$work/keep"
trap 'echo core >$setting; finish' EXIT
echo "|$work/keep %e" >$setting

# start: the program, told to crash later
start() {
	# What the one before has said, too: this one opens its file some time after it was begun.
	rm -f "$work/begun" "$work/go" "$work/kept" "$work/core" "$work/dumping.log"
	"$build/tests/live/targets/dumping" $mib >"$work/dumping.log" 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 grep -q ready "$work/dumping.log" || fail "the program does not start"
}

# crash: it crashes, and has written a part of its dump
crash() {
	kill -USR1 "$server"
	wait_for 60 test -e "$work/begun" || fail "$1: no core dump is written"
}

# whole TITLE: the rest of the dump arrives, and there is all of the memory in it
whole() {
	local size

	touch "$work/go"
	wait_for 100 test -e "$work/kept" || fail "$1: the core dump does not end"
	wait "$server" 2>/dev/null
	size=$(stat -c %s "$work/core")
	[ "$size" -ge $((mib << 20)) ] || fail "$1: $size bytes of more than $((mib << 20)) were kept"
	# The same program without us: our memory may come to that, its own is all there.
	plain=${plain:-$size}
	[ "$size" -ge "$plain" ] || fail "$1: $size bytes were kept, $plain without dinst"
	say "$1: $size bytes"
}

start
crash "without dinst"
whole "without dinst"

# fear G7: the program crashes, and goes on with its core dump: it is not stopped in the midst of it
start
json attach attach "$server" -n dumping
json insert insert calls /Code/dumping/work -p dumping
crash "inserting"
dinst insert calls /Code/dumping/main -p dumping >"$work/said" 2>&1 && fail "inserted into what has crashed"
grep -q "core dump" "$work/said" || fail "not told why: $(cat "$work/said")"
dinst detach -p dumping >"$work/said" 2>&1
whole "inserting"
dinst detach -p dumping >"$work/said" 2>&1

# fear G7: the same while somebody looks at what it does
start
dinst top "$server" -i 0.2 -d 4 >"$work/top" 2>&1 &
top=$!
children+=("$top")
wait_for 60 grep -q work "$work/top" || fail "top shows nothing: $(cat "$work/top")"
crash "top"
sleep 1
whole "top"
wait "$top"
status=$?
[ $status -le 1 ] || fail "top ended with status $status: $(tail -3 "$work/top")"
pass "whole core dumps, while points went in and top looked on"
