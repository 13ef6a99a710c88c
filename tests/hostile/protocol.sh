#!/bin/bash
# SPDX-License-Identifier: MIT
#
# protocol.sh - a daemon between clients of every bad kind and one good one. Two
# servers under load: the good client's, and one that the bad ones attach to, insert
# into and detach from, gone before they hear the answer.
#
# fear L3: beside clients that send rubbish, too much, too slowly, never read, or vanish
#   in the middle of an insertion, a good one gets every answer, the daemon's memory and
#   descriptors stay bounded, and both programs are as before
. "$(dirname "$0")/lib.sh"

need prlimit
seconds=$(short 50 8)
seed=${SEED:-20261121}
memory_max=$((900 << 10)) # KiB of the daemon: 512 MiB of answers that nobody takes, and what else is allowed

start_server
# The bad ones' program has a name of its own: they choose it by that.
cp "$build/examples/demo-server" "$work/rudetarget"
"$work/rudetarget" "$work/other" 3 > >(exec cat >"$work/other.log") 2>&1 &
other=$!
children+=("$other")
wait_for 60 grep -q ready "$work/other.log" || fail "the other server does not start"
"$build/examples/demo-load" "$work/other" 1 >"$work/otherload.log" 2>"$work/otherload.err" &
other_load=$!
children+=("$other_load")
wait_for 60 test -s "$work/otherload.log" || fail "the other load does not start"
prove save "$other" "$work/other.picture" || fail "cannot look at the other server"

# In this session, not in one of its own, as the client would start it. A session is a group of the
# scheduler where nothing else groups (autogroups, sched(7)), and Linux 6.18 lets who is ready to run wait where
# several groups compute: looked at every 20 ms, beside another such test and two more loops on two CPUs, a daemon
# was not run for 23 s at most, all of it in /proc/PID/schedstat as waiting for a CPU (and once waited 12 s for a
# lock that a thread of its own had which was not run). So a good client waits for a minute.
"$build/dinstd" -s "$DINST_SOCKET" 2>>"$work/dinstd/dinstd.log" &
children+=("$!")
wait_for 60 test -S "$DINST_SOCKET" || fail "the daemon does not start"
json attach attach "$server" -n good
json insert insert calls /Code/demo-server/answer_request -p good
daemon=$(cut -d' ' -f1 "$work/dinstd/dinstd.lock")
descriptors() {
	ls "/proc/$daemon/fd" 2>/dev/null | wc -l
}
before=$(descriptors)

"$build/tests/tools/rude" good "$DINST_SOCKET" "$seconds" good 60000 >"$work/good.out" 2>&1 &
good=$!
children+=("$good")
wait_for 60 grep -q ready "$work/good.out" || fail "the good client does not get in"
"$build/tests/tools/rude" bad "$DINST_SOCKET" "$seconds" "$seed" rude rudetarget >"$work/bad.out" 2>&1 &
bad=$!
children+=("$bad")

most=0
while kill -0 "$bad" 2>/dev/null; do
	size=$(awk '/^VmRSS:/ { print $2 }' "/proc/$daemon/status" 2>/dev/null)
	[ -n "$size" ] || fail "seed $seed: the daemon has ended: $(tail -3 "$work/dinstd/dinstd.log")"
	[ "$size" -gt "$most" ] && most=$size
	nap 0.1
done
wait "$bad" || fail "seed $seed: the bad clients: $(tail -2 "$work/bad.out")"
wait "$good" || fail "seed $seed: the good client: $(tail -2 "$work/good.out")"
[ "$most" -le "$memory_max" ] || fail "seed $seed: the daemon took $most KiB"

# What was begun is finished or given up; then the good one's session is all there is.
wait_for 60 dinst --json ls || fail "seed $seed: the daemon does not answer"
dinst --json detach -p rude >"$work/rude.detach" 2>&1
dinst --json read -p good >"$work/values" 2>"$work/values.err" || fail "seed $seed: read: $(cat "$work/values.err")"
[ "$(field value values | largest)" -gt 0 ] || fail "seed $seed: nothing was counted"
few() {
	[ "$(descriptors)" -le $((before + 4)) ]
}
wait_for 60 few || fail "seed $seed: $(descriptors) descriptors, $before before: $(ls -l "/proc/$daemon/fd")"
alone() {
	[ "$(cat /proc/[0-9]*/status 2>/dev/null | awk -v daemon="$daemon" '/^PPid:/ && $2 == daemon { n++ } END { print n + 0 }')" -le 1 ]
}
wait_for 60 alone || fail "seed $seed: mutators are left"
dinst repair "$other" >"$work/repair" 2>&1
prove check "$other" "$work/other.picture" >"$work/proof.other" ||
	fail "seed $seed: the other server is not as before: $(head -c 600 "$work/proof.other")"
kill "$other_load"
wait "$other_load" || fail "seed $seed: wrong answers of the other server: $(head -3 "$work/otherload.err")"
json detach detach -p good
end_server
say "$(tail -1 "$work/bad.out")"
say "$(grep -c 'stood still' "$work/dinstd/dinstd.log") times the daemon stood still: $(grep 'stood still' "$work/dinstd/dinstd.log" | cut -d: -f4- | sort -t' ' -k5n | tail -1)"
pass "good client: $(tail -1 "$work/good.out"); daemon: $((most >> 10)) MiB at most"
