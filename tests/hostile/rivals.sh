#!/bin/bash
# SPDX-License-Identifier: MIT
#
# rivals.sh - several who want the same program: a second daemon of the same
# user, another user's, clients of one daemon, and one who repairs meanwhile. Only
# one gets it; the others are told who has it, and nothing is damaged.
#
# fear J6: a second daemon, of the same user or of another one, that attaches, repairs or takes
#   out of a child of the program while the first has a session is refused and told who has it;
#   attaching while the other one detaches ends in one session or in a refusal, never in two
. "$(dirname "$0")/lib.sh"

need setpriv
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
rounds=$(short 45 8)
export XDG_CACHE_HOME=$work/cache

# The program is nobody's, so that both may have it.
mkdir -p "$work/bin" "$work/theirs" "$work/second"
chmod 700 "$work/second"
cp "$build/dinst" "$build/dinstd" "$build/dinst-mutator" "$build/examples/demo-server" "$work/bin/"
for program in "$build"/dinst-*; do [ -x "$program" ] && [ -f "$program" ] && cp "$program" "$work/bin/"; done
cp -rL "$build/metrics" "$work/bin/"
chmod -R a+rX "$work/bin"
chown nobody "$work/theirs"
chmod 700 "$work/theirs"
as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$work/theirs" XDG_CACHE_HOME="$work/theirs")
"${as_nobody[@]}" "$work/bin/dinst" --version >/dev/null 2>&1 || skip "nobody cannot run programs in $work"

first() { dinst --json "$@"; }
second() { DINST_SOCKET=$work/second/dinstd.sock dinst --json "$@"; }
theirs() { timeout 120 "${as_nobody[@]}" DINST_SOCKET="$work/theirs/dinstd.sock" "$work/bin/dinst" --json "$@"; }

# The other daemons are no children of ours; `finish` ends the first.
end_rivals() {
	second stop
	theirs stop
} >/dev/null 2>&1
trap 'end_rivals; finish' EXIT

"${as_nobody[@]}" "$work/bin/demo-server" "$work/theirs/socket" 2 > >(exec cat >"$work/server.log") 2>&1 &
server=$!
children+=("$server")
wait_for 60 grep -q ready "$work/server.log" || fail "the server does not start"
"$build/examples/demo-load" "$work/theirs/socket" 1 >"$work/load.log" 2>"$work/load.err" &
load=$!
children+=("$load")
prove save "$server" "$work/picture" || fail "cannot look at the server"

rivals="second"
yama=$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)
if [ "$yama" -eq 0 ]; then rivals="second theirs"; else absent "another user's daemon" "kernel.yama.ptrace_scope is $yama"; fi

# refused WHO COMMAND...: with `busy`, and the holder's pid in the message.
refused() {
	local who=$1

	shift
	"$who" "$@" >"$work/out" 2>&1
	[ $? -eq 1 ] || fail "$who $*: not refused while $holder has it: $(cat "$work/out")"
	grep -q '"busy"' "$work/out" || fail "$who $*: not busy: $(cat "$work/out")"
	grep -q "$holder" "$work/out" || fail "$who $*: does not name $holder: $(cat "$work/out")"
}

# counted WHO: what the first instance of its session has counted.
counted() {
	"$1" read -p "$server" | sed -n 's/.*"value": *\([0-9]*\).*/\1/p' | head -1
}

# has_counted WHO NUMBER: more than that.
has_counted() {
	[ "$(counted "$1")" -gt "$2" ]
}

# has WHO: its session counts.
has() {
	local before

	before=$(counted "$1")
	[ -n "$before" ] && wait_for 60 has_counted "$1" "$before" || fail "$1 counts no more: $before"
}

as_before() {
	prove check "$server" "$work/picture" >"$work/proof" || fail "$1: not as before: $(head -c 600 "$work/proof")"
}

# take WHO: attach and insert; sets holder, the mutator's pid.
take() {
	"$1" attach "$server" >"$work/out" 2>&1 || fail "$1 attach: $(cat "$work/out")"
	"$1" insert calls /Code/demo-server/answer_request -p "$server" >"$work/out" 2>&1 || fail "$1 insert: $(cat "$work/out")"
	case $1 in first) log=$work/dinstd ;; second) log=$work/second ;; *) log=$work/theirs ;; esac
	holder=$(sed -n "s/.*attach pid $server by mutator \([0-9]*\)$/\1/p" "$log/dinstd.log" | tail -1)
	[ -n "$holder" ] || fail "the log of $1 does not tell its mutator"
}

# --- each has it in turn, and the others are refused
for owner in first $rivals; do
	take "$owner"
	for rival in first $rivals; do
		[ "$rival" != "$owner" ] || continue
		refused "$rival" attach "$server"
		[ "$rival" = second ] && say "$rival while $owner has it: $(sed -n 's/.*"message": *"\(.*\)".*/\1/p' "$work/out")"
		refused "$rival" repair "$server"
	done
	has "$owner"
	"$owner" repair "$server" >"$work/out" 2>&1 && fail "$owner repairs its own session"
	"$owner" detach -p "$server" >"$work/out" 2>&1 || fail "$owner detach: $(cat "$work/out")"
	as_before "$owner"
done

# --- all at once, while one detaches
winners=0
for ((round = 0; round < rounds; round++)); do
	take first
	first detach -p "$server" >"$work/out" 2>&1 &
	jobs=("$!")
	for rival in $rivals; do
		("$rival" attach "$server" >"$work/$rival.out" 2>&1) &
		jobs+=("$!")
	done
	wait "${jobs[@]}"
	have=
	for rival in $rivals; do
		if "$rival" ls 2>/dev/null | grep -q "\"pid\": *$server\b"; then
			have="$have $rival"
		else
			grep -q '"busy"' "$work/$rival.out" || fail "round $round: $rival: $(cat "$work/$rival.out")"
		fi
	done
	[ "$(echo "$have" | wc -w)" -le 1 ] || fail "round $round: two sessions:$have"
	for rival in $have; do
		"$rival" insert calls /Code/demo-server/answer_request -p "$server" >"$work/out" 2>&1 || fail "round $round: $rival: $(cat "$work/out")"
		has "$rival"
		"$rival" detach -p "$server" >"$work/out" 2>&1 || fail "round $round: $rival: $(cat "$work/out")"
		winners=$((winners + 1))
	done
	as_before "round $round"
done
say "$rounds times attached during another's detach: $winners got it, the others were refused"

# --- a daemon that dies: who comes next waits for its mutator, and finds all
for rival in $rivals; do
	take first
	daemon=$(ps -o ppid= -p "$holder" | tr -d ' ')
	# Where it comes too late to this daemon, it starts none of its own.
	DINST_DAEMON=/bin/false first insert calls '/Code/demo-server/*' --each -p "$server" >"$work/out" 2>&1 &
	request=$!
	sleep 0.05
	kill -9 "$daemon"
	wait $request
	"$rival" repair "$server" >"$work/out" 2>&1 || fail "$rival repair after the daemon's death: $(cat "$work/out")"
	sleep 0.5
	as_before "the daemon died, $rival repaired"
done

kill "$load"
wait "$load" || fail "wrong answers: $(head -3 "$work/load.err")"
kill "$server"
wait "$server" || fail "the server ended with status $?"
pass "one at a time, and the others know who"
