#!/bin/bash
# SPDX-License-Identifier: MIT
#
# limits.sh - targets in narrow places: no file may grow, no descriptor is
# free, little address space, memory locked, stopped by a signal. Each works, but that
# it may be refused where nothing more can be mapped; it lives and is left as it was.
. "$(dirname "$0")/lib.sh"

need prlimit

# asked FILE ARGS...: dinst, which may find the program too busy to stop on a loaded machine, and then is asked again.
asked() {
	local file=$1 status try

	shift
	for ((try = 0; try < 20; try++)); do
		dinst --json "$@" >"$work/$file" 2>"$work/$file.err"
		status=$?
		grep -q '"code": *"busy"' "$work/$file" "$work/$file.err" || break
	done
	return $status
}

# one TITLE [WORDS]: attaches, counts, detaches; the load checks each answer. With WORDS it may be refused with these.
one() {
	local title=$1 words=${2:-} status

	asked attach attach "$server" -n limited
	status=$?
	if [ $status -eq 0 ]; then
		asked insert insert calls /Code/demo-server/answer_request -p limited
		status=$?
	fi
	if [ $status -eq 1 ]; then
		[ -n "$words" ] || fail "$title: refused: $(cat "$work"/attach* "$work"/insert*)"
		cat "$work"/attach* "$work"/insert* 2>/dev/null | grep -qE "\"message\": *\"[^\"]*$words" ||
			fail "$title: refused, not with '$words': $(cat "$work"/attach* "$work"/insert*)"
		say "$title: refused: $(cat "$work/attach" "$work/insert" "$work/attach.err" "$work/insert.err" 2>/dev/null | sed -n 's/.*"message": *"\(.*\)".*/\1/p' | head -1)"
		dinst --json detach -p limited >/dev/null 2>&1
	elif [ $status -eq 0 ]; then
		wait_for 60 counts "$(field id insert)" limited || fail "$title: nothing was counted"
		json detach detach -p limited
		[ "$(field left detach)" = 0 ] || fail "$title: something is left"
		say "$title: worked"
	else
		fail "$title: status $status: $(cat "$work/attach" "$work/attach.err")"
	fi
	end_server
	rm -f "$work"/attach* "$work"/insert* "$work"/load.*
}

# fear I3, B7: limits of the target: files may not grow, no descriptor is free, little address space or none,
#   little locked memory: it works, or is refused with the reason where there is no address space at all, and the target lives
start_server prlimit --fsize=0
one "no file may grow"

start_server
# Not one below the first that is free: it has inherited some of the shell's high numbers, so that of as many as
# it has open some would be free.
count=0
while [ -e "/proc/$server/fd/$count" ]; do count=$((count + 1)); done
prlimit --pid "$server" --nofile="$count:$count"
one "no descriptor is free"

start_server
size=$(awk '/^VmSize/ { printf "%.0f\n", $2 * 1024 }' "/proc/$server/status")
prlimit --pid "$server" --as=$((size + 8 * 1024 * 1024))
one "8 MiB of address space left"

start_server
prlimit --pid "$server" --as="$size"
one "no address space left" 'no memory left .*RLIMIT_AS'

start_server prlimit --memlock=65536
one "little memory may be locked"

# --- stopped by a signal: instrumented all the same, and still stopped afterwards
counted() {
	[ "$(dinst --json read -p stopped | sed -n 's/.*"value": *\([0-9]*\).*/\1/p' | sum)" -gt 0 ]
}
# said_again NUMBER: the load, which tells how far it is ten times a second, has done so more than
# NUMBER times, and the last two times it was as far.
said_again() {
	[ "$(wc -l <"$work/load.log")" -gt $(($1 + 1)) ] && [ "$(tail -2 "$work/load.log" | cut -d' ' -f2 | uniq | wc -l)" = 1 ]
}
rest() {
	wait_for 60 grep -q 'T (stopped)' "/proc/$server/status" || fail "$1"
	wait_for 60 said_again "$(wc -l <"$work/load.log")" || fail "$1"
}
stop_it() {
	kill -STOP "$server"
	rest "it does not stop"
	before=$(answered)
}
# still_stopped WHAT: a thread that our stop lets go stops again when a processor takes it up, before
# it does anything of its own: until then it is not T, but answers nothing either.
still_stopped() {
	rest "the $1 let it go on"
	[ "$(answered)" = "$before" ] || fail "the $1 let it answer"
}
start_server
stop_it
json attach attach "$server" -n stopped
json insert insert calls "$all" --each -p stopped
still_stopped insert
kill -CONT "$server"
wait_for 60 counted || fail "nothing was counted"
stop_it
json detach detach -p stopped
still_stopped detach
kill -CONT "$server"
[ "$(field left detach)" = 0 ] || say "$(field left detach) pieces stayed while it was stopped"
sleep 0.2
end_server
say "stopped by a signal: worked"
# --- a daemon without a free descriptor for its clients, nor one in reserve: it waits, and can be told to end
crowded() {
	"$build/dinstd" -s "$work/crowded/d.sock" 2>"$work/crowded.log" &
	crowded=$!
	children+=("$crowded")
	wait_for 60 test -S "$work/crowded/d.sock"
}
mkdir -m 700 "$work/crowded"
crowded || fail "the daemon with all descriptors does not start"
# The last one of its own is libuv's reserve: the next daemon does not get it, and has nothing else left.
# High numbers are the shell's.
last=$(find "/proc/$crowded/fd" -mindepth 1 -printf '%f\n' | awk '$1 < 100' | largest)
kill "$crowded"
wait "$crowded"
rm -f "$work/crowded.log" # what the first one said is not what the next one says
(ulimit -n "$last" && exec "$build/dinstd" -s "$work/crowded/d.sock" 2>"$work/crowded.log") &
crowded=$!
children+=("$crowded")
listening() {
	grep -qs 'socket' "$work/crowded.log" || is_no_child "$crowded"
}
wait_for 60 listening || fail "without a descriptor for clients it says nothing: $(tail -3 "$work/crowded.log")"
if is_child "$crowded"; then
	for _ in 1 2 3; do
		DINST_SOCKET=$work/crowded/d.sock timeout 3 "$build/dinst" ls >/dev/null 2>&1
	done
	wait_for 20 grep -q 'too many open files' "$work/crowded.log" || fail "a descriptor is free for clients: $last were not few enough"
	[ "$(grep -c 'too many open files' "$work/crowded.log")" -le 20 ] || fail "without a descriptor for clients it does nothing but say so"
	kill "$crowded"
	wait_for 20 is_no_child "$crowded" || fail "without a descriptor for clients it cannot be told to end"
	wait "$crowded" || fail "without a descriptor for clients it ended with status $?"
	say "no descriptor for clients: waits, and ends when it is told to"
else
	# Whoever needs more of them than there were says so, and does not die of it.
	wait "$crowded"
	status=$?
	[ $status -ne 0 ] && [ $status -lt 124 ] && grep -qi 'too many open files' "$work/crowded.log" ||
		fail "without a descriptor for clients it ended with status $status: $(tail -3 "$work/crowded.log")"
	say "no descriptor for clients: says so, and ends"
fi
pass "five limits and a stopped process"
