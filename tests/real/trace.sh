#!/bin/bash
# SPDX-License-Identifier: MIT
#
# trace.sh - dinst trace and record on programs that nobody here wrote and that have no debug
# information: redis under a load of known length, what postgres is asked, a call of python's.
# What was recorded is read by babeltrace2, too. Afterwards they are as they were.
. "$(dirname "$0")/lib.sh"

# lines FILE PATTERN
lines() {
	grep -cE -e "$2" "$work/$1"
}

# on_trace FILE ARGS...: dinst trace into FILE in the background; waits until its code is in.
on_trace() {
	local out=$1

	shift
	timeout 300 "$build/dinst" trace -v "$@" >"$work/$out" 2>"$work/$out.err" &
	tracer=$!
	children+=("$tracer")
	wait_for 120 grep -q 'what was inserted' "$work/$out.err" || fail "trace $*: $(cat "$work/$out.err")"
}

redis_part() {
	local port server calls ours dropped recorder events

	port=$(free_port)
	# a copy: who sets uprobes on the installed file hits every process that runs it
	cp "$(command -v redis-server)" "$work/redis-server" || fail "cannot copy redis-server"
	"$work/redis-server" --port "$port" --bind 127.0.0.1 --save '' --dir "$work" >"$work/redis.log" 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 redis-cli -p "$port" ping || fail "redis-server does not answer"
	prove save "$server" "$work/picture" || fail "cannot look at redis"
	# Each entry and return of two functions for each request is there, or counted as dropped.
	"$build/dinst" record -p "$server" processCommand call --args -o "$work/redis.ctf" 2>"$work/record.err" &
	recorder=$!
	children+=("$recorder")
	# it is made when all is inserted
	wait_for 120 test -d "$work/redis.ctf" || fail "record: $(cat "$work/record.err")"
	timeout 300 redis-benchmark -p "$port" -q -n 5000 -c 4 -t set,get >"$work/benchmark" 2>&1 ||
		fail "redis-benchmark: $(tail -1 "$work/benchmark")"
	kill -TERM "$recorder"
	wait "$recorder" || fail "record: $(cat "$work/record.err")"
	ours=$(dinst report "$work/redis.ctf" | sed -n 's/.*: \([0-9]*\) events.*/\1/p')
	dropped=$(dinst report "$work/redis.ctf" | sed -n 's/.*, \([0-9]*\) dropped/\1/p')
	calls=$(((ours + dropped) / 4))
	# and the benchmark's own CONFIG GETs
	[ $(((ours + dropped) % 4)) = 0 ] && [ "$calls" -ge 10000 ] && [ "$calls" -le 10010 ] ||
		fail "$ours events and $dropped dropped are no 4 for each of 10000 requests"
	if have babeltrace2; then
		events=$(babeltrace2 "$work/redis.ctf" 2>/dev/null | wc -l)
		[ "$events" = "$ours" ] || fail "babeltrace2 reads $events events, there are $ours"
		say "redis: $calls calls, $events events read by babeltrace2, $dropped dropped"
	else
		absent babeltrace2 "is not installed"
	fi
	dinst report "$work/redis.ctf" --flame "$work/redis.svg" 2>/dev/null && grep -q processCommand "$work/redis.svg" ||
		fail "no flame graph of the recording"
	# Where commands come from: from the event loop, and so from main.
	on_trace stacks -p "$server" processCommand --stack -c 3 -d 20
	timeout 20 redis-benchmark -p "$port" -q -n 50 -c 2 -t set >/dev/null 2>&1
	wait "$tracer" || fail "trace --stack: $(cat "$work/stacks.err")"
	[ "$(lines stacks 'processCommand\(\)')" = 3 ] || fail "not three calls: $(head -20 "$work/stacks")"
	[ "$(lines stacks '<- readQueryFromClient\+')" = 3 ] && [ "$(lines stacks '<- aeMain\+')" = 3 ] &&
		[ "$(lines stacks '<- main\+')" = 3 ] && [ "$(lines stacks '<- _start\+')" = 3 ] ||
		fail "processCommand is not called by main: $(head -20 "$work/stacks")"
	timeout 60 "$build/dinst" trace -q -p "$server" processCommand --caller -c 1 -d 20 >"$work/caller" &
	tracer=$!
	children+=("$tracer")
	wait_for 20 sh -c "timeout 10 redis-cli -p $port ping >/dev/null; grep -q . '$work/caller'" || fail "no caller"
	wait "$tracer"
	[ "$(lines caller 'processCommand\(\)  <- process[A-Za-z]*\+0x')" = 1 ] || fail "not the caller: $(cat "$work/caller")"
	say "redis: $(sed -n '2p;4p' "$work/stacks" | tr -s ' \n' ' ')"
	# Who calls whom, live.
	on_trace live -p "$server" processCommand --depth 1
	timeout 60 redis-cli -p "$port" set a b >/dev/null
	wait_for 60 grep -qE ' (call|lookupCommand)\(\)' "$work/live"
	kill -TERM "$tracer"
	wait "$tracer" || [ $? = 3 ] || fail "trace: $(cat "$work/live.err")"
	[ "$(lines live 'processCommand\(\) \{')" -ge 1 ] && [ "$(lines live ' (call|lookupCommand)\(\)')" -ge 1 ] ||
		fail "processCommand calls nothing: $(head -20 "$work/live")"
	prove check "$server" "$work/picture" >"$work/proof" || fail "redis is not as before: $(head -c 600 "$work/proof")"
	say "redis: $(cat "$work/proof")"
}

query() {
	timeout 120 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq -c "$1"
}

postgres_part() {
	local bin backend as_postgres

	bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
	if ! [ -x "$bin/initdb" ] || ! id postgres >/dev/null 2>&1; then
		absent postgres "is not installed"
		return
	fi
	as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work/data" PATH="$bin:$PATH")
	mkdir "$work/data"
	chown postgres "$work/data"
	"${as_postgres[@]}" initdb -D "$work/data/db" -A trust -N >"$work/initdb.log" 2>&1 || fail "initdb: $(tail -2 "$work/initdb.log")"
	"${as_postgres[@]}" postgres -D "$work/data/db" -c listen_addresses= -c unix_socket_directories="$work/data" \
		-c fsync=off >"$work/postgres.log" 2>&1 &
	children+=("$!")
	chmod 711 "$work/data"
	wait_for 60 query 'select 1' || fail "postgres does not answer"
	# One backend, which is asked when all is inserted.
	mkfifo "$work/questions"
	timeout 800 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq \
		<"$work/questions" >"$work/answers" 2>&1 &
	asker=$!
	children+=("$asker")
	exec 5>"$work/questions"
	echo "select pg_backend_pid();" >&5
	wait_for 60 test -s "$work/answers" || fail "there is no backend"
	backend=$(head -1 "$work/answers")
	on_trace queries -p "$backend" pg_parse_query --args -c 2 -d 200
	{
		echo "select 40 + 2 as answer;"
		echo "select 'a text that is longer than what is recorded of it, and so on, and so on';"
	} >&5
	wait "$tracer" || [ $? = 3 ] || fail "trace: $(cat "$work/queries.err")"
	grep -q 'pg_parse_query("select 40 + 2 as answer;"' "$work/queries" || fail "not the query: $(cat "$work/queries")"
	grep -q "pg_parse_query(\"select 'a text that is longer.*\"\\.\\.\\." "$work/queries" || fail "not the second query: $(cat "$work/queries")"
	echo '\q' >&5
	exec 5>&-
	wait "$asker" || fail "psql: $(tail -1 "$work/answers")"
	[ "$(sed -n 2p "$work/answers")" = 42 ] || fail "postgres answers $(sed -n 2p "$work/answers")"
	say "postgres: $(head -1 "$work/queries")"
}

python_part() {
	local target

	have python3 || { absent python "is not installed"; return; }
	python3 -c 'import time
print("ready", flush=True)
while True:
    "%d of %d" % (3, 4)
    time.sleep(0.01)' >"$work/looping" &
	target=$!
	children+=("$target")
	wait_for 60 test -s "$work/looping" || fail "python does not start"
	dinst trace -p "$target" PyUnicode_Format --args --return -c 5 -d 200 >"$work/python" 2>"$work/python.err" ||
		fail "python: $(cat "$work/python.err")"
	[ "$(lines python 'PyUnicode_Format\(.*\) = .*\[')" -ge 1 ] || fail "python: $(cat "$work/python")"
	kill -0 "$target" || fail "python has ended"
	say "python: $(head -1 "$work/python")"
}

need redis-server redis-cli redis-benchmark setpriv
need_clock
redis_part
postgres_part
python_part
pass "redis, postgres and python traced"
