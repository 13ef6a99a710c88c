#!/bin/bash
# SPDX-License-Identifier: MIT
#
# redis.sh - Debian's redis-server: exact counts of processCommand, all its
# functions counted under load, a fork for BGSAVE meanwhile, and nothing left.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark redis-check-rdb
port=$(free_port)
requests=$(short 200000 60000)

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

commands_executed() {
	cli info commandstats | sed -n 's/.*:calls=\([0-9]*\),.*/\1/p' | sum
}

# replies FILE: the replies to a fixed conversation that sets everything it asks for.
replies() {
	# The first reply says how much an earlier conversation left.
	timeout 120 redis-cli -h 127.0.0.1 -p "$port" <"$work/conversation" 2>&1 | tail -n +2 >"$1"
}

{
	echo "del list hash zset set counter"
	for i in $(seq 400); do
		echo "set key:$i value-$i-$((i * i))"
		echo "get key:$i"
		echo "rpush list $i"
		echo "hset hash field$((i % 37)) $i"
		echo "zadd zset $((i * 7 % 101)) member$i"
		echo "sadd set $((i % 53))"
		echo "incrby counter $i"
	done
	echo "lrange list 0 -1"
	echo "hgetall hash"
	echo "zrangebyscore zset 10 60 withscores"
	echo "scard set"
	echo "eval 'local s = 0 for i = 1, 1000 do s = s + i end return redis.call(\"incrby\", \"counter\", s)' 0"
	echo "eval 'return redis.pcall(\"no-such-command\")' 0"
	echo "sort set limit 0 20"
} >"$work/conversation"

redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no \
	>"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
replies "$work/expected"
replies "$work/expected.again"
cmp -s "$work/expected" "$work/expected.again" || fail "the conversation is not deterministic"
redis-benchmark -h 127.0.0.1 -p "$port" -t set -n 20000 -q >/dev/null 2>&1
settle "$server"
prove save "$server" "$work/picture" || fail "cannot look at the process"

# --- exact between two quiet moments
json attach attach "$server"
say "attach: $(field attach_ms attach) ms, stopped for $(field stop_us attach) us, $(field functions attach) functions"
json one insert calls /Code/redis-server/processCommand -p "$server"
id=$(field id one)
theirs_1=$(commands_executed)
ours_1=$(read_value "$id" "$server")
timeout 400 redis-benchmark -h 127.0.0.1 -p "$port" -t set -n "$requests" -q >"$work/benchmark-1" 2>&1 ||
	fail "redis-benchmark: $(tail -1 "$work/benchmark-1")"
theirs_2=$(commands_executed)
ours_2=$(read_value "$id" "$server")
say "processCommand: $((ours_2 - ours_1)), commandstats: $((theirs_2 - theirs_1))"
[ $((ours_2 - ours_1)) -eq $((theirs_2 - theirs_1)) ] ||
	fail "counted $((ours_2 - ours_1)), executed $((theirs_2 - theirs_1))"
[ $((ours_2 - ours_1)) -ge "$requests" ] || fail "only $((ours_2 - ours_1)) commands"

# --- all functions under load
timeout 800 redis-benchmark -h 127.0.0.1 -p "$port" -t set,get,incr,lpush,lpop,sadd,hset,zadd,lrange_100 \
	-n "$requests" -q >"$work/benchmark-2" 2>&1 &
load=$!
children+=("$load")
sleep 0.3
json all insert calls '/Code/redis-server/*' --each -p "$server"
say "all functions: $(wc -l <"$work/all") instances, $(describe all)"
[ "$(field points all | sum)" -ge 2000 ] || fail "only $(field points all | sum) points"
for i in 1 2 3; do
	replies "$work/got"
	cmp -s "$work/expected" "$work/got" || fail "wrong reply: $(diff "$work/expected" "$work/got" | head -3)"
done
cli bgsave >/dev/null
saved() {
	cli info persistence | tr -d '\r' | grep -q '^rdb_bgsave_in_progress:0'
}
wait_for 120 saved || fail "BGSAVE does not end"
cli info persistence | tr -d '\r' | grep -q '^rdb_last_bgsave_status:ok' || fail "BGSAVE failed"
redis-check-rdb "$work/dump.rdb" >"$work/check" 2>&1 || fail "the dump is damaged: $(tail -1 "$work/check")"
json values read -p "$server"
active=$(field value values | awk '$1 > 0' | wc -l)
say "$active functions were called"
[ "$active" -ge 100 ] || fail "only $active functions were called"

# --- and out again, under load
json detach detach -p "$server"
say "detach: $(field restored detach) restored, $(field left detach) left, stopped for $(field stop_us detach) us"
wait "$load" || fail "redis-benchmark: $(tail -1 "$work/benchmark-2")"
[ "$(tr '\r' '\n' <"$work/benchmark-2" | grep -c 'requests per second')" -ge 9 ] || fail "redis-benchmark did not finish"
replies "$work/got"
cmp -s "$work/expected" "$work/got" || fail "wrong reply after detach"
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
exact_cycle "$server" '/Code/redis-server/*'
cli shutdown nosave >/dev/null 2>&1
wait "$server" || fail "redis-server ended with status $?"
pass "$((ours_2 - ours_1)) commands counted exactly; $(field points all | sum) points under load, $(field stop_us all | largest) us"
