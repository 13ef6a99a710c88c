#!/bin/bash
# SPDX-License-Identifier: MIT
#
# flow.sh - every block and every edge of Debian's redis-server counted while it
# executes all sorts of commands: in each function the executions of its blocks
# are its entries and those of its edges (tests/tools/conserve.c).
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark
port=$(free_port)
requests=$(short 4000 1500)

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

cat >"$work/load" <<END
redis-benchmark -h 127.0.0.1 -p $port -P 4 -c 10 -n $requests -q \
	-t get,set,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset >/dev/null || exit 1
redis-cli -h 127.0.0.1 -p $port >/dev/null <"$work/conversation"
END
cat >"$work/conversation" <<'END'
set a 1
append a xx
getrange a 0 1
setbit b 7 1
bitcount b
hset h a 1 b 2
hgetall h
zadd z 1 a 2 b 3 c
zrangebyscore z 1 2
zrangebylex z - +
sadd s 1 2 3
sinter s s
srandmember s 2
spop s 2
rpush l c a b
linsert l before b x
sort l alpha
lrange l 0 -1
xadd st * f v
xrange st - +
geoadd g 1 1 a
pfadd p a b c
pfcount p
object encoding z
memory usage z
expire a 100
dump z
info all
config get *
command count
command docs get
client list
scan 0
keys *
latency histogram
eval 'local s = 0 for i = 1, 100 do s = s + i end return s' 0
no-such-command
END

redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no \
	>"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
timeout 800 "$build/tests/tools/conserve" "$server" '/Code/redis-server/*' "sh $work/load" \
	>"$work/said" 2>"$work/conserve.err" || fail "$(tail -1 "$work/said") $(head -1 "$work/conserve.err")"
cli ping >/dev/null || fail "redis-server does not answer any more"
pass "$(cat "$work/said")"
