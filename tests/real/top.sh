#!/bin/bash
# SPDX-License-Identifier: MIT
#
# top.sh - dinst top and dinst hist on redis-server under redis-benchmark: their figures
# against INFO commandstats, the throughput, keys typed into a terminal (tmux) and what stands on
# the screen then, and that nothing stays.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark tmux python3
port=$(free_port)
# a copy: others may set the kernel's probes on the file itself
cp "$(command -v redis-server)" "$work/redis-top"

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# One client for SET and one for GET, so that there are both at any time.
start_load() {
	loads=()
	for command in set get; do
		redis-benchmark -h 127.0.0.1 -p "$port" -t $command -n 100000000 -c 5 -q >/dev/null 2>&1 &
		loads+=($!)
		children+=($!)
	done
}

# asking COMMAND: a client is.
asking() {
	cli client list | grep -q " cmd=$1 "
}

# both_ask: SET and GET, by now.
both_ask() {
	wait_for 60 asking set && wait_for 60 asking get || fail "no load: $(cli client list)"
}

stop_load() {
	for command in "${loads[@]}"; do
		kill "$command"
		wait_for 60 is_gone "$command"
	done
	settle "$server"
}

"$work/redis-top" --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
start_load
both_ask
prove save "$server" "$work/picture" || fail "cannot look at the process"

# --- a distribution, exact: between two moments with no load
stop_load
"$build/dinst" hist -p "$server" processCommand --json -d 60 >"$work/hist.json" 2>"$work/hist.err" &
hist=$!
children+=("$hist")
inserted() { [ "$(dinst ls -q --json | sed -n 's/.*"active": *\([0-9]*\).*/\1/p')" = 1 ]; }
wait_for 60 inserted || fail "hist inserted nothing: $(cat "$work/hist.err")"
before=$(cli info commandstats | sed -n 's/.*:calls=\([0-9]*\),.*/\1/p' | sum)
redis-benchmark -h 127.0.0.1 -p "$port" -t set,get -n 50000 -q >/dev/null 2>&1
after=$(cli info commandstats | sed -n 's/.*:calls=\([0-9]*\),.*/\1/p' | sum)
# SIGINT is ignored in what a script starts in the background
kill -TERM "$hist"
wait "$hist" || fail "hist: status $?: $(cat "$work/hist.err")"
count=$(sed -n 's/.*"count": *\([0-9]*\).*/\1/p' "$work/hist.json" | head -1)
# INFO itself is counted where it asks and not where it is asked
[ $((count - (after - before))) -ge 0 ] && [ $((count - (after - before))) -le 3 ] ||
	fail "hist counted $count commands, INFO $((after - before))"
say "hist: $count calls of processCommand, INFO says $((after - before))"

# mean NAME: of a function's calls/s over the refreshes but the first, which is the survey's.
mean() {
	sed 1d "$work/top.json" | grep -o "\"function\":\"$1\",\"calls_per_s\":[0-9.]*" | sed 's/.*://' | sum |
		awk -v n="$((refreshes - 1))" '{ printf "%d\n", $1 / n }'
}

# look NAME WHAT: `refreshes` objects of top; its rates or only its cost are compared.
look() {
	tests/tools/top_rates.py "$2" "$port" redis-top "$work/top.json" \
		"$build/dinst" top "$server" --json -n 400 -s calls -c "$refreshes" >"$work/look" 2>"$work/top.err" ||
		fail "$1: status $?: $(cat "$work/look" "$work/top.err")"
	[ "$(wc -l <"$work/top.json")" = "$refreshes" ] ||
		fail "$1: $(wc -l <"$work/top.json") objects instead of $refreshes"
	say "$1: top says $(mean setCommand) SET/s and $(mean getCommand) GET/s; $(cat "$work/look")"
	[ -z "$(dinst ls -q --json)" ] || fail "$1: a session is left"
}

# --- rates against INFO: under a load that is always the same
steady=()
for seconds in 0.005 0.005; do
	cli_command="set key value"
	[ ${#steady[@]} = 0 ] || cli_command="get key"
	# shellcheck disable=SC2086
	redis-cli -h 127.0.0.1 -p "$port" -r -1 -i $seconds $cli_command >/dev/null 2>&1 &
	steady+=($!)
	children+=($!)
done
both_ask
refreshes=$(short 12 8)
look steady rates
grep -q '"p99_ns":[0-9]' "$work/top.json" || fail "no latencies: $(tail -c 400 "$work/top.json")"
grep -q '"cpu_percent":[0-9]' "$work/top.json" || fail "no processor time"
for pid in "${steady[@]}"; do
	kill "$pid"
done
# --- what it costs under a load that takes all there is; that one is too uneven to compare rates
start_load
both_ask
look hot cost
[ "$(mean setCommand)" -gt 0 ] && [ "$(mean getCommand)" -gt 0 ] || fail "it misses what is called"

no_session() { [ -z "$(dinst ls -q --json)" ]; }

# --- in a terminal: keys typed, the screen compared
screen=(tmux -S "$work/tmux" -f /dev/null)
keys() {
	"${screen[@]}" send-keys -t top "$@"
}
shows() {
	"${screen[@]}" capture-pane -p -t top >"$work/screen" && grep -q -- "$1" "$work/screen"
}
expect() {
	wait_for 120 shows "$1" || fail "the screen does not show '$1': $(cat "$work/screen")"
}
hides() {
	! shows "$1"
}
"${screen[@]}" new-session -d -s top -x 100 -y 30 "exec bash --norc"
children+=("$("${screen[@]}" display-message -p '#{pid}')")
keys "stty -a | grep -o -- '-*icanon' >$work/stty.before" Enter
keys "$build/dinst top $server" Enter
expect "costs it .* of a CPU (limit 4 %)"
expect "processCommand"
expect "functions of redis-top were called, by cpu"
keys '?'
expect "processor time of the function itself"
keys x
keys /
keys setCom Enter
expect "with setCom"
expect "setCommand"
wait_for 60 hides getCommand || fail "the filter lets others through: $(cat "$work/screen")"
keys Enter
expect "called by setCommand"
keys / BSpace BSpace BSpace BSpace BSpace BSpace Enter
expect "setGenericCommand"
keys BSpace
expect "functions of redis-top were called"
keys / setCom Enter
expect "setCommand"
keys c
expect "callers of setCommand"
keys / BSpace BSpace BSpace BSpace BSpace BSpace Enter
expect "redis-top:call+0x"
keys BSpace
keys / setCom Enter
expect "setCommand"
keys t
expect "threads in setCommand"
keys / BSpace BSpace BSpace BSpace BSpace BSpace Enter
expect "$server "
keys BSpace
expect "functions of redis-top were called"
keys s
expect "by calls"
keys Space
expect "PAUSED"
keys Space
wait_for 60 hides PAUSED || fail "it stays paused"
# narrow: names and the first columns are still there
"${screen[@]}" resize-window -t top -x 40 -y 12
expect "FUNCTION"
wait_for 60 hides P50 || fail "a narrow terminal: $(cat "$work/screen")"
"${screen[@]}" resize-window -t top -x 140 -y 40
expect P50
keys q
wait_for 60 hides "functions of redis-top" || fail "q does not end it: $(cat "$work/screen")"
wait_for 60 no_session || fail "a session is left after q"
# Ctrl-C, Ctrl-\, and the terminal is as it was
for key in C-c 'C-\'; do
	keys "clear; $build/dinst top $server" Enter
	expect "functions of redis-top were called"
	keys "$key"
	wait_for 60 hides "functions of redis-top" || fail "$key does not end it: $(cat "$work/screen")"
	wait_for 60 no_session || fail "a session is left after $key"
	keys "stty -a | grep -o -- '-*icanon' >$work/stty.after; echo still \$((6 * 7))" Enter
	expect "still 42"
	cmp -s "$work/stty.before" "$work/stty.after" || fail "the terminal is not as it was after $key"
done
# a terminal that cannot move its cursor gets tables
keys "TERM=dumb $build/dinst top $server -c 2 -n 3" Enter
expect "CALLS/s .* FUNCTION"
# the terminal goes away
keys "$build/dinst top $server" Enter
expect "functions of redis-top were called"
"${screen[@]}" kill-server
wait_for 60 no_session || fail "a session is left after the terminal went"
say "terminal: drilled, filtered, sorted, resized, left by q, Ctrl-C and hanging up"

stop_load
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
cli ping >/dev/null || fail "redis does not answer any more"
pass "$(cat "$work/proof")"
