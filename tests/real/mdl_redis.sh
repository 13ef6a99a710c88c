#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mdl_redis.sh - metrics of redis-server under redis-benchmark, against what INFO
# says: calls and latency of commands, bytes in and out, allocation.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark
port=$(free_port)
requests=$(short 200000 60000)

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# stat COMMAND FIELD: of INFO commandstats.
stat() {
	cli info commandstats | tr -d '\r' | sed -n "s/^cmdstat_$1:\(.*,\)\{0,1\}$2=\([0-9]*\).*/\2/p"
}

all_calls() {
	cli info commandstats | sed -n 's/.*:calls=\([0-9]*\),.*/\1/p' | sum
}

# value ID KEY: of a distribution or counter.
value() {
	dinst --json read "$1" -p "$server" | sed -n "s/.*\"$2\": *\(-\{0,1\}[0-9]*\).*/\1/p" | head -1
}

bench() {
	timeout 400 redis-benchmark -h 127.0.0.1 -p "$port" -q "$@" >"$work/benchmark" 2>&1 ||
		fail "redis-benchmark: $(tail -1 "$work/benchmark")"
}

# near WHAT GOT WANTED PERCENT
near() {
	awk -v got="$2" -v wanted="$3" -v percent="$4" 'BEGIN { d = got - wanted; if (d < 0) d = -d; exit !(d <= wanted * percent / 100) }' ||
		fail "$1: $2 instead of $3 ($4 % are allowed)"
}

redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
bench -t lpush -n 1000
prove save "$server" "$work/picture" || fail "cannot look at the process"

# What functions of redis's own would say, computed by inserted code.
cat >"$work/own.mdl" <<'END'
list command_func is procedure { items { "processCommand" }; }
metric plain_clients { base is counter { foreach f in command_func append preInsn f.entry
	(* if ((getClientType($arg[0]) & 0xffffffff) == 0) plain_clients++; *) } }
metric used_memory { units bytes; style SampledFunction; base is counter { foreach f in command_func append preInsn f.entry
	(* used_memory = zmalloc_used_memory(); *) } }
END
json attach attach "$server" -M "$work/own.mdl"
json process insert latency /Code/redis-server/processCommand -p "$server"
json lrange insert latency /Code/redis-server/lrangeCommand -p "$server"
json call insert latency /Code/redis-server/call -p "$server"
say "three distributions: stopped for $(field stop_us process | largest) us"
process=$(field id process)
lrange=$(field id lrange)
call=$(field id call)

# --- how often: every command but the INFO that asks
before=$(all_calls)
count_before=$(value "$process" count)
bench -t set,get,lpush -n "$requests"
after=$(all_calls)
count=$(($(value "$process" count) - count_before))
say "processCommand: $count, commandstats: $((after - before))"
[ "$count" -eq $((after - before)) ] || fail "counted $count, executed $((after - before))"
[ "$(($(value "$call" count)))" -ge "$count" ] || fail "call() was called less often than processCommand()"

# --- how long: INFO times the command's own function, inside of call(). Between its look at the
# clock and ours the thread may lose its processor: no longer than it was kept waiting for one.
kept_waiting() {
	awk '{ print $2 }' "/proc/$server/task/$server/schedstat"
}
kept=$(kept_waiting)
bench -t lrange_600 -n "$(short 30000 10000)" -c 20
usec=$(stat lrange usec)
calls=$(stat lrange calls)
kept=$(($(kept_waiting) - kept))
ns=$(value "$lrange" sum)
[ "$(value "$lrange" count)" -eq "$calls" ] || fail "lrangeCommand: $(value "$lrange" count), INFO: $calls"
say "lrangeCommand: $((ns / calls)) ns a call, INFO: $((usec * 1000 / calls)) ns; $calls calls"
difference=$((ns - usec * 1000))
[ $((${difference#-} - kept)) -le $((usec * 1000 / 20)) ] ||
	fail "lrangeCommand: $ns ns, INFO: $((usec * 1000)) ns; kept waiting for a processor for $kept ns (5 % and that are allowed)"

# --- percentiles, in read and in watch
p50=$(value "$lrange" p50)
p99=$(value "$lrange" p99)
[ "${p50:-0}" -gt 0 ] && [ "${p99:-0}" -ge "$p50" ] || fail "percentiles: p50 '$p50', p99 '$p99'"
say "p50 $p50 ns, p99 $p99 ns"
dinst read "$lrange" -p "$server" >"$work/read.txt" 2>&1 || fail "read: $(cat "$work/read.txt")"
grep -qi p99 "$work/read.txt" || fail "read does not show percentiles: $(cat "$work/read.txt")"
dinst watch "$lrange" -c 2 -i 0.2 -p "$server" >"$work/watch.txt" 2>&1 || fail "watch: $(cat "$work/watch.txt")"
grep -qi p99 "$work/watch.txt" || fail "watch does not show percentiles: $(cat "$work/watch.txt")"

# --- guarded: the bytes that commands write into replies; allocation by the allocator in use
json bytes insert io_bytes -p "$server"
json alloc insert alloc_bytes /Code/redis-server/call -p "$server"
in_before=$(cli info stats | tr -d '\r' | sed -n 's/^total_net_\(input\|output\)_bytes:\([0-9]*\)/\2/p' | sum)
ours_before=$(value "$(field id bytes)" value)
bench -t get,set -n "$requests" -d 100
ours=$(($(value "$(field id bytes)" value) - ours_before))
in=$(($(cli info stats | tr -d '\r' | sed -n 's/^total_net_\(input\|output\)_bytes:\([0-9]*\)/\2/p' | sum) - in_before))
say "io_bytes: $ours, INFO's net bytes: $in"
near "io_bytes" "$ours" "$in" 3
[ "$(value "$(field id alloc)" value)" -gt 0 ] || fail "nothing was allocated in call()"
say "alloc_bytes in call(): $(value "$(field id alloc)" value)"

# --- calls of its functions: a system call for each pointer that they follow
json plain insert plain_clients -p "$server"
json used insert used_memory -p "$server"
count_before=$(value "$process" count)
plain_before=$(value "$(field id plain)" value)
bench -t get -n "$(short 30000 10000)"
used=$(cli info memory | tr -d '\r' | sed -n 's/^used_memory:\([0-9]*\)/\1/p')
count=$(($(value "$process" count) - count_before))
plain=$(($(value "$(field id plain)" value) - plain_before))
say "getClientType() is 0 for $plain of $count commands; zmalloc_used_memory(): $(value "$(field id used)" value), INFO: $used"
[ "$plain" -eq "$count" ] || fail "$plain of $count commands came from plain clients"
near "used_memory" "$(value "$(field id used)" value)" "$used" 10

json detach detach -p "$server"
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
cli shutdown nosave >/dev/null 2>&1
wait "$server" || fail "redis-server ended with status $?"
pass "$count commands, lrange $((ns / calls)) ns against INFO's $((usec * 1000 / calls)) ns, p50 $p50, p99 $p99"
