#!/bin/bash
# SPDX-License-Identifier: MIT
#
# postgres.sh - postgres under pgbench: statements of a backend counted
# exactly, all functions of a backend and of the postmaster (which forks the
# others) counted under load, the books balance, and nothing is left.
. "$(dirname "$0")/lib.sh"

# Debian keeps the server's programs apart from the path.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -x "$bin/initdb" ] || skip "postgresql is not installed"
PATH=$bin:$PATH
need initdb postgres pgbench psql setpriv
id postgres >/dev/null 2>&1 || skip "there is no user postgres"
seconds=$(short 6 3)

# The server refuses to run as root.
as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work/data"
	PATH="$PATH" PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres)

query() {
	timeout 300 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq -c "$1"
}

bench() {
	"${as_postgres[@]}" timeout 800 pgbench -n "$@"
}

# The sums of all four tables must agree after any mix of transactions.
books() {
	query 'select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
		(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)'
}

books_balance() {
	local sums
	sums=$(books) || return 1
	awk -F'|' -v sums="$sums" 'BEGIN { split(sums, s, "|"); exit !(s[1] != "" && s[1] == s[2] && s[2] == s[3] && s[3] == s[4]) }'
}

mkdir "$work/data"
chown postgres "$work/data"
chmod 700 "$work/data"
"${as_postgres[@]}" initdb -D "$work/data/db" -A trust -N >"$work/initdb.log" 2>&1 || fail "initdb: $(tail -2 "$work/initdb.log")"
"${as_postgres[@]}" postgres -D "$work/data/db" -c listen_addresses= -c unix_socket_directories="$work/data" \
	-c fsync=off -c autovacuum=on >"$work/postgres.log" 2>&1 &
# setpriv and env become the server: the process is the same one.
postmaster=$!
children+=("$postmaster")
chmod 711 "$work/data"
wait_for 60 query 'select 1' || fail "postgres does not answer"
bench -i -s 1 -q >"$work/init.log" 2>&1 || fail "pgbench -i: $(tail -2 "$work/init.log")"

# --- one backend: a session that we hold by its two ends
coproc BACKEND { exec env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq 2>&1; }
ask() {
	local line
	echo "$1" >&"${BACKEND[1]}"
	read -r -t 120 line <&"${BACKEND[0]}" || fail "the backend does not answer: $1"
	echo "$line"
}
children=("$BACKEND_PID" "${children[@]}")
backend=$(ask 'select pg_backend_pid();')
[ -d "/proc/$backend" ] || fail "no backend: $backend"
answer=$(ask 'select sum(i * i) from generate_series(1, 20000) i;')
ask "select md5(string_agg(relname, ',' order by relname)) from pg_class;" >"$work/expected"
# The library of the procedural language is loaded on first use: before the picture.
trial="do \$\$ begin perform 1 / 0; exception when division_by_zero then null; end \$\$; select 'caught';"
ask "$trial" >/dev/null
settle "$backend"
prove save "$backend" "$work/picture.backend" || fail "cannot look at the backend"
prove save "$postmaster" "$work/picture.postmaster" || fail "cannot look at the postmaster"

json attach attach "$backend" -n backend
say "attach: $(field attach_ms attach) ms, stopped for $(field stop_us attach) us, $(field functions attach) functions"
json one insert calls /Code/postgres/PortalRun -p backend
before=$(read_value "$(field id one)" backend)
for i in $(seq 300); do echo "select $i;"; done >&"${BACKEND[1]}"
for i in $(seq 300); do
	read -r -t 120 line <&"${BACKEND[0]}" && [ "$line" = "$i" ] || fail "statement $i was answered with '$line'"
done
after=$(read_value "$(field id one)" backend)
say "PortalRun: $((after - before)), statements: 300"
[ $((after - before)) -eq 300 ] || fail "counted $((after - before)) statements of 300"
json all insert calls '/Code/postgres/*' --each -p backend
say "all functions of a backend: $(wc -l <"$work/all") instances, $(describe all)"
[ "$(field points all | sum)" -ge 8000 ] || fail "only $(field points all | sum) points"
bench -c 4 -j 2 -T "$seconds" >"$work/pgbench-1" 2>&1 &
load=$!
children+=("$load")
for i in 1 2 3; do
	[ "$(ask 'select sum(i * i) from generate_series(1, 20000) i;')" = "$answer" ] || fail "wrong answer"
	[ "$(ask "select md5(string_agg(relname, ',' order by relname)) from pg_class;")" = "$(cat "$work/expected")" ] ||
		fail "wrong answer"
	ask "$trial" >"$work/got"
	grep -q caught "$work/got" || fail "an error was not caught: $(cat "$work/got")"
done
json values read -p backend
active=$(field value values | awk '$1 > 0' | wc -l)
say "$active functions of the backend were called"
[ "$active" -ge 500 ] || fail "only $active functions were called"
wait "$load" || fail "pgbench: $(tail -2 "$work/pgbench-1")"
json detach.backend detach -p backend
say "detach: $(field restored detach.backend) restored, $(field left detach.backend) left, stopped for $(field stop_us detach.backend) us"
prove check "$backend" "$work/picture.backend" >"$work/proof" || fail "the backend is not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
[ "$(ask 'select sum(i * i) from generate_series(1, 20000) i;')" = "$answer" ] || fail "wrong answer after detach"

exact_cycle "$backend" '/Code/postgres/*'

# --- the postmaster: every new connection is a fork of it
json attach.postmaster attach "$postmaster" -n postmaster
json all.postmaster insert calls '/Code/postgres/*' --each -p postmaster
say "all functions of the postmaster: $(describe all.postmaster)"
bench -C -c 4 -j 2 -T "$seconds" >"$work/pgbench-2" 2>&1 || fail "pgbench -C: $(tail -2 "$work/pgbench-2")"
grep -q 'number of failed transactions: 0 ' "$work/pgbench-2" || fail "pgbench: $(grep failed "$work/pgbench-2")"
bench -C -c 2 -j 2 -T "$seconds" >"$work/pgbench-3" 2>&1 &
load=$!
children+=("$load")
sleep 1
json detach.postmaster detach -p postmaster
say "detach: $(field restored detach.postmaster) restored, $(field left detach.postmaster) left, stopped for $(field stop_us detach.postmaster) us"
wait "$load" || fail "pgbench -C: $(tail -2 "$work/pgbench-3")"
grep -q 'number of failed transactions: 0 ' "$work/pgbench-3" || fail "pgbench: $(grep failed "$work/pgbench-3")"
prove check "$postmaster" "$work/picture.postmaster" >"$work/proof" ||
	fail "the postmaster is not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
# Those that were forked meanwhile have ended, or end: each was for one connection.
with_arena() {
	for pid in $(cat "/proc/$postmaster/task/$postmaster/children"); do
		grep -q 'memfd:dinst' "/proc/$pid/maps" 2>/dev/null && echo "$pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
	done
}
wait_for 120 eval '[ -z "$(with_arena)" ]' || fail "an arena is left: $(with_arena)"
books_balance || fail "the books do not balance: $(books)"
grep -qE 'PANIC|terminated by signal|server process .* exited' "$work/postgres.log" &&
	fail "postgres: $(grep -E 'PANIC|terminated by signal|server process' "$work/postgres.log" | head -3)"
exec {BACKEND[1]}>&-
kill -INT "$postmaster"
wait "$postmaster" || fail "postgres ended with status $?"
pass "$(field points all | sum) points in a backend, $(field stop_us all | largest) us; $(field points all.postmaster | sum) in the postmaster; $(grep -o 'tps = [0-9.]*' "$work/pgbench-2" | head -1) with a fork each"
