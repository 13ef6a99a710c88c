#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fragment.sh - a heap in fragments: random subsets of what is inserted come and
# go, bodies of all sizes, with and without per-thread state, while threads run
# through them, block, recurse, handle signals on other stacks, change contexts.
#
# fear J7: of what random inserts and removals leave, the heap is no larger after
#   many rounds than after few; what is freed is poisoned, and no thread is ever
#   found in it; counts are exact whenever everything rests; at the end all is back
# fear J1: in every round something is removed under threads that are in the middle
#   of it: blocked in a call, below a handler on another stack, deep in a recursion
#
# SEED=20 is where chance begins; ROUNDS or HOURS say how long, DINST_SHORT=1 half a minute;
# TARGETS which: fragments redis.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "needs root"
seed=${SEED:-20}
seconds=$(short 42 8)
rounds=${ROUNDS:-1000000}
[ -n "${ROUNDS:-}" ] && seconds=1000000
[ -n "${HOURS:-}" ] && seconds=$(awk -v h="$HOURS" 'BEGIN { print int(h * 1800) }')
RANDOM=$seed
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
# The daemon that the first command starts, and its mutators, have it from us.
export DINST_POISON=1
metrics=(calls calls calls latency wall_inclusive cpu active)
threads=4
most_active=24

pick() {
	local words=("$@")

	picked=${words[RANDOM % ${#words[@]}]}
}

where() {
	echo "round $round (SEED=$seed)"
}

# must ARGS...: dinst, which may find the program too busy to stop, and then is asked again.
# False where there is no room for an insert.
# Who stands in the middle of a function, in a handler that waits for us, keeps it from being patched
# as part of a whole: then dinst says so, and once the handler has returned it can be.
must() {
	local tries

	for ((tries = 0; tries < 20; tries++)); do
		dinst --json "$@" >"$work/out" 2>"$work/out.err"
		case $? in 0 | 3) return 0 ;; esac
		# A distribution for each of a thousand functions is more than fits.
		[ "$1" = insert ] && grep -q '"code": *"no-memory"' "$work/out" "$work/out.err" && return 1
		grep -qE '"code": *"busy"|did not stop' "$work/out" "$work/out.err" || break
		nap 0.1
	done
	if [ -n "${held:-}" ] && grep -q "\"thread $held is in the middle of what is to be patched" "$work/out.err"; then
		tell unhold unheld
		held=
		in_the_way=$((in_the_way + 1))
		must "$@"
		return
	fi
	grep -H . "/proc/$pid/task/"*/syscall
	fail "$(where): dinst $*: $(head -c 400 "$work/out") $(head -c 400 "$work/out.err")"
}

# The first id of each request that is in; those of a request follow each other.
requests=()

insert() {
	local metric=$1 first last

	shift
	if ! must insert "$metric" "$@" -p "$pid"; then
		refused=$((refused + 1))
		return 0
	fi
	first=$(field id out | sort -n | head -1)
	last=$(field id out | sort -n | tail -1)
	[ -n "$first" ] || fail "$(where): no instance for $metric $*"
	# Somebody is inside: these count once the mutator has tried again, some seconds later at most.
	sed 's/},{/},\n{/g' "$work/out" | sed -n 's/.*"id":\([0-9]*\),.*"pending":[1-9].*/\1/p' >>"$work/pending"
	requests+=("$first-$last")
}

# Takes a random part of a random request out, or all of it.
remove() {
	local at=$((RANDOM % ${#requests[@]})) first last id ids=()

	first=${requests[at]%-*}
	last=${requests[at]#*-}
	if [ $((RANDOM % 3)) -eq 0 ] || [ "$first" = "$last" ]; then
		for ((id = first; id <= last; id++)); do ids+=("$id"); done
		unset "requests[at]"
		requests=("${requests[@]}")
	else
		# What was removed already is no number any more.
		for ((id = first; id <= last; id++)); do
			[ $((RANDOM % 4)) -gt 0 ] && ids+=("$id")
		done
	fi
	dinst --json read -p "$pid" >"$work/there" 2>/dev/null
	field id there >"$work/known"
	# shellcheck disable=SC2207
	ids=($(printf '%s\n' "${ids[@]}" | grep -Fxf "$work/known"))
	[ ${#ids[@]} -gt 0 ] && must remove "${ids[@]}" -p "$pid"
}

change() {
	if [ ${#requests[@]} -eq 0 ] || [ $((RANDOM % 5)) -lt 2 ] && [ ${#requests[@]} -lt $most_active ]; then
		pick "${metrics[@]}"
		local metric=$picked
		pick "$@"
		local glob=$picked
		if [[ $glob == */part_* ]] && [ $((RANDOM % 2)) -eq 0 ]; then
			insert "$metric" "$glob" --each
		else
			insert "$metric" "$glob"
		fi
	else
		remove
	fi
	[ $((RANDOM % 6)) -eq 0 ] && must flush -p "$pid"
	return 0
}

# Sets heap_bytes, heap_code, heap_most, heap_values_most, heap_memory; fails if the mutator has found a thread in freed code.
look() {
	dinst --json ls >"$work/ls" 2>&1
	grep -q '"state": *"running"' "$work/ls" || fail "$(where): $(cat "$work/ls" "$work/dinstd/dinstd.log" | tail -c 600)"
	grep -q 'freed code' "$work/dinstd/"*.log && fail "$(where): $(grep 'freed code' "$work/dinstd/"*.log)"
	heap_bytes=$(field heap_bytes ls)
	heap_code=$(field heap_code ls)
	heap_most=$(field heap_most ls)
	heap_values_most=$(field heap_values_most ls)
	heap_memory=$(field heap_memory ls)
}

# Everything out, and what that leaves: routines and tables of per-thread state.
empty() {
	must remove --all -p "$pid"
	requests=()
	kept=
	must flush -p "$pid"
	must flush -p "$pid"
	look
}

# At least half of what is taken is in use, but for some pages for each size of bodies. Memory that was
# given to values stays theirs, and rows of other sizes fit into what is free: no more than twice what
# they ever took at a time.
bounded() {
	must flush -p "$pid"
	must flush -p "$pid"
	look
	[ "$heap_bytes" -le $((2 * heap_code + (1 << 20))) ] || fail "$(where): $heap_bytes bytes are taken for $heap_code"
	[ "$heap_memory" -le $((heap_most + 2 * heap_values_most + (4 << 20))) ] ||
		fail "$(where): $heap_memory bytes of ours, for at most $heap_most of code and $heap_values_most of values at a time"
}

# The same at the beginning and at the end: how much of the heap it takes, in `standard`.
# Tables of per-thread state stay, once they were needed: 512 KiB of them at most.
measure() {
	local before

	empty
	before=$heap_bytes
	insert calls "$1"
	look
	standard=$((heap_bytes - before))
	empty
}

# ---------------------------------------------------------------- fragments

# tell COMMAND ANSWER: its answer, which begins so, is in `told`.
tell() {
	echo "$1" >&5
	read -r -t 100 told <&6 || fail "$(where): no answer to $1"
	[[ $told == $2* ]] || fail "$(where): '$told' to $1"
}

# Each call of a part is counted once, when all work is done and while some are moved.
exact() {
	local wrong tries others

	for ((tries = 0; tries < 60; tries++)); do
		must read -p "$pid"
		field_pairs >"$work/before"
		tell "go 3" "done"
		must read -p "$pid"
		field_pairs >"$work/after"
		wrong=$(join "$work/before" "$work/after" | awk -v n=$((3 * threads)) '$3 - $2 != n { print $1, $3 - $2 }')
		[ -n "$wrong" ] || break
		# Late is less, and never more.
		others=$(echo "$wrong" | awk -v n=$((3 * threads)) 'FILENAME != "-" { late[$1]; next } !($1 in late) || $2 > n' "$work/pending" - | head -3)
		[ -z "$others" ] || fail "$(where): instances, and what they counted instead of $((3 * threads)): $others"
		nap 0.2
	done
	[ -z "$wrong" ] || fail "$(where): still pending, while everything rests: $wrong"
	[ $tries -eq 0 ] || late=$((late + 1))
	: >"$work/pending"
	checked=$((checked + $(wc -l <"$work/after")))
}

# "id value" of those that count one part.
field_pairs() {
	sed -n 's/.*"id":\([0-9]*\),"metric":"calls","focus":"[^"]*part_[0-9a-f]*","value":\([0-9]*\).*/\1 \2/p' "$work/out" | sort -k1,1
}

fragments_round() {
	local i n=$((2 + RANDOM % 5)) held=

	tell run running
	# Some that stay for as long as anything does.
	[ -n "$kept" ] || must insert calls '/Code/fragments/part_?1?' --each -p "$pid"
	kept=yes
	if [ $((RANDOM % 2)) -eq 0 ]; then
		tell hold "held "
		held=${told#held }
	fi
	for ((i = 0; i < n; i++)); do
		change '/Code/fragments/part_[0-3]?[0-7]' '/Code/fragments/part_?[0-9]?' '/Code/fragments/part_[4-7]*' \
			'/Code/fragments/part_2*' '/Code/fragments/part_??c' dive linger ticked on_tick wait_for_byte \
			'/Code/fragments/*' '/Code/libc.so.6/*context*' '/Code/libc.so.6/mem*'
		[ $((RANDOM % 3)) -eq 0 ] && tell wake awake
	done
	[ -n "$held" ] && tell unhold unheld && held=
	tell stop "done"
	exact
}

fragments_end() {
	[ $checked -gt 0 ] || fail "nothing was compared"
}

start_fragments() {
	mkfifo "$work/in" "$work/answers"
	"$build/tests/live/targets/fragments" $threads <>"$work/in" >"$work/answers" 2>"$work/fragments.err" &
	pid=$!
	children+=("$pid")
	exec 5>"$work/in" 6<"$work/answers"
	read -r -t 100 line <&6 && [ "$line" = ready ] || fail "fragments does not start"
}

# -------------------------------------------------------------------- redis

redis() {
	timeout 60 redis-cli -s "$work/redis.sock" "$@"
}

start_redis() {
	redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
	pid=$!
	children+=("$pid")
	wait_for 100 redis ping || fail "redis-server does not answer"
	redis-benchmark -s "$work/redis.sock" -t set,get,lpush,lpop,zadd,mset -c 8 -P 4 -n 100000000 -q >"$work/benchmark.out" 2>&1 &
	benchmark=$!
	children+=("$benchmark")
}

redis_round() {
	local i n=$((1 + RANDOM % 4)) expected

	for ((i = 0; i < n; i++)); do
		change '/Code/redis-server/*Command' '/Code/redis-server/ae*' '/Code/redis-server/dict*' '/Code/redis-server/process*' \
			'/Code/redis-server/[a-c]*' '/Code/redis-server/[s-z]*' '/Code/libc.so.6/mem*' '/Code/libc.so.6/str*'
	done
	expected=$(printf 'value:%d' $round)
	redis set key:fragment "$expected" >/dev/null
	[ "$(redis get key:fragment)" = "$expected" ] || fail "$(where): redis answers wrongly"
	kill -0 "$benchmark" 2>/dev/null || fail "$(where): the benchmark has ended: $(tail -c 300 "$work/benchmark.out")"
}

redis_end() {
	local before

	kill "$benchmark" 2>/dev/null
	wait "$benchmark" 2>/dev/null
	must insert calls /Code/redis-server/processCommand -p "$pid"
	local id
	id=$(field id out)
	before=$(read_value "$id" "$pid")
	redis -r 50 ping >/dev/null
	[ $(($(read_value "$id" "$pid") - before)) -eq 50 ] || fail "50 commands counted as $(($(read_value "$id" "$pid") - before))"
}

# ---------------------------------------------------------------------- one

# one PROGRAM: rounds until the time is over, and everything back.
one() {
	local program=$1

	round=0
	checked=0
	refused=0
	in_the_way=0
	late=0
	: >"$work/pending"
	requests=()
	"start_$program"
	sleep 0.5
	prove save "$pid" "$work/$program.picture" || fail "cannot look at $program"
	must attach "$pid" -n "$program"
	measure "${standards[$program]}"
	local first=$standard
	begun=$(date +%s)
	while [ $round -lt "$rounds" ] && [ $(($(date +%s) - begun)) -lt "$seconds" ]; do
		round=$((round + 1))
		"${program}_round"
		[ $((round % 8)) -eq 0 ] && empty
		bounded
		[ -n "${VERBOSE:-}" ] && say "$round: ${#requests[@]} requests, $heap_bytes bytes for $heap_code, $heap_most at most, $heap_values_most of values, $heap_memory of memory"
	done
	"${program}_end"
	measure "${standards[$program]}"
	[ "$heap_bytes" -lt $((1 << 20)) ] || fail "$(where): $program: $heap_bytes bytes for nothing"
	[ "$standard" -le $((first + first / 4 + (64 << 10))) ] || fail "$(where): $program: $standard bytes for what took $first at first"
	must detach -p "$pid"
	[ "$(field left out)" = 0 ] || fail "$(where): $program: something is left"
	prove check "$pid" "$work/$program.picture" >"$work/proof" || fail "$program is not as before: $(head -c 600 "$work/proof")"
	say "$program: $round rounds, $refused without room, $in_the_way times a handler in the way, $late rounds with points that came late, $checked exact counts; at most $((heap_most >> 10)) KiB of code at a time, $((heap_memory >> 10)) KiB of memory; $((heap_bytes >> 10)) KiB when empty; the same takes $((first >> 10)) KiB at first and $((standard >> 10)) KiB at last"
	total=$((total + round))
}

declare -A standards=([fragments]='/Code/fragments/part_*' [redis]='/Code/redis-server/*Command')
total=0
for each in ${TARGETS:-fragments redis}; do
	[ "$each" != redis ] || have redis-server redis-cli redis-benchmark || { absent redis "is not installed"; continue; }
	one "$each"
	if [ "$each" = fragments ]; then
		exec 5>&-
	fi
	kill "$pid" 2>/dev/null
done
[ $total -gt 0 ] || skip "nothing of $TARGETS is installed"
pass "$total rounds: no thread in freed code, the heap is bounded, everything is back"
