#!/bin/bash
# SPDX-License-Identifier: MIT
#
# attach.sh - time to attach, length of the stop, and the mutator's peak memory
# on redis, postgres and node, where they are installed.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=${DINST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-bench-XXXXXX") || exit 1
chmod 711 "$work"
export DINST_SOCKET=$work/dinstd.sock
started=()

finish() {
	timeout 20 "$build/dinst" stop >/dev/null 2>&1
	for pid in "${started[@]}"; do
		kill -9 "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	rm -rf "$work"
}
trap finish EXIT

field() {
	sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p" "$work/out" | sort -n | tail -1
}

# one NAME PID MODULE: attaches, looks at the mutator, inserts everything, detaches.
one() {
	local name=$1 pid=$2 module=$3 attach_ms stop functions mutator peak_attach
	sleep 0.5
	if ! timeout 60 "$build/dinst" --json attach "$pid" -n "$name" >"$work/out" 2>"$work/err"; then
		echo "  $name: $(cat "$work/out" "$work/err")"
		return
	fi
	attach_ms=$(field attach_ms)
	stop=$(field stop_us)
	functions=$(field functions)
	mutator=$(sed -n "s/.*attach pid $pid by mutator \([0-9]*\).*/\1/p" "$work"/*.log | tail -1)
	peak_attach=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$mutator/status")
	printf '  %-10s attach %7.1f ms  stopped %6d us  mutator %4d MiB  %6d functions\n' \
		"$name" "$attach_ms" "$stop" "$peak_attach" "$functions"
	begin=$(date +%s%3N)
	timeout 120 "$build/dinst" --json insert calls "/Code/$module/*" -p "$name" >"$work/out" 2>"$work/err" ||
		[ $? -eq 3 ] || { echo "    insert: $(head -c 300 "$work/out" "$work/err")"; }
	printf '  %-10s all of %s: %d points (%d refused) in %d ms  stopped %6d us  mutator %4d MiB\n' "" "$module" \
		"$(field points)" "$(field refused)" "$(($(date +%s%3N) - begin))" "$(field stop_us)" \
		"$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$mutator/status")"
	timeout 60 "$build/dinst" --json detach -p "$name" >"$work/out" 2>"$work/err"
	printf '  %-10s detach: %d restored, %d left, stopped %6d us\n' "" "$(field restored)" "$(field left)" "$(field stop_us)"
}

echo "attach, and all functions of the program:"
if command -v redis-server >/dev/null; then
	redis-server --port 0 --unixsocket "$work/redis" --save '' --dir "$work" >/dev/null 2>&1 &
	started+=($!)
	one redis $! redis-server
else
	echo "  redis-server is not installed"
fi

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
if [ -x "$bin/initdb" ] && [ "$(id -u)" -eq 0 ] && id postgres >/dev/null 2>&1; then
	mkdir -m 700 "$work/pg"
	chown postgres "$work/pg"
	as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
	"${as[@]}" "$bin/initdb" -D "$work/pg/db" -A trust -N >/dev/null 2>&1
	"${as[@]}" "$bin/postgres" -D "$work/pg/db" -c listen_addresses= \
		-c unix_socket_directories="$work/pg" >/dev/null 2>&1 &
	postmaster=$!
	started+=($postmaster)
	sleep 1
	one postgres $postmaster postgres
	kill -INT $postmaster 2>/dev/null
	wait $postmaster 2>/dev/null
else
	echo "  postgres is not installed"
fi

if command -v node >/dev/null; then
	node -e 'setInterval(() => { let s = 0; for (let i = 0; i < 1e5; i++) s += i; }, 5)' &
	started+=($!)
	one node $! node
else
	echo "  node is not installed"
fi
