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
# The same words and numbers everywhere, and no proxy between us and our own ports.
export LC_ALL=C.UTF-8
unset LANGUAGE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

build=$(realpath "${DINST_BUILD:-build}") || exit 1
name=$(basename "$0" .sh)
started=$(date +%s%3N)
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-real-$name-XXXXXX") || exit 1
chmod 711 "$work"
export DINST_SOCKET=$work/dinstd/dinstd.sock
mkdir -m 700 "$work/dinstd"
children=()
ended=no

# nap SECONDS: as sleep, without a process; there are machines on which one takes 10 ms of processor time.
nap() {
	read -r -t "$1" <>"$work/never" || true
}
mkfifo -m 600 "$work/never"

# is_child PID: of this script; a number of one that has ended may be somebody else's by now.
is_child() {
	grep -qsx "PPid:[[:space:]]*$$" "/proc/$1/status"
}

is_no_child() {
	! is_child "$1"
}

# finish: ends what this script started, and nothing else.
finish() {
	local pid

	trap '' INT TERM
	dinst stop >/dev/null 2>&1
	[ -S "$work/tmux" ] && tmux -S "$work/tmux" kill-server 2>/dev/null
	for pid in "${children[@]}"; do
		is_child "$pid" && kill "$pid" 2>/dev/null
	done
	for pid in "${children[@]}"; do
		wait_for 10 is_no_child "$pid" || kill -9 "$pid" 2>/dev/null
	done
	if [ "$ended" = fail ]; then
		set +f
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

# have COMMAND...: all of them are installed.
have() {
	local command

	for command in "$@"; do
		command -v "$command" >/dev/null || return 1
	done
}

# absent PART WHY: it is left out here, and that is counted; the rest goes on.
absent() {
	echo "SKIP $1: $2"
}

# has_clock: the kernel trusts the processor's clock, without which no events are recorded (mutator/ticks.c).
has_clock() {
	grep -qwsE 'tsc|arch_sys_counter' /sys/devices/system/clocksource/clocksource0/available_clocksource
}

# need_clock: skips the test where it does not.
need_clock() {
	has_clock || skip "the kernel does not trust this processor's clock"
}

# need COMMAND...: skips the test where one is missing.
need() {
	local command

	for command in "$@"; do
		have "$command" || skip "$command is not installed"
	done
	[ "$(id -u)" -eq 0 ] || skip "needs root"
}

dinst() {
	timeout 300 "$build/dinst" "$@"
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
	awk '{ n += $1 } END { printf "%.0f\n", n }'
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

# at_rest PID...: all of their threads sleep, three times in a row. One that has something to do runs
# or wants to, however long it waits for a processor.
at_rest() {
	local pid

	for _ in 1 2 3; do
		for pid in "$@"; do
			grep -hE '\) [^S] ' "/proc/$pid/task/"*/stat && return 1
			[ -d "/proc/$pid" ] || return 1
		done
		nap 0.03
	done
}

# settle PID...: waits until they have done all that they were sent.
settle() {
	wait_for 120 at_rest "$@" || fail "not at rest: $(at_rest "$@" | cut -c1-60 | head -20)"
}

# same_maps PID: they stay the same for half a second.
same_maps() {
	local before

	before=$(cat "/proc/$1/maps")
	sleep 0.5
	[ "$before" = "$(cat "/proc/$1/maps")" ]
}

# exact_cycle PID RESOURCE: with no load, so that the program's own memory is at rest, all in
# and all out again must leave every line of its maps as it was.
exact_cycle() {
	settle "$1"
	wait_for 120 same_maps "$1" || fail "without load its mappings change"
	prove save "$1" "$work/picture.exact" || fail "cannot look at $1"
	json exact.attach attach "$1" -n exact
	json exact.insert insert calls "$2" --each -p exact
	json exact.detach detach -p exact
	[ "$(field left exact.detach)" = 0 ] || fail "something is left without load: $(cat "$work/exact.detach.err")"
	prove check "$1" "$work/picture.exact" exact >"$work/proof.exact" ||
		fail "not exactly as before: $(head -c 600 "$work/proof.exact")"
	say "without load: $(cat "$work/proof.exact")"
}

# free_port: a port of 127.0.0.1 that nobody listens on, that no client is given as its own (one
# of those stays taken for a minute after the client has gone), and another one each time.
free_port() {
	local port lower upper from=10000 room

	read -r lower upper </proc/sys/net/ipv4/ip_local_port_range
	room=$((lower - from))
	if [ $room -lt $((65536 - upper)) ]; then
		from=$((upper + 1))
		room=$((65536 - from))
	fi
	# clients are given all of them: then any that is free now
	[ $room -ge 100 ] || { from=10000; room=50000; }
	while :; do
		port=$((from + (RANDOM << 15 | RANDOM) % room))
		mkdir "$work/port-$port" 2>/dev/null || continue
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo $port
}

# wait_for SECONDS COMMAND...: until the command succeeds; the time is for the slowest of machines.
wait_for() {
	local tries=$(($1 * 20))

	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		nap 0.05
	done
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

# short FULL SHORT: one of the two.
short() {
	if [ -n "${DINST_SHORT:-}" ]; then echo "$2"; else echo "$1"; fi
}
