# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# lib.sh - what the scripts of tests/real share. Sourced, not run.
#
# A script starts a program that nobody here wrote, on ports and sockets of its
# own, works on it with dinst while a load runs, and checks what does not
# depend on us: counts of the program itself, replies, its mappings and bytes.
# It ends with one line: PASS|FAIL|SKIP name seconds details.
# DINST_SHORT=1 makes the loads shorter.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

build=$(realpath "${DINST_BUILD:-build}") || exit 1
name=$(basename "$0" .sh)
started=$(date +%s%3N)
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-real-$name-XXXXXX") || exit 1
chmod 711 "$work"
export DINST_SOCKET=$work/dinstd/dinstd.sock
mkdir -m 700 "$work/dinstd"
children=()
ended=no

# finish: ends what this script started, and nothing else.
finish() {
	local pid

	trap '' INT TERM
	dinst stop >/dev/null 2>&1
	for pid in "${children[@]}"; do
		kill "$pid" 2>/dev/null
	done
	for pid in "${children[@]}"; do
		wait_for 10 is_gone "$pid" || kill -9 "$pid" 2>/dev/null
	done
	if [ "$ended" = fail ]; then
		for log in "$work"/*.err "$work"/*.log "$work/dinstd"/*.log; do
			[ -s "$log" ] && { echo "--- $(basename "$log")"; tail -n 15 "$log"; }
		done
	fi
	[ "$ended" = no ] && echo "FAIL $name ended by itself or by a signal"
	[ -n "${KEEP:-}" ] && echo "kept: $work" || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

result() {
	local ms=$(($(date +%s%3N) - started))

	printf '%s %s %d.%03d %s\n' "$1" "$name" $((ms / 1000)) $((ms % 1000)) "$2"
}

pass() {
	ended=pass
	result PASS "$*"
	exit 0
}

fail() {
	ended=fail
	result FAIL "$*"
	exit 1
}

skip() {
	ended=skip
	result SKIP "$*"
	exit 0
}

say() {
	echo "  $*"
}

# need COMMAND...: skips the test where one is missing.
need() {
	local command

	for command in "$@"; do
		command -v "$command" >/dev/null || skip "$command is not installed"
	done
	[ "$(id -u)" -eq 0 ] || skip "needs root"
}

dinst() {
	timeout 120 "$build/dinst" "$@"
}

# json FILE ARGS...: runs dinst --json ARGS into FILE; fails the test unless it exits with 0 or 3.
json() {
	local out=$work/$1 status

	shift
	dinst --json "$@" >"$out" 2>"$out.err"
	status=$?
	if [ $status -ne 0 ] && [ $status -ne 3 ]; then
		fail "dinst $*: status $status: $(head -c 300 "$out") $(head -c 300 "$out.err")"
	fi
}

# field KEY FILE: the values at that key, one a line.
field() {
	sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p" "$work/$2"
}

sum() {
	awk '{ n += $1 } END { print n + 0 }'
}

largest() {
	sort -n | tail -1
}

# describe FILE: what an insert did, in a line.
describe() {
	echo "$(field points "$1" | sum) points, $(field refused "$1" | sum) refused," \
		"$(field pending "$1" | sum) pending, stopped for $(field stop_us "$1" | largest) us"
}

# read_value ID PID
read_value() {
	dinst --json read "$1" -p "$2" | sed -n 's/.*"value": *\([0-9]*\).*/\1/p'
}

prove() {
	"$build/examples/prove" "$@"
}

# exact_cycle PID RESOURCE: with no load, so that the program's own memory is at rest, all in
# and all out again must leave every line of its maps as it was.
exact_cycle() {
	sleep 0.3
	prove save "$1" "$work/picture.exact" || fail "cannot look at $1"
	json exact.attach attach "$1" -n exact
	json exact.insert insert calls "$2" --each -p exact
	json exact.detach detach -p exact
	[ "$(field left exact.detach)" = 0 ] || fail "something is left without load: $(cat "$work/exact.detach.err")"
	prove check "$1" "$work/picture.exact" exact >"$work/proof.exact" ||
		fail "not exactly as before: $(head -c 600 "$work/proof.exact")"
	say "without load: $(cat "$work/proof.exact")"
}

# free_port: a port of 127.0.0.1 that nobody listens on, and that no client is given as its own
# (one of those stays taken for a minute after the client has gone).
free_port() {
	local port below

	read -r below _ </proc/sys/net/ipv4/ip_local_port_range
	while :; do
		port=$((below - 1 - RANDOM % 20000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo $port
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
	local tries=$(($1 * 20))

	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.05
	done
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

# short FULL SHORT: one of the two.
short() {
	if [ -n "${DINST_SHORT:-}" ]; then echo "$2"; else echo "$1"; fi
}
