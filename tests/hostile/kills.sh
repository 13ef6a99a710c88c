#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kills.sh - the mutator, the daemon or both are killed at random moments, or
# stopped for a while, while instrumentation comes and goes in programs that work.
#
# redis-server answers a benchmark and a client that knows the answers, a backend
# of postgres computes what is known while the books of pgbench have to balance,
# the tortured program compares all registers, threads throw and longjmp,
# processes fork, nginx changes its workers. After each kill the next attach, or
# `dinst repair`, has to take everything out: the program lives and answers
# rightly, its code and mappings are as before, no thread is traced, and rseq_cs
# of none leads to memory that is gone.
#
# fear J2: the mutator, the daemon or both are killed at any moment of attach, insert, remove,
#   flush, detach and repair, in redis, postgres, nginx and hostile programs; none ever answers wrongly,
#   the next attach or `dinst repair` takes everything out, and the text equals the file
# fear J6: a mutator that outlives its daemon is waited for; nothing comes in after a repair
#
# SEED=20 is where chance begins; KILLS (make kills: 1,000), ROUNDS or HOURS say how long, DINST_SHORT=1 a quarter of
# a minute; TARGETS which of them.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "needs root"
seed=${SEED:-20}
rounds=${ROUNDS:-1000000}
wanted_kills=${KILLS:-1000000}
seconds=$(short 70 15)
[ -n "${ROUNDS:-}${KILLS:-}" ] && seconds=1000000
[ -n "${HOURS:-}" ] && seconds=$(awk -v h="$HOURS" 'BEGIN { print int(h * 3600) }')
RANDOM=$seed
metrics=(calls calls latency wall wall_inclusive cpu cpu_inclusive active sync_wait io_wait alloc_live)
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
# Nobody but us starts daemons: who is to be killed must be known.
export DINST_DAEMON=/bin/false

declare -A pid driver globs program_of rounds_of
wide="/Code/@/* /Code/libc.so.6/* -"
targets=()

# pick WORD...: one of them. Not in a subshell, whose chance would be another one.
pick() {
	local words=("$@")

	picked=${words[RANDOM % ${#words[@]}]}
}

# ------------------------------------------------------------------ targets

# add NAME PID GLOBS: a target that is ready; all of a program, of libc or of everything takes
# long, and is seldom asked for.
add() {
	targets+=("$1")
	pid[$1]=$2
	globs[$1]=$3
	rounds_of[$1]=0
	children+=("$2")
}

# drive NAME COMMAND...: runs it in the background; a line a turn in NAME.turns, mistakes in NAME.wrong.
drive() {
	local name=$1

	shift
	: >"$work/$name.turn"
	: >"$work/$name.wrong"
	"$@" >"$work/$name.turns" 2>>"$work/$name.wrong" &
	driver[$name]=$!
	children+=("$!")
}

# turn_of NAME: all that works is what this one answers, and the others wait: two processors do not
# become more. Without NAME all go on.
turn_of() {
	local each

	for each in "${targets[@]}"; do
		if [ "${1:-$each}" = "$each" ]; then : >"$work/$each.turn"; else rm -f "$work/$each.turn"; fi
	done
	[ -z "${benchmark:-}" ] || if [ "${1:-redis}" = redis ]; then kill -CONT "$benchmark"; else kill -STOP "$benchmark"; fi
}

# my_turn NAME: waits for it, in a driver.
my_turn() {
	while [ ! -e "$work/$1.turn" ]; do
		nap 0.05
	done
}

# Who was stopped cannot end.
trap '[ -z "${benchmark:-}" ] || kill -CONT "$benchmark" 2>/dev/null; finish' EXIT

# converse NAME COMMAND...: tells the program of tests/live/targets that was started last one after the other.
converse() {
	local name=$1 i=0 line
	local commands=("${@:2}")

	exec 5>"$work/$name.in" 6<"$work/$name.out"
	while :; do
		my_turn "$name"
		echo "${commands[i++ % ${#commands[@]}]}" >&5 || break
		if ! read -r -t 100 line <&6 || [ "$line" != "done" ]; then
			echo "'${line:-}' instead of done; what its threads wait in:" >&2
			grep -s . "/proc/$started_pid/task/"*/{wchan,syscall} >&2
			return 1
		fi
		echo "$i"
		nap 0.02
	done
}

# program NAME ARGUMENT...: starts a program of tests/live/targets that reads commands.
program() {
	local line

	mkfifo "$work/$1.in" "$work/$1.out"
	"$build/tests/live/targets/$1" "${@:2}" <>"$work/$1.in" >"$work/$1.out" 2>"$work/$1.err" &
	started_pid=$!
	exec 7<"$work/$1.out"
	read -r -t 100 line <&7 && [ "$line" = ready ] || fail "$1 does not start"
}

redis() {
	timeout 60 redis-cli -s "$work/redis.sock" "$@"
}

# What is right is known here: each answer is compared.
ask_redis() {
	local i=0 k

	redis del counter >/dev/null
	while :; do
		my_turn redis
		for k in 1 2 3 4 5 6 7 8 9; do
			echo "set key:$k value:$i:$k"
			echo "get key:$k"
			echo "incr counter"
			echo "lpush list:$i $k"
			echo "llen list:$i"
		done >"$work/redis.ask"
		echo "del list:$i" >>"$work/redis.ask"
		for k in 1 2 3 4 5 6 7 8 9; do
			printf 'OK\nvalue:%s:%s\n%s\n%s\n%s\n' "$i" "$k" $((i * 9 + k)) "$k" "$k"
		done >"$work/redis.right"
		echo 1 >>"$work/redis.right"
		redis <"$work/redis.ask" >"$work/redis.answer" 2>&1
		if ! cmp -s "$work/redis.answer" "$work/redis.right"; then
			diff "$work/redis.right" "$work/redis.answer" | head -5 >&2
			return 1
		fi
		i=$((i + 1))
		echo "$i"
		nap 0.02
	done
}

start_redis() {
	redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
	add redis $! "/Code/@/*Command /Code/@/process* /Code/@/ae* /Code/libc.so.6/malloc /Code/libc.so.6/*read*"
	wait_for 100 redis ping || fail "redis-server does not answer"
	redis-benchmark -s "$work/redis.sock" -t set,get,lpush,lpop,zadd,mset -c 8 -P 4 -n 100000000 -l -q >"$work/benchmark.out" 2>&1 &
	benchmark=$!
	children+=("$benchmark")
	drive redis ask_redis
}

fetch_nginx() {
	local i=0

	while :; do
		my_turn nginx
		if ! timeout 60 curl -sf --retry 2 "http://127.0.0.1:$port/large" >"$work/got" || ! cmp -s "$work/got" "$work/html/large"; then
			echo "a wrong answer, or none" >&2
			return 1
		fi
		i=$((i + 1))
		[ $((i % 20)) -eq 0 ] && kill -HUP "$1"
		echo "$i"
		nap 0.05
	done
}

start_nginx() {
	port=$(free_port)
	mkdir -p "$work/html"
	chmod 755 "$work" "$work/html"
	head -c 300000 /dev/urandom >"$work/html/large"
	chmod 644 "$work/html/large"
	cat >"$work/nginx.conf" <<-END
		daemon off; worker_processes 2; pid $work/nginx.pid; error_log $work/nginx.errors;
		events { worker_connections 256; }
		http {
			access_log off; sendfile on;
			client_body_temp_path $work/t; proxy_temp_path $work/t; fastcgi_temp_path $work/t;
			uwsgi_temp_path $work/t; scgi_temp_path $work/t;
			server { listen 127.0.0.1:$port; root $work/html; }
		}
	END
	nginx -c "$work/nginx.conf" -p "$work" >"$work/nginx.log" 2>&1 &
	add nginx $! "/Code/@/ngx_http_* /Code/@/ngx_event* /Code/libc.so.6/malloc"
	wait_for 100 curl -sf -o "$work/got" "http://127.0.0.1:$port/large" || fail "nginx does not answer"
	drive nginx fetch_nginx "${pid[nginx]}"
}

start_throws() {
	program throws 4
	add throws "$started_pid" "/Code/@/* /Code/@/* /Code/libc.so.6/malloc /Code/libc.so.6/*jmp*"
	drive throws converse throws "go 30"
}

start_forks() {
	program forks
	add forks "$started_pid" "/Code/@/hit /Code/@/* /Code/libc.so.6/*fork*"
	drive forks converse forks "fork 2 300" "tree 3 100" "vfork 2" "forkexec 2" "spawn 1" "fork 3 50"
}

start_torture() {
	program torture 3 storm ends
	add torture "$started_pid" "/Code/@/t_* /Code/@/t_[a-f]* /Code/@/t_[g-z]*"
	drive torture converse torture "run 3" "run 10"
}

# ------------------------------------------------------------------ postgres

# Debian keeps the server's programs apart from the path.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)

as_postgres() {
	exec setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work/data" \
		PATH="$bin:$PATH" PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres "$@"
}

query() {
	PGHOST=$work/data PGUSER=postgres PGDATABASE=postgres timeout 60 psql -XAtq -c "$1"
}

# One connection that stays; what it is asked for has one answer.
ask_backend() {
	local i=0 line trial caught

	trial="do \$\$ begin perform 1 / 0; exception when division_by_zero then null; end \$\$; select 'caught';"
	exec 5>"$work/backend.in" 6<"$work/backend.out"
	while :; do
		my_turn postgres
		printf '%s\n' "select sum(n * n) from generate_series(1, 5000) n;" "$trial" "select $i * 3;" >&5 || break
		for caught in 41679167500 caught $((i * 3)); do
			if ! read -r -t 100 line <&6 || [ "$line" != "$caught" ]; then
				echo "'${line:-}' instead of $caught" >&2
				return 1
			fi
		done
		i=$((i + 1))
		echo "$i"
		nap 0.05
	done
}

# New connections are forks of the postmaster; the sums of all tables must agree.
ask_postmaster() {
	local i=0 sums

	while :; do
		my_turn postmaster
		(as_postgres timeout 100 pgbench -n -C -c 2 -t 5) >"$work/pgbench.out" 2>&1
		sums=$(query 'select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
			(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)')
		if ! grep -q 'actually processed: 10/10' "$work/pgbench.out" ||
			! awk -F'|' -v sums="$sums" 'BEGIN { split(sums, s, "|"); exit !(s[1] != "" && s[1] == s[2] && s[2] == s[3] && s[3] == s[4]) }'; then
			echo "the books are $sums" >&2
			grep -i 'error\|fatal\|failed' "$work/pgbench.out" | head -2 >&2
			return 1
		fi
		i=$((i + 1))
		echo "$i"
		nap 0.1
	done
}

start_postgres() {
	local matched="/Code/@/Exec* /Code/@/Portal* /Code/@/heap_* /Code/@/*Plan* /Code/libc.so.6/malloc"
	local postmaster backend

	mkdir "$work/data"
	chown postgres "$work/data"
	chmod 711 "$work/data"
	(as_postgres initdb -D "$work/data/db" -A trust -N) >"$work/initdb.log" 2>&1 || fail "initdb: $(tail -2 "$work/initdb.log")"
	as_postgres postgres -D "$work/data/db" -c listen_addresses= -c unix_socket_directories="$work/data" \
		-c fsync=off >"$work/postgres.log" 2>&1 &
	postmaster=$!
	children+=("$postmaster")
	wait_for 100 query 'select 1' || fail "postgres does not answer"
	(as_postgres pgbench -i -s 1 -q) >"$work/init.log" 2>&1 || fail "pgbench -i: $(tail -2 "$work/init.log")"
	mkfifo "$work/backend.in" "$work/backend.out"
	PGHOST=$work/data PGUSER=postgres PGDATABASE=postgres psql -XAtq <>"$work/backend.in" >"$work/backend.out" 2>&1 &
	children+=("$!")
	exec 7<"$work/backend.out"
	echo "do \$\$ begin perform 1 / 0; exception when division_by_zero then null; end \$\$; select pg_backend_pid();" >"$work/backend.in"
	read -r -t 100 backend <&7 || fail "postgres does not say who it is"
	add postgres "$backend" "$matched"
	add postmaster "$postmaster" "$matched"
	drive postgres ask_backend
	drive postmaster ask_postmaster
}

# start_wanted NAME COMMAND...: starts that target, if it is wanted and what it takes is installed.
start_wanted() {
	local name=$1

	shift
	[[ " ${TARGETS:-throws forks redis nginx torture postgres} " == *" $name "* ]] || return 0
	if have "$@"; then "start_$name"; else absent "$name" "is not installed"; fi
}

start_targets() {
	local each

	start_wanted throws
	start_wanted forks
	start_wanted redis redis-server redis-cli redis-benchmark
	start_wanted nginx nginx curl
	start_wanted torture
	start_wanted postgres "$bin/initdb" psql pgbench setpriv
	[ ${#targets[@]} -gt 0 ] || skip "nothing of $TARGETS is installed"
	sleep 1
	for each in "${targets[@]}"; do
		program_of[$each]=$(basename "$(readlink "/proc/${pid[$each]}/exe")")
		prove save "${pid[$each]}" "$work/$each.picture" || fail "cannot look at $each"
	done
}

# ------------------------------------------------------------------- kills

start_daemon() {
	# It is gone when its lock is.
	[ -z "${daemon:-}" ] || wait_for 100 is_gone "$daemon" || fail "the daemon cannot be killed"
	"$build/dinstd" -s "$DINST_SOCKET" -i 0 2>>"$work/dinstd/dinstd.log" &
	daemon=$!
	children+=("$daemon")
	disown "$daemon"
	wait_for 100 daemon_answers || fail "the daemon does not start"
}

# is_dead PID: or dies as soon as it may.
is_dead() {
	! kill -0 "$1" 2>/dev/null || grep -q '^State:.*[ZX] ' "/proc/$1/status" 2>/dev/null || [[ " $victims " == *" $1 "* ]]
}

# mutators: of our daemon.
mutators() {
	cat "/proc/$daemon/task/$daemon/children" 2>/dev/null
}

# strike: one of them, or all; or it is only stopped for a while.
strike() {
	local found way=$((RANDOM % 8))

	found=$(mutators)
	stopped=
	[ -n "$found" ] || way=0
	case $way in
	0 | 1) struck="the daemon killed" victims=$daemon ;;
	2) struck="both killed" victims="$daemon $found" ;;
	3) struck="the mutator stopped and killed" victims=$found stopped=$found ;;
	4) struck="the mutator stopped, the daemon killed" victims=$daemon stopped=$found ;;
	5) struck="the mutator and the daemon stopped" victims= stopped="$daemon $found" ;;
	*) struck="the mutator killed" victims=$found ;;
	esac
	# shellcheck disable=SC2086
	[ -z "$stopped" ] || { kill -STOP $stopped && some_time; } 2>/dev/null
	# shellcheck disable=SC2086
	[ -n "$victims" ] && kill -9 $victims 2>/dev/null && kills=$((kills + 1))
	# Whoever was stopped goes on a while later, when others are at it already.
	# shellcheck disable=SC2086
	[ -z "$stopped" ] || { (some_time && some_time && kill -CONT $stopped 2>/dev/null) & }
}

# One request; what is not done is no failure, but told in the end.
ask() {
	dinst --json "$@" >"$work/out" 2>"$work/out.err"
	local status=$?

	# Nobody kills clients.
	[ $status -lt 124 ] || echo "dinst $* has ended with $status: $(tail -c 300 "$work/out.err")" >>"$work/crashes"
	[ "$1" != insert ] || [ $status -ne 0 ] || inserted=$((inserted + 1))
	[ $status -eq 0 ] || [ $status -eq 3 ] || echo "$1 $2: $(cat "$work/out" "$work/out.err" | sed -n 's/.*"message": *"\([^"]*\)".*/\1/p' | head -1)" >>"$work/refused"
	return $status
}

# Sets `steps`: what this round does, a request a line.
plan_round() {
	local i n glob target=${pid[$1]}

	steps=("attach $target")
	n=$((1 + RANDOM % 3))
	for ((i = 0; i < n; i++)); do
		pick "${metrics[@]}"
		local metric=$picked
		# shellcheck disable=SC2086
		if [ $((RANDOM % 10)) -eq 0 ]; then pick $wide; else pick ${globs[$1]}; fi
		glob=${picked//@/${program_of[$1]}}
		[ "$glob" = - ] || [ "$metric" = alloc_live ] && glob=
		[ $((RANDOM % 6)) -eq 0 ] && [[ $glob == *Command || $glob == */hit ]] && glob="$glob --each"
		steps+=("insert $metric $glob -p $target")
		case $((RANDOM % 6)) in
		0) steps+=("read -p $target") ;;
		1) steps+=("remove $((i + 1)) -p $target") ;;
		2) steps+=("remove --all -p $target") ;;
		3) steps+=("remove $((i + 1)) -p $target" "flush -p $target") ;;
		esac
	done
	[ $((RANDOM % 2)) -eq 0 ] && steps+=("detach -p $target")
}

# Up to 1, 2, 4 ... 1024 ms: many moments are short.
some_time() {
	local ms=$(((RANDOM % 1024) >> (RANDOM % 11)))

	printf -v ms '%d.%03d' $((ms / 1000)) $((ms % 1000))
	nap "$ms"
}

# The one in which it happens runs in the background.
run_round() {
	local last=$((RANDOM % ${#steps[@]})) i request

	for ((i = 0; i < last; i++)); do
		# shellcheck disable=SC2086
		set -f && ask ${steps[i]}
	done
	# shellcheck disable=SC2086
	ask ${steps[last]} &
	request=$!
	set +f
	some_time
	strike
	wait $request
	what="${steps[last]%% -p*}, $struck, ${steps[*]:1:last}"
}

# recover TARGET: attach and detach, or repair. Who still works on it for a daemon that
# has gone is waited for there, not here.
recover() {
	local tries status way=$((RANDOM % 2))

	if is_dead "$daemon"; then
		[[ " $victims " == *" $daemon "* ]] || fail "round $round ($what): the daemon has ended by itself: $(tail -3 "$work/dinstd/dinstd.log")"
		start_daemon
	fi
	for ((tries = 0; tries < 60; tries++)); do
		if [ $way -eq 0 ] && ! dinst ls 2>/dev/null | grep -qw "$1"; then
			dinst --json repair "$1" >"$work/recover" 2>&1
			status=$?
		else
			dinst --json attach "$1" >"$work/recover" 2>&1 && dinst --json detach -p "$1" >"$work/recover" 2>&1
			status=$?
		fi
		[ $status -eq 0 ] && return
		nap 0.25
	done
	fail "round $round ($what): cannot be taken out: $(head -c 600 "$work/recover")"
}

# family PID: it and its descendants.
family() {
	local child

	echo "$1"
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		family "$child"
	done
}

# check NAME: everything that must be true afterwards.
check() {
	local target=${pid[$1]} one where="round $round (seed $seed), $1: $what"

	kill -0 "$target" 2>/dev/null && ! grep -q '^State:.*[ZX] ' "/proc/$target/status" || fail "$where: it died"
	kill -0 "${driver[$1]}" 2>/dev/null && [ ! -s "$work/$1.wrong" ] || fail "$where: a wrong answer: $(head -12 "$work/$1.wrong")"
	prove check "$target" "$work/$1.picture" >"$work/proof" || fail "$where: not as before: $(head -c 900 "$work/proof")"
	for one in $(family "$target"); do
		grep -q memfd:dinst "/proc/$one/maps" 2>/dev/null && fail "$where: process $one has an arena"
		grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$one/status" 2>/dev/null && fail "$where: process $one is traced"
		# One that has ended meanwhile, or executes a program, is nobody's child any more.
		[ "$one" = "$target" ] || [ "$(readlink "/proc/$one/exe")" != "$(readlink "/proc/$target/exe")" ] ||
			prove check "$one" "$work/$1.picture" child >"$work/proof" 2>&1 || ! kill -0 "$one" 2>/dev/null ||
			fail "$where: its child $one: $(head -c 900 "$work/proof")"
	done
	# Who is killed by us dies of signal 9; nobody has another reason.
	grep -E 'died of signal|ended with status' "$work/dinstd/dinstd.log" | grep -v 'died of signal 9 ' | head -3 >>"$work/crashes"
	[ ! -s "$work/crashes" ] || fail "$where: $(cat "$work/crashes")"
	[ ! -e "$work/nginx.errors" ] || ! grep 'exited on signal' "$work/nginx.errors" >"$work/proof" || fail "$where: $(head -3 "$work/proof")"
	"$build/tests/tools/rseqwords" "$target" >"$work/words" || fail "$where: $(cat "$work/words")"
}

# has_gone_on NAME TURN
has_gone_on() {
	[ "$(tail -1 "$work/$1.turns")" != "$2" ]
}

# All targets have to go on: a wrong rseq_cs kills later.
go_on() {
	local each

	turn_of
	for each in "${targets[@]}"; do
		wait_for 100 has_gone_on "$each" "$(tail -1 "$work/$each.turns")" || fail "$each does not go on, round $round"
		what="at the end"
		check "$each"
	done
}

kills=0
round=0
# Requests that were done before the one in which it happens.
inserted=0
victims=
start_daemon
start_targets
begun=$(date +%s)
# Each target twice at least, however slow they are here.
while [ $round -lt "$rounds" ] && [ $kills -lt "$wanted_kills" ] &&
	{ [ $(($(date +%s) - begun)) -lt "$seconds" ] || [ $round -lt $((2 * ${#targets[@]})) ]; }; do
	one=${targets[round % ${#targets[@]}]}
	round=$((round + 1))
	rounds_of[$one]=$((rounds_of[$one] + 1))
	plan_round "$one"
	turn_of "$one"
	run_round
	recover "${pid[$one]}"
	check "$one"
	[ -n "${VERBOSE:-}" ] && say "$round $one: $what; $(($(date +%s) - begun)) s"
done
go_on
for each in "${targets[@]}"; do
	say "$each: ${rounds_of[$each]} rounds, $(tail -1 "$work/$each.turns") turns of its own"
	kill "${driver[$each]}"
done
if [ -n "${benchmark:-}" ]; then
	kill -0 "$benchmark" 2>/dev/null || fail "the benchmark ended: $(tail -c 300 "$work/benchmark.out")"
	grep -qi 'error' "$work/benchmark.out" && fail "the benchmark: $(grep -i error "$work/benchmark.out" | head -2)"
fi
sort "$work/refused" 2>/dev/null | sed 's/0x[0-9a-f]*/N/g; s/[0-9][0-9]*/N/g' | sort | uniq -c | sort -rn | head -20 | sed 's/^/    /'
# One in two rounds or so; few rounds may have none.
[ $inserted -gt 0 ] || [ $round -lt 20 ] || fail "nothing was inserted in $round rounds"
[ $kills -gt $((round / 3)) ] || fail "only $kills kills in $round rounds"
pass "$round rounds, $inserted inserts and $kills kills in $(($(date +%s) - begun)) s: nobody died, nothing is left"
