#!/bin/bash
# SPDX-License-Identifier: MIT
#
# why.sh - `dinst why` on programs that nobody here wrote, with trouble of known causes: a redis
# that runs a script, one that looks through all its keys, one that is idle; a postgres backend
# that scans a table, one that waits for a row that another one holds; the postmaster, which
# does nothing itself.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli
port=$(free_port)

cli() {
	timeout 300 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# again COMMAND...: asked of redis again and again by one client, until it is killed. (With a process
# for each, where processes are slow to begin redis would have nothing to do for half of the time.)
again() {
	timeout 300 redis-cli -h 127.0.0.1 -p "$port" -r -1 "$@" >/dev/null 2>&1 &
	looping=$!
	children+=("$looping")
}

# why PID NAME: into $work/NAME.
why() {
	timeout 300 "$build/dinst" --json why "$1" >"$work/$2" 2>"$work/$2.err" ||
		fail "why ($2): $(head -c 300 "$work/$2.err")"
	say "$2, $(field seconds "$2" | cut -d. -f1) s: $(sed -n 's/.*"verdict": *"\([^"]*\)".*/\1/p' "$work/$2")"
}

# names FILE REGEX: one of the findings, or a caller in it.
names() {
	grep -o '"text": *"[^"]*"' "$work/$1" | grep -Eq "$2" ||
		fail "$1 does not name $2: $(head -c 700 "$work/$1")"
}

redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
cli eval 'for i=1,100000 do redis.call("set", "key:"..i, i) end' 0 >/dev/null
prove save "$server" "$work/picture" || fail "cannot look at the process"

why "$server" idle
grep -q '"findings": *\[\]' "$work/idle" || fail "something is wrong with an idle redis: $(head -c 500 "$work/idle")"

again eval 'local s=0; for i=1,20000000 do s = s + i % 7 end return s' 0
why "$server" script
kill "$looping" 2>/dev/null
names script 'lua_pcall|luaCallFunction|evalGenericCommand|luaV_execute'
wait_for 60 cli ping || fail "redis-server does not answer any more"

again keys '*none*'
why "$server" keys
kill "$looping" 2>/dev/null
names keys 'keysCommand'
sleep 0.5
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
if [ ! -x "$bin/initdb" ] || ! id postgres >/dev/null 2>&1; then
	pass "redis only: postgres is not installed"
fi
PATH=$bin:$PATH
as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work/data"
	PATH="$PATH" PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres)

query() {
	timeout 300 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq -c "$1"
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
query 'create table t as select i, repeat(md5(i::text), 4) as text from generate_series(1, 200000) i' >/dev/null

# A backend that scans, over and over, in one statement.
timeout 880 env PGHOST="$work/data" PGUSER=postgres PGDATABASE=postgres psql -XAtq >"$work/scan.log" 2>&1 <<'SQL' &
select pg_backend_pid();
do $$ begin for n in 1..100000 loop perform count(*) from t where text like '%xyz' || n || '%'; end loop; end $$;
SQL
children+=("$!")
wait_for 60 test -s "$work/scan.log" || fail "no backend"
backend=$(head -1 "$work/scan.log")
why "$backend" scan
names scan 'ExecScan|like|heap_getnextslot|ExecInterpExpr'
why "$postmaster" postmaster
grep -q "\"verdict\": *\"[^\"]*dinst why $backend" "$work/postmaster" ||
	fail "the postmaster's verdict does not lead to the backend"
query "select pg_terminate_backend($backend)" >/dev/null

pass "an idle redis, a script, KEYS, a scan, a postmaster"
