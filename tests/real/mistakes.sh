#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mistakes.sh - somebody who has never seen dinst, and a redis-server: what is typed wrong is
# answered with the status and one line that says what would be right; every result is JSON where
# that is asked for, fits the terminal, and goes where it is sent or says why not. Nothing is left.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark python3 script stty
port=$(free_port)
asked=0

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# says STATUS TEXT ARGS...: dinst ARGS ends with that status, prints nothing, and says TEXT in one
# line; with --json the same in an object.
says() {
	local status=$1 text=$2 got

	shift 2
	dinst "$@" >"$work/out" 2>"$work/said" </dev/null
	got=$?
	[ $got -eq "$status" ] || fail "dinst $*: status $got, not $status: $(head -c 300 "$work/said")"
	[ ! -s "$work/out" ] || fail "dinst $*: prints $(head -c 200 "$work/out")"
	[ "$(grep -c . "$work/said")" -eq 1 ] || fail "dinst $*: not one line: $(head -c 300 "$work/said")"
	grep -qF -e "$text" "$work/said" || fail "dinst $*: says $(cat "$work/said"), not '$text'"
	dinst --json "$@" >"$work/out" 2>"$work/said.json" </dev/null
	got=$?
	[ $got -eq "$status" ] || fail "dinst --json $*: status $got, not $status"
	grep -q '^{"error":{"code":"[a-z-]*","message":".*"}}$' "$work/said.json" &&
		grep -qF -e "$text" "$work/said.json" || fail "dinst --json $*: $(head -c 300 "$work/said.json")"
	asked=$((asked + 1))
}

# objects ARGS...: dinst --json ARGS prints objects, one a line and at least one, and nothing else.
objects() {
	dinst --json "$@" >"$work/out" 2>"$work/said" </dev/null || fail "dinst --json $*: $(head -c 300 "$work/said")"
	[ -s "$work/out" ] || fail "dinst --json $*: nothing"
	# read by a program at the end, all at once
	sed "s/^/$1 /" "$work/out" >>"$work/objects"
	asked=$((asked + 1))
}

# fits COLUMNS ARGS...: on a terminal that wide no line is longer.
fits() {
	local columns=$1

	shift
	LC_ALL=C.UTF-8 script -qec "stty cols $columns rows 24; exec timeout 120 '$build/dinst' $*" /dev/null \
		</dev/null >"$work/screen" 2>&1
	python3 - "$work/screen" "$columns" <<-'EOF' || fail "dinst $* in $columns columns"
		import re, sys
		text = open(sys.argv[1], encoding="utf-8").read()
		lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text).replace("\r", "\n").split("\n")
		long = [line for line in lines if len(line.rstrip()) > int(sys.argv[2])]
		print("\n".join(long[:3]), end="\n" if long else "")
		sys.exit(bool(long) or len(lines) < 5)
	EOF
	asked=$((asked + 1))
}

redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
cp "$(command -v sleep)" "$work/bare-sleep"
"$work/bare-sleep" 600 &
bare=$!
children+=("$bare")
wait_for 60 prove save "$server" "$work/picture" || fail "cannot look at the process"

# --- before anything is attached
says 2 "a command is missing"
says 1 "there is no session (no daemon runs)" read
says 2 "did you mean 'attach'?" atach "$server"
says 2 "there is no option --duratoin here (dinst hist --help)" hist -p "$server" processCommand --duratoin 1
says 2 "FUNCTION is missing; usage: dinst hist FUNCTION" hist -p "$server"
says 2 "METRIC is missing" insert
says 2 "of which program? say -p PID or -p NAME" hist processCommand
says 2 "attach needs a TARGET" attach
says 1 "no process has the pid 99999999" hist -p 99999999 processCommand
says 1 "no process named 'no-such-program'" trace -p no-such-program main
for duration in 0 -1 abc 1x ''; do
	says 2 "--duration takes a time as 10, 1.5s or 2m, not '$duration'" hist -p "$server" processCommand -d "$duration"
done

# --- with a session
json attach attach "$server"
session=$(field session attach)
says 1 "did you mean 'processCommand' in redis-server" hist processComand -d 1
says 1 "did you mean 'calls'?" insert cals processCommand
says 2 "there is no hierarchy '/Cod'; did you mean '/Code'?" insert calls /Cod/redis-server/call
says 1 "no module 'nosuch'; there are redis-server" insert calls /Code/nosuch/call
says 2 "--limit takes percent of a CPU, not '0'" insert calls processCommand --limit 0
says 1 "no instance has id 99" remove 99
says 2 "an id is a number, not 'abc'" read abc
says 2 "-c takes a number of readings, not '0'" watch -c 0
says 2 "functions match 'process*'" graph 'process*'
says 2 "--by takes arg0 to arg5, thread or caller, not 'bogus'" hist processCommand --by bogus
says 1 "cannot write /no/such/file: No such file or directory" hist processCommand -d 1 -o /no/such/file
says 1 "cannot write the output: No space left on device" hist processCommand -d 0.2 -o /dev/full
says 1 "is no recording of dinst" report "$work"
says 1 "bare-sleep is stripped" hist -p "$bare" no_such_function -d 1

redis-benchmark -h 127.0.0.1 -p "$port" -t set -n 1000000000 -q >/dev/null 2>&1 &
load=$!
children+=("$load")

# --- as programs want it
json insert insert latency processCommand
events=('trace processCommand -c 2' 'graph commandCheckArity -d 0.2')
has_clock || { events=(); absent "trace and graph" "the kernel does not trust this processor's clock"; }
for command in ls modules 'funcs process*' 'points processCommand' 'points --summary redis-server' \
	'cfg commandCheckArity' metrics read 'watch -c 2 -i 0.1' history "doctor $server" 'insert calls call' \
	'hist processCommand -d 0.2' 'hist processCommand -d 0.2 --by thread' "${events[@]}" \
	'top -c 2' 'why -d 2'; do
	# shellcheck disable=SC2086
	objects $command
done
# The load may be in what was taken out just now: 3, and only then; soon it is not.
for try in {1..50}; do
	dinst --json flush >"$work/out" 2>"$work/said" </dev/null
	got=$?
	queued=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["queued"])' <"$work/out") ||
		fail "dinst --json flush: status $got, $(head -c 300 "$work/out" "$work/said")"
	[ $got -eq $((queued > 0 ? 3 : 0)) ] || fail "dinst --json flush: status $got, $queued queued"
	[ "$queued" -gt 0 ] || break
	sleep 0.1
done
[ "$queued" -eq 0 ] || fail "$queued stay queued after $try flushes"
objects flush
json second insert calls call
objects remove "$(field id second)"

python3 - "$work/objects" <<-'EOF' || fail "some of it is no object"
	import json, sys
	for line in open(sys.argv[1]):
	    command, text = line.split(" ", 1)
	    try:
	        right = isinstance(json.loads(text), dict)
	    except ValueError:
	        right = False
	    if not right:
	        sys.exit("dinst --json %s: %s" % (command, text[:300]))
EOF

# --- as people look at it
for columns in 40 80 200; do
	fits $columns history "$(field id insert)" -p "$session"
done
for columns in 80 200; do
	fits $columns hist processCommand -d 1.2 -p "$session"
	fits $columns read -p "$session"
done
! has_clock || fits 80 -q graph commandCheckArity -d 0.2 -p "$session"

# --- two at once, each with its own answer
dinst --json hist processCommand -d 1 -p "$session" >"$work/one" 2>"$work/one.err" &
one=$!
dinst --json hist processCommand -d 1 -p "$session" >"$work/two" 2>"$work/two.err" || fail "two at once: $(cat "$work/two.err")"
wait $one || fail "two at once: $(cat "$work/one.err")"
for answer in one two; do
	[ "$(field count $answer)" -gt 0 ] || fail "two at once: $(head -c 300 "$work/$answer")"
done
asked=$((asked + 2))

kill "$load"
wait "$load" 2>/dev/null
json detach detach -p "$session"
[ "$(field left detach)" = 0 ] || fail "something is left: $(cat "$work/detach")"
says 1 "there is no session" detach
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
cli ping | grep -q PONG || fail "redis-server does not answer any more"
pass "$asked commands"
