#!/bin/bash
# SPDX-License-Identifier: MIT
#
# memcached.sh - memcached (stripped, no exports, 10 threads): its protocol
# tests and a load pass with all functions counted, and nothing is left.
. "$(dirname "$0")/lib.sh"

need memcached memccapable memcslap
port=$(free_port)
seconds=$(short 8 3)

# ask LINE...: sends lines, prints what comes back until the connection ends.
ask() {
	exec 4<>"/dev/tcp/127.0.0.1/$port" || return 1
	printf '%s\r\n' "$@" quit >&4
	timeout 60 cat <&4 | tr -d '\r'
	exec 4>&-
}

stat() {
	ask stats | sed -n "s/^STAT $1 \([0-9]*\)\$/\1/p"
}

memcached -l 127.0.0.1 -p "$port" -U 0 -t 4 -m 64 -u root >"$work/memcached.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 ask version || fail "memcached does not answer"
memccapable -t 60 -h 127.0.0.1 -p "$port" >"$work/capable-0" 2>&1
grep -q 'All tests passed' "$work/capable-0" || skip "memccapable fails without us: $(tail -1 "$work/capable-0")"
memcslap --servers="127.0.0.1:$port" --concurrency=8 --execute-number=500 >"$work/slap-0" 2>&1
settle "$server"
prove save "$server" "$work/picture" || fail "cannot look at the process"

# A load that goes on as long as we work, and says whether all went well.
(
	rounds=0
	while [ ! -e "$work/enough" ]; do
		timeout 300 memcslap --servers="127.0.0.1:$port" --concurrency=8 --execute-number=500 \
			--test=$([ $((rounds % 2)) -eq 0 ] && echo set || echo get) >"$work/slap" 2>&1 || exit 1
		rounds=$((rounds + 1))
	done
	echo "$rounds"
) >"$work/rounds" &
load=$!
children+=("$load")

json attach attach "$server"
say "attach: $(field attach_ms attach) ms, stopped for $(field stop_us attach) us, $(field functions attach) functions"
json all insert calls '/Code/memcached/*' --each -p "$server"
say "all functions: $(wc -l <"$work/all") instances, $(describe all)"
[ "$(field points all | sum)" -ge 100 ] || fail "only $(field points all | sum) points"
end=$((SECONDS + seconds))
runs=0
while [ $SECONDS -lt $end ]; do
	timeout 300 memccapable -t 60 -h 127.0.0.1 -p "$port" >"$work/capable" 2>&1
	grep -q 'All tests passed' "$work/capable" || fail "memccapable: $(grep -v '\[pass\]' "$work/capable" | head -3)"
	runs=$((runs + 1))
done
json values read -p "$server"
active=$(field value values | awk '$1 > 0' | wc -l)
say "$active functions were called, memccapable passed $runs times"
[ "$active" -ge 50 ] || fail "only $active functions were called"

# --- one function out of the many counts what the server counts: find it by its count
ask stats >/dev/null
touch "$work/enough"
wait "$load" || fail "memcslap failed: $(tail -2 "$work/slap")"
settle "$server"
json before read -p "$server"
sets=$(stat cmd_set)
{ for i in $(seq 137); do printf 'set exact%d 0 0 5\r\nvalue\r\n' "$i"; done; printf 'quit\r\n'; } >"$work/sets"
exec 4<>"/dev/tcp/127.0.0.1/$port"
cat "$work/sets" >&4
[ "$(timeout 60 cat <&4 | grep -c STORED)" -eq 137 ] || fail "not every set was stored"
exec 4>&-
[ $(($(stat cmd_set) - sets)) -eq 137 ] || fail "the server counted other sets than ours"
json after read -p "$server"
paste <(field value before) <(field value after) | awk '$2 - $1 == 137' | wc -l >"$work/exact"
say "$(cat "$work/exact") functions were called exactly 137 times by 137 sets"
[ "$(cat "$work/exact")" -ge 1 ] || fail "no function was counted 137 times"

json detach detach -p "$server"
say "detach: $(field restored detach) restored, $(field left detach) left, stopped for $(field stop_us detach) us"
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
memccapable -t 60 -h 127.0.0.1 -p "$port" >"$work/capable" 2>&1
grep -q 'All tests passed' "$work/capable" || fail "memccapable fails after detach"
exact_cycle "$server" '/Code/memcached/*'
kill "$server"
wait "$server" || fail "memcached ended with status $?"
pass "$(field points all | sum) points under load, $(field stop_us all | largest) us; $(cat "$work/rounds") loads"
