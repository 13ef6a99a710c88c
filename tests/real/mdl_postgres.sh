#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mdl_postgres.sh - CPU time of functions of a pgbench backend, against perf:
# exclusive against samples in the function itself, inclusive against samples
# with it anywhere on the stack. What is compared are shares of the backend's CPU time.
. "$(dirname "$0")/lib.sh"

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -x "$bin/initdb" ] || skip "postgresql is not installed"
PATH=$bin:$PATH
need initdb postgres pgbench psql setpriv perf
id postgres >/dev/null 2>&1 || skip "there is no user postgres"
seconds=$(short 6 4)

as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work/data"
	PATH="$PATH" PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres)

query() {
	timeout 120 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq -c "$1"
}

# CPU time of the backend, ns.
cpu_of() {
	awk '{ print $1 }' "/proc/$1/schedstat"
}

# values FILE: all of them, as they are at one moment.
values() {
	dinst --json read -p "$backend" >"$work/$1" || fail "read: $(head -c 300 "$work/$1")"
}

# grown ID: from the first to the second time.
grown() {
	echo $(($(value "$1" after) - $(value "$1" before)))
}

# value ID FILE
value() {
	sed -n "s/.*\"id\": *$1,.*\"value\": *\([0-9]*\).*/\1/p" "$work/$2" | head -1
}

# share PART WHOLE: in percent.
share() {
	awk -v p="$1" -v w="$2" 'BEGIN { printf "%.1f", (w > 0 ? 100 * p / w : 0) }'
}

# agree WHAT ID PERF-LOW PERF-HIGH: of the CPU time that passed between the two looks at the values.
agree() {
	local low high

	low=$(share "$(grown "$2")" "$outer") high=$(share "$(grown "$2")" "$inner")
	say "$1: $low to $high % by dinst, $3 to $4 % by perf"
	awk -v l="$low" -v h="$high" -v pl="$3" -v ph="$4" 'BEGIN { exit !(ph >= l - 10 && pl <= h + 10) }' ||
		fail "$1: $low to $high % by dinst, $3 to $4 % by perf"
}

mkdir "$work/data"
chown postgres "$work/data"
chmod 700 "$work/data"
"${as_postgres[@]}" initdb -D "$work/data/db" -A trust -N >"$work/initdb.log" 2>&1 || fail "initdb: $(tail -2 "$work/initdb.log")"
"${as_postgres[@]}" postgres -D "$work/data/db" -c listen_addresses= -c unix_socket_directories="$work/data" \
	-c fsync=off -c autovacuum=off -c jit=off -c max_parallel_workers_per_gather=0 >"$work/postgres.log" 2>&1 &
postmaster=$!
children+=("$postmaster")
chmod 711 "$work/data"
wait_for 60 query 'select 1' || fail "postgres does not answer"
"${as_postgres[@]}" timeout 400 pgbench -n -i -s 2 -q >"$work/init.log" 2>&1 || fail "pgbench -i: $(tail -2 "$work/init.log")"

# A backend of pgbench's that is there for some seconds: lookups, a scan, and texts to compress.
query 'create unlogged table texts (t text)'
cat >"$work/script.sql" <<'SQL'
\set aid random(1, 200000)
select abalance from pgbench_accounts where aid = :aid;
select count(*) from pgbench_accounts where aid % 7 = 3 and abs(abalance) >= 0;
truncate texts;
insert into texts select repeat(md5(i::text) || md5((i * 7)::text), 6000) from generate_series(1, 12) i;
SQL
chmod 644 "$work/script.sql"
"${as_postgres[@]}" timeout 880 pgbench -n -c 1 -T 870 -f "$work/script.sql" >"$work/pgbench.log" 2>&1 &
load=$!
children+=("$load")
# The one that runs the script: pgbench asks for its tables over a connection that ends before.
has_backend() {
	backend=$(query "select pid from pg_stat_activity where application_name = 'pgbench' and query ~ 'abalance|texts' limit 1")
	[ -d "/proc/$backend/task" ]
}
wait_for 60 has_backend || fail "pgbench has no backend"

json attach attach "$backend"
# Of calls that take much longer than the timer does: what a timer costs is in its interval.
perf record -q -F 99 -p "$backend" -o "$work/perf.data" -- sleep 0.2 >"$work/perf.log" 2>&1 ||
	skip "perf record does not work here: $(tail -1 "$work/perf.log")"
hot=pglz_compress
json hot insert cpu "/Code/postgres/$hot" -p "$backend"
json run insert cpu_inclusive /Code/postgres/standard_ExecutorRun -p "$backend"
json rows insert cpu_inclusive /Code/postgres/ExecScan -p "$backend"
json scan insert cpu_inclusive /Code/postgres/heap_toast_insert_or_update -p "$backend"
own=$(field id hot)
inclusive=$(field id run)
scan=$(field id scan)
rows=$(field id rows)

# has_run NS: the backend has, since its time was $inner_from.
has_run() {
	[ $(($(cpu_of "$backend") - inner_from)) -ge "$1" ]
}

# Shares by dinst over some seconds of the backend's CPU time, while perf looks on with stacks.
outer_from=$(cpu_of "$backend")
values before
inner_from=$(cpu_of "$backend")
perf record -q --per-thread -m 16M -F 149 --call-graph dwarf,65000 -p "$backend" -o "$work/perf2.data" >"$work/perf2.log" 2>&1 &
perf=$!
children+=("$perf")
wait_for 400 has_run "${seconds}000000000" || fail "the backend does not run: $(cpu_of "$backend") ns"
inner=$(($(cpu_of "$backend") - inner_from))
values after
outer=$(($(cpu_of "$backend") - outer_from))
# TERM: INT is ignored in what a script starts in the background
kill -TERM "$perf"
wait "$perf"
[ -s "$work/perf2.data" ] || fail "perf record: $(tail -1 "$work/perf2.log")"
perf script -i "$work/perf2.data" -F ip,sym 2>/dev/null >"$work/stacks"
# samples whose stack has FUNCTION anywhere, or on top, in percent: at least, and at most, as it might
# be further down in those that perf has not followed to their end
stack_share() {
	awk -v f="$1" -v top="$2" '
		function done() { if (n) { all++; hits += hit; maybe += !top && !hit && !whole } n = hit = whole = 0 }
		NF == 0 { done(); next }
		{ n++; if ($2 == f && (!top || n == 1)) hit = 1; if ($2 == "_start") whole = 1 }
		END { done(); printf "%.1f %.1f", (all ? 100 * hits / all : 0), (all ? 100 * (hits + maybe) / all : 0) }' "$work/stacks"
}
say "perf: $(grep -c '[^ ] _start$' "$work/stacks") whole stacks"
[ "$(grep -c '[^ ] _start$' "$work/stacks")" -ge 100 ] || fail "perf has followed only $(grep -c '[^ ] _start$' "$work/stacks") stacks"
agree "cpu of $hot" "$own" $(stack_share "$hot" 1)
agree "cpu_inclusive of standard_ExecutorRun" "$inclusive" $(stack_share standard_ExecutorRun 0)
agree "cpu_inclusive of heap_toast_insert_or_update" "$scan" $(stack_share heap_toast_insert_or_update 0)
# A scan calls this for each row: shorter calls, and the timers are in what both see.
agree "cpu_inclusive of ExecScan" "$rows" $(stack_share ExecScan 0)

json detach detach -p "$backend"
[ "$(field left detach)" = 0 ] || fail "something is left: $(cat "$work/detach.err")"
kill "$load" 2>/dev/null
wait "$load" 2>/dev/null
grep -qE 'PANIC|terminated by signal|server process .* exited' "$work/postgres.log" &&
	fail "postgres: $(grep -E 'PANIC|terminated by signal|server process' "$work/postgres.log" | head -3)"
kill -INT "$postmaster"
wait "$postmaster" || fail "postgres ended with status $?"
pass "$hot: $(share "$(grown "$own")" "$inner") % of $((inner / 1000000)) ms; standard_ExecutorRun: $(share "$(grown "$inclusive")" "$inner") %"
