#!/bin/bash
# SPDX-License-Identifier: MIT
#
# running.sh - a program must do with all of it instrumented what it does without.
#
#   running.sh [-n TIMES] [-k KINDS] [-r RESOURCES] [-i INPUT] [-o FILE]... -- COMMAND...
#
# Runs COMMAND in a folder of its own uninstrumented, then TIMES times (3) with
# all points of KINDS (exc: entries, exits, calls; see instrument.c) of RESOURCES ("@main @libc")
# inserted before its first instruction, TIMES times with all of them inserted
# in the middle of the run, and TIMES times with them inserted and removed until
# it ends. Standard output and error, exit status and the files named with -o
# (relative to that folder) must be the same. With -i the program waits in the
# middle of its input while it is being attached to, so that a fast one is met
# in the middle, too; without, a third of its time is waited for. By itself it has to
# end with 0, and to print something where no file is named.
#
# Prints a line for each way, and ends with one line PASS|FAIL COMMAND ...
set -u

here=$(cd "$(dirname "$0")/../.." && pwd)
instrument=$(realpath "${DINST_BUILD:-$here/build}")/tests/tools/instrument
times=3 kinds=exc resources="@main @libc" input= outputs=() limit=${LIMIT:-300}
while getopts n:k:r:i:o: option; do
	case $option in
	n) times=$OPTARG ;;
	k) kinds=$OPTARG ;;
	r) resources=$OPTARG ;;
	i) input=$(realpath "$OPTARG") ;;
	o) outputs+=("$OPTARG") ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "usage: running.sh [OPTIONS] -- COMMAND..." >&2; exit 2; }
title=${TITLE:-$(basename "$1")}
dir=$(mktemp -d "${TMPDIR:-/tmp}/dinst-running-XXXXXX") || exit 2
feeder='' mutator='' program=''

finish() {
	local pid

	for pid in $feeder $mutator $program; do
		kill -9 "$pid" 2>/dev/null
	done
	[ -n "${KEEP:-}" ] && echo "kept: $dir" || rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

now() {
	date +%s%3N
}

# feed: the first half of the input, the rest when $1/more is there.
feed() {
	local half=$(($(stat -c %s "$input") / 2))

	head -c $half "$input"
	while [ ! -e "$1/more" ]; do sleep 0.02; done
	tail -c +$((half + 1)) "$input"
}

# launch NAME COMMAND...: starts it in a folder $dir/NAME/in; sets run, program, began.
launch() {
	run=$dir/$1
	shift
	mkdir -p "$run/in" "$run/log"
	began=$(now)
	if [ -n "$input" ]; then
		mkfifo "$run/fifo"
		feed "$run" >"$run/fifo" 2>/dev/null &
		feeder=$!
	else
		ln -s /dev/null "$run/fifo"
	fi
	(cd "$run/in" && INSTRUMENT_LOG=$run/log exec timeout --foreground -k 5 "$limit" env --default-signal=INT,QUIT,PIPE \
		"$@" <"$run/fifo" >"$run/stdout" 2>"$run/stderr") &
	program=$!
}

# land: waits for the program; leaves its status and the time it took.
land() {
	wait "$program"
	echo $? >"$run/status"
	took=$(($(now) - began))
	program=
	[ -z "$feeder" ] || { kill "$feeder" 2>/dev/null; wait "$feeder" 2>/dev/null; }
	feeder=
}

# differs: what is not as it was in the uninstrumented run.
differs() {
	local file

	for file in status stdout stderr "${outputs[@]/#/in/}"; do
		cmp -s "$dir/plain/$file" "$run/$file" || echo -n "$file "
	done
}

# The pid of the program itself: timeout's only child.
pid_of() {
	local tries=3000 pid=

	while [ $tries -gt 0 ] && [ -z "$pid" ]; do
		read -r pid <"/proc/$1/task/$1/children" 2>/dev/null
		pid=${pid%% *}
		[ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe")" != "$(command -v timeout)" ] &&
			[ "$(readlink "/proc/$pid/exe")" != "$(command -v env)" ] || pid=
		[ -n "$pid" ] || sleep 0.01
		tries=$((tries - 1))
	done
	echo "$pid"
}

plain=0 failures=0
# judge WAY: says how it went.
judge() {
	local difference counted end=yes

	difference=$(differs)
	counted=$(sed -n 's/^  [a-z].* = \([0-9]*\) (.*/\1/p' "$run"/log/*.log 2>/dev/null | sort -n | tail -1)
	[ "$1" = removed ] || grep -q '^end: ' "$run"/log/*.log 2>/dev/null || end=no
	if grep -hE '^instrument: ' "$run"/log/*.log >"$run/errors" 2>/dev/null; then
		difference="$difference$(head -1 "$run/errors")"
	fi
	# in and out all the time: it may have ended before the first round counted anything
	[ "$1" != removed ] || [ "$counted" != 0 ] || counted=none
	if [ -z "$difference" ] && [ -n "$counted" ] && [ "$counted" != 0 ] && [ $end = yes ]; then
		echo "  $1: same, $took ms (plain $plain ms), at most $counted at one kind"
	else
		failures=$((failures + 1))
		echo "  $1: DIFFERENT: ${difference:-nothing was counted to the end (counted: ${counted:-none}, end: $end)} status $(cat "$run/status"), $took ms"
		tail -n 3 "$run/stderr" | cut -c1-200 | sed 's/^/    /'
		[ -z "${KEEP:-}" ] || cp -r "$run" "$dir/failed-$failures-$1"
	fi
	rm -rf "$run"
}

# attach MILLISECONDS ROUNDS WAY: in the middle of the run.
attach() {
	local pid way=$3

	launch "$way" "${command[@]}"
	pid=$(pid_of "$program")
	sleep "$(awk -v ms="$plain" -v half="$input" 'BEGIN { print half != "" ? 0.05 : ms / 3000 }')"
	: >"$run/log/attach.log"
	"$instrument" "$pid" "$kinds" "$2" "$1" "${foci[@]}" >"$run/log/attach.log" 2>&1 &
	mutator=$!
	# the last kind at the last resource is in, or it is over
	while kill -0 $mutator 2>/dev/null && [ "$(grep -c 'points,' "$run/log/attach.log")" -lt $requests ]; do
		sleep 0.02
	done
	touch "$run/more"
	land
	wait $mutator || echo "instrument: status $?" >>"$run/log/attach.log"
	mutator=
	judge "$way"
}

command=("$@")
read -ra foci <<<"$resources"
# how many requests instrument makes of them: l are three kinds, m two
extra=${kinds//[!lm]/} extra=${extra//l/ll}
requests=$(((${#kinds} + ${#extra}) * ${#foci[@]}))
launch plain "${command[@]}"
touch "$run/more"
land
plain=$took
# What does not work by itself either does the same with us, whatever we do.
if [ "$(cat "$run/status")" -ne 0 ] || { [ ! -s "$run/stdout" ] && [ ${#outputs[@]} -eq 0 ]; }; then
	echo "FAIL $title: by itself it ends with status $(cat "$run/status"): $(tail -n 2 "$run/stderr" | cut -c1-200)"
	exit 1
fi
for ((i = 0; i < times; i++)); do
	launch exec "$instrument" --exec "$kinds" "${foci[@]}" -- "${command[@]}"
	touch "$run/more"
	land
	# its mutator writes the last lines after the program has ended
	for ((t = 0; t < 3000; t++)); do
		grep -q '^end: \|^instrument: ' "$run"/log/*.log 2>/dev/null && break
		sleep 0.02
	done
	judge exec
done
for ((i = 0; i < times; i++)); do
	attach 600000 1 attached
done
for ((i = 0; i < times; i++)); do
	attach $((plain / 8 + 20)) 1000 removed
done
if [ $failures -eq 0 ]; then
	echo "PASS $title: same output and status in $((3 * times)) runs, plain $plain ms"
else
	echo "FAIL $title: $failures of $((3 * times)) runs differ"
fi
[ $failures -eq 0 ]
