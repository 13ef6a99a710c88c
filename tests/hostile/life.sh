#!/bin/bash
# SPDX-License-Identifier: MIT
#
# life.sh - things happen to programs at random moments of random requests: they
# are killed, stopped and continued, they fork, execute themselves anew, load
# and unload libraries, make processes in odd ways, and threads by the hundred.
#
# After each round the mutator's answer came in time and names what happened,
# the daemon is the same one, and a program that lives answers rightly, is
# untraced, in the state in which it was, and has nothing of dinst in it once
# it is detached.
#
# fear G7: a program is killed at a random moment of attach, insert, read, remove, flush or detach:
#   a clear answer in time, the last values, and the daemon goes on
# fear A3: a program is stopped and continued at a random moment of any request
# fear A13, G3: a program executes itself anew at a random moment of any request
# fear G1, G2, G8: it forks, spawns, becomes a daemon, clones with odd flags meanwhile
# fear G4: it loads and unloads a library meanwhile
# fear A1, G9: its threads come and go by the hundred meanwhile
#
# SEED is where chance begins; ROUNDS or HOURS say how long; TARGETS which programs.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "needs root"
seed=${SEED:-7}
rounds=${ROUNDS:-1000000}
seconds=$(short 75 20)
[ -n "${ROUNDS:-}" ] && seconds=1000000
[ -n "${HOURS:-}" ] && seconds=$(awk -v h="$HOURS" 'BEGIN { print int(h * 3600) }')
RANDOM=$seed
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
# Nobody but us starts daemons: that it is the same one must be known.
export DINST_DAEMON=/bin/false
metrics=(calls latency active wall wall_inclusive cpu_inclusive alloc_live)

# What each program is told while we are at it; "exec" makes it another program.
declare -A orders=(
	[forks]="fork 3 2000|tree 3 500|vfork 3|spawn 3|forkexec 3|daemon 2000|save 1|exec"
	[loads]="open|call 300|close|loop 20"
	[life-threads]="short 400|work 8 2000|short 50|work 40 100"
	[life-family]="daemon 1000|clone vm 500|clone files 500|clone thread-like 100|badexec 2|call 3000|eat 2"
	[calls]="go 2000|go 100"
)
declare -A globs=(
	[forks]="hit hits /Code/forks/* /Code/libc.so.6/*fork* /Code/libc.so.6/exec*"
	[loads]="/Code/libplugin.so/* plugin_work /Code/loads/* do_call /Code/libc.so.6/dl*"
	[life-threads]="leaf outer /Code/life-threads/* /Code/libc.so.6/pthread_* worker"
	[life-family]="handle handle_all /Code/life-family/* /Code/libc.so.6/*wait* obey"
	[calls]="tiny many /Code/calls/* /Code/libc.so.6/str* strange"
)
targets=(${TARGETS:-forks loads life-threads life-family calls})

# pick WORD...: one of them. Not in a subshell, whose chance would be another one.
pick() {
	local words=("$@")

	picked=${words[RANDOM % ${#words[@]}]}
}

where() {
	echo "round $round (seed $seed), $program, $event: $what"
}

# ------------------------------------------------------------------ programs

# converse ORDERS: one after the other; what is answered wrongly is in talk.wrong. It ends when told to,
# between two orders, so that what it leaves behind it has been answered.
converse() {
	local i=$2 line all=()

	IFS='|' read -r -a all <<<"$1"
	exec 5>"$work/in" 6<"$work/out"
	[ "$program" = loads ] && i=0
	while [ ! -e "$work/talk.end" ]; do
		echo "${all[i++ % ${#all[@]}]}" >&5 || break
		if ! read -r -t 100 line <&6 || ! [[ $line =~ ^(done|ready) ]]; then
			echo "'${line:-}' to ${all[(i - 1) % ${#all[@]}]}" >"$work/talk.wrong"
			return 1
		fi
	done
	# Nothing stays loaded: its mappings would be more than before.
	[ "$program" != loads ] || while [ $((i % 4)) -ne 3 ] && [ $((i % 4)) -ne 0 ]; do
		echo "${all[i++ % ${#all[@]}]}" >&5
		read -r -t 100 line <&6
	done
}

start_program() {
	local line

	rm -f "$work/in" "$work/out" "$work/talk.wrong" "$work/talk.end"
	mkfifo "$work/in" "$work/out"
	"$build/tests/live/targets/$program" 4 <>"$work/in" >"$work/out" 2>"$work/program.err" &
	target=$!
	exec 7<"$work/out"
	read -r -t 100 line <&7 && [ "$line" = ready ] || fail "$(where): it does not start"
	children+=("$target")
	prove save "$target" "$work/picture" || fail "$(where): cannot look at it"
	converse "${orders[$program]}" $((RANDOM % 8)) &
	talk=$!
}

end_program() {
	: >"$work/talk.end"
	wait "$talk"
	kill -9 "$target" 2>/dev/null
	wait "$target" 2>/dev/null
	exec 7<&-
	unset 'children[-1]'
}

# ------------------------------------------------------------------ requests

start_daemon() {
	"$build/dinstd" -s "$DINST_SOCKET" -i 0 2>>"$work/dinstd/dinstd.log" &
	daemon=$!
	children+=("$daemon")
	wait_for 100 daemon_answers || fail "the daemon does not start"
}

# What an ordinary failure says; anything else is none.
ordinary='has ended|ended while|was killed|no process|zombie|another program|try again|no session|no function|nothing to measure|not found|faster than they can|in another stop|wait for|no instance|not loaded|is in the middle|no module|cannot be patched|refused'

ask() {
	local status

	timeout 100 "$build/dinst" --json "$@" >"$work/answer" 2>"$work/answer.err"
	status=$?
	asked=$((asked + 1))
	[ "$1" != insert ] || [ $status -ne 0 ] || inserted=$((inserted + 1))
	case $status in
	0) ;;
	3) [ "$1" != detach ] || left=$(field left answer) ;;
	124) fail "$(where): '$*' hangs" ;;
	1) grep -qE "$ordinary" "$work/answer" "$work/answer.err" || fail "$(where): '$*' says: $(cat "$work/answer" "$work/answer.err" | head -c 400)" ;;
	*) fail "$(where): '$*' ends with $status: $(cat "$work/answer" "$work/answer.err" | head -c 400)" ;;
	esac
	return $status
}

plan_round() {
	local i n metric

	steps=("attach $target")
	n=$((1 + RANDOM % 3))
	for ((i = 0; i < n; i++)); do
		pick "${metrics[@]}"
		metric=$picked
		# shellcheck disable=SC2086
		set -f && pick ${globs[$program]} && set +f
		[ "$metric" = alloc_live ] && picked=
		steps+=("insert $metric $picked -p $target")
		case $((RANDOM % 5)) in
		0) steps+=("read -p $target") ;;
		1) steps+=("remove --all -p $target") ;;
		2) steps+=("remove --all -p $target" "flush -p $target") ;;
		esac
	done
	steps+=("detach -p $target")
}

# some_time: sets `seconds_drawn`; up to 1, 2, 4 ... 256 ms: many moments are short.
some_time() {
	seconds_drawn=$(printf '0.%03d' $(((RANDOM % 256) >> (RANDOM % 9))))
}

# happen HOW-LONG: the event. What the program does by itself (exec, fork, ...) happens all the time.
happen() {
	case $event in
	killed) kill -9 "$target" ;;
	ended) kill -TERM "$target" ;;
	stopped) kill -STOP "$target" ;;
	"stopped and continued")
		kill -STOP "$target"
		sleep "$1"
		kill -CONT "$target"
		;;
	esac
}

# session_ended: the daemon knows that the target has; the session is there until it is detached.
session_ended() {
	dinst --json ls 2>/dev/null | grep "\"pid\":$target,.*\"state\":\"exited\"" >"$work/ended"
}

# last_values: what instances had counted when it ended can still be read. One that became another program
# before has none.
last_values() {
	dinst --json ls 2>/dev/null | grep -q "\"pid\":$target,.*\"state\":\"\(running\|exited\)\"" || return 0
	wait_for 60 session_ended || fail "$(where): nobody tells that it has ended: $(dinst --json ls)"
	what="read -p $target, which has ended"
	ask read -p "$target" || fail "$(where): $(cat "$work/answer" "$work/answer.err" | head -c 400)"
	[ "$(field active ended)" -eq 0 ] || grep -qE '"(value|count)":' "$work/answer" ||
		fail "$(where): no values of $(field active ended) points: $(head -c 400 "$work/answer")"
	read_last=$((read_last + 1))
}

run_round() {
	local at=$((RANDOM % ${#steps[@]})) i before happening

	for ((i = 0; i < ${#steps[@]}; i++)); do
		what=${steps[i]}
		if [ $i -eq $at ]; then
			# Chance is drawn here: a subshell has another one.
			some_time
			before=$seconds_drawn
			some_time
			{
				sleep "$before"
				happen "$seconds_drawn"
			} &
			happening=$!
		fi
		# shellcheck disable=SC2086
		set -f && ask ${steps[i]}
		set +f
		[ $i -eq $at ] || continue
		wait "$happening"
		case $event in killed | ended) last_values ;; esac
	done
}

# ------------------------------------------------------------------- checks

# family PID: it and its descendants.
family() {
	local child

	echo "$1"
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		family "$child"
	done
}

state_is() {
	grep -q "^State:[[:space:]]*[$1]" "/proc/$target/status"
}

# Detached, whatever it takes. What a detach has told that it leaves, since the program was stopped in
# the middle of it, a repair takes out when the program goes on.
take_out() {
	local tries

	for ((tries = 0; tries < 40; tries++)); do
		if dinst ls 2>/dev/null | grep -qw "$target"; then
			what="detach -p $target, again"
			ask detach -p "$target" && break
		elif [ "${left:-0}" != 0 ]; then
			what="repair $target, where a detach left $left"
			ask repair "$target" && break
		else
			break
		fi
		nap 0.2
	done
	[ $tries -lt 40 ] || fail "$(where): cannot be detached: $(cat "$work/answer" "$work/answer.err" | head -c 400)"
}

check_alive() {
	local one

	if [ "$event" = stopped ]; then
		wait_for 100 state_is T || fail "$(where): it was stopped, and is in $(grep ^State: "/proc/$target/status")"
		kill -CONT "$target"
	fi
	take_out
	: >"$work/talk.end"
	wait "$talk" || fail "$(where): answers $(cat "$work/talk.wrong") $(head -3 "$work/program.err")"
	for one in $(family "$target"); do
		grep -q memfd:dinst "/proc/$one/maps" 2>/dev/null && fail "$(where): process $one has an arena"
		grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$one/status" 2>/dev/null && fail "$(where): process $one is traced"
	done
	state_is 'SRD' || fail "$(where): it is in $(grep ^State: "/proc/$target/status")"
	[ "$program" = forks ] || prove check "$target" "$work/picture" >"$work/proof" || fail "$(where): not as before: $(head -c 600 "$work/proof")"
}

check_dead() {
	local status wanted=$1

	wait "$target"
	status=$?
	[ $status -eq "$wanted" ] || fail "$(where): it ended with $status, not $wanted"
	: >"$work/talk.end"
	# Whoever talks to nobody gets no answer.
	kill "$talk" 2>/dev/null
	wait "$talk" 2>/dev/null
	[ ! -s "$work/talk.wrong" ] || grep -q "^'' to " "$work/talk.wrong" || fail "$(where): before it ended it answered $(cat "$work/talk.wrong")"
	take_out
}

asked=0
inserted=0
read_last=0
round=0
event=none what=
declare -A happened
start_daemon
begun=$(date +%s)
# Each program once at least, however slow it is here.
while [ $round -lt "$rounds" ] && { [ $(($(date +%s) - begun)) -lt "$seconds" ] || [ $round -lt ${#targets[@]} ]; }; do
	round=$((round + 1))
	RANDOM=$((seed + round * 100))
	program=${targets[round % ${#targets[@]}]}
	left=0
	pick killed killed ended stopped "stopped and continued" nothing nothing
	event=$picked
	happened[$event]=$((${happened[$event]:-0} + 1))
	start_program
	plan_round
	run_round
	case $event in
	killed) check_dead 137 ;;
	ended) check_dead 143 ;;
	*) check_alive ;;
	esac
	end_program
	kill -0 "$daemon" 2>/dev/null || fail "$(where): the daemon has ended"
	grep -E 'mutator.*(died|ended with status|does not end)' "$work/dinstd/dinstd.log" | head -3 >"$work/deaths"
	[ ! -s "$work/deaths" ] || fail "$(where): $(cat "$work/deaths")"
	[ -n "${VERBOSE:-}" ] && say "$round $program: $event; $(($(date +%s) - begun)) s"
done
for event in "${!happened[@]}"; do
	say "$event: ${happened[$event]} rounds"
done
[ $round -ge ${#targets[@]} ] || fail "only $round rounds"
[ $inserted -gt 0 ] || [ $round -lt 20 ] || fail "nothing was inserted in $round rounds"
pass "$round rounds, $asked requests, $inserted inserts done, last values read $read_last times: each answered, nobody harmed"
