#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh - a server under load is looked into and left as it was (make demo).
#
# Starts demo-server and a load that checks every answer, attaches, counts the
# calls of all functions, inserts and removes more while it runs, detaches, and
# proves that text and mappings are as before. Every number is measured here
# and now; whatever is not as promised ends with "demo failed" and status 1.
# Needs nothing but what was built; leaves nothing behind.
set -u
cd "$(dirname "$0")/.." || exit 1

build=${DINST_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-demo-XXXXXX") || exit 1
export DINST_SOCKET=$work/dinstd.sock
server=
load=
failures=0

finish() {
	[ -n "$load" ] && kill -CONT "$load" 2>/dev/null && kill "$load" 2>/dev/null
	dinst stop >/dev/null 2>&1
	[ -n "$server" ] && kill "$server" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

dinst() {
	timeout 300 "$build/dinst" "$@"
}

say() {
	printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi
}

show() {
	printf '  $ %s\n' "$*"
}

bad() {
	echo "  NOT AS PROMISED: $*"
	failures=$((failures + 1))
}

# field KEY: the numbers at that key of the JSON lines on standard input.
field() {
	sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"
}

largest() {
	sort -n | tail -1
}

# rate FROM TO: answers per second between two lines of the load's log.
rate() {
	echo "$1 $2" | awk '{ ms = $4 - $1; r = (ms > 0) ? ($5 - $2) * 1000 / ms : 0; printf "%d", r }'
}

mark() {
	tail -1 "$work/load"
}

# The load stands still, and the server has answered all that it was sent: its threads sleep,
# also at a second and a third look.
quiet() {
	local looks=0

	kill -STOP "$load"
	while [ $looks -lt 3 ]; do
		sleep 0.05
		looks=$((looks + 1))
		grep -qsE '\) [^T] ' "/proc/$load/task/"*/stat && looks=0
		grep -qsE '\) [^S] ' "/proc/$server/task/"*/stat && looks=0
	done
}

say "A server of 5 threads, under a load that checks every answer"
"$build/examples/demo-server" "$work/socket" 4 >"$work/server" 2>&1 &
server=$!
for _ in $(seq 600); do
	grep -q ready "$work/server" 2>/dev/null && break
	sleep 0.1
done
"$build/examples/demo-load" "$work/socket" 2 >"$work/load" 2>"$work/load.errors" &
load=$!
for _ in $(seq 600); do
	[ -s "$work/load" ] && break
	sleep 0.1
done
sleep 1
from=$(mark)
sleep 2
before_rate=$(rate "$from" "$(mark)")
"$build/examples/prove" save "$server" "$work/picture" || exit 1
echo "  pid $server answers $before_rate requests a second, uninstrumented"

say "Attach, and count the calls of all its functions"
show "dinst attach $server"
if ! dinst --json attach "$server" >"$work/attach" 2>"$work/errors"; then
	cat "$work/attach" "$work/errors"
	echo "demo failed: cannot attach"
	dinst doctor "$server"
	exit 1
fi
echo "  $(field modules <"$work/attach") modules with $(field functions <"$work/attach") functions," \
	"$(field attach_ms <"$work/attach" | cut -c1-5) ms, stopped for $(field stop_us <"$work/attach") us"
show "dinst insert calls '/Code/demo-server/*' --each"
dinst --json insert calls '/Code/demo-server/*' --each -p "$server" >"$work/insert" 2>"$work/errors"
status=$?
[ $status -eq 0 ] || [ $status -eq 3 ] || { bad "insert: $(cat "$work/insert" "$work/errors")"; }
points=$(field points <"$work/insert" | awk '{ n += $1 } END { print n + 0 }')
refused=$(field refused <"$work/insert" | awk '{ n += $1 } END { print n + 0 }')
insert_stop=$(field stop_us <"$work/insert" | largest)
echo "  $(wc -l <"$work/insert") functions, $points points ($refused refused), one stop of $insert_stop us"
[ "$points" -ge 30 ] || bad "only $points points"

say "What it does, live"
show "dinst watch -i 1 -c 3"
from=$(mark)
if [ -t 1 ]; then
	dinst watch -i 1 -c 3 -p "$server"
else
	# Without a terminal: the last table, without the functions that were not called.
	dinst watch -i 1 -c 3 -p "$server" >"$work/watch" 2>"$work/errors"
	awk '/^ *ID/ { n = 0 } { line[n++] = $0 } END { for (i = 0; i < n; i++) print line[i] }' \
		"$work/watch" | awk 'NR == 1 || $3 != 0' | sed 's/^/  /'
fi
during_rate=$(rate "$from" "$(mark)")

say "Exact: between two quiet moments, our count and the server's own"
quiet
id=$(grep '"/Code/demo-server/answer_request"' "$work/insert" | field id)
own_1=$("$build/examples/demo-load" "$work/socket" stats)
sleep 0.2
ours_1=$(dinst --json read "$id" -p "$server" | field value)
kill -CONT "$load"
sleep 1
quiet
own_2=$("$build/examples/demo-load" "$work/socket" stats)
sleep 0.2
ours_2=$(dinst --json read "$id" -p "$server" | field value)
kill -CONT "$load"
echo "  answer_request was called $((ours_2 - ours_1)) times, the server answered $((own_2 - own_1)) requests"
[ $((ours_2 - ours_1)) -eq $((own_2 - own_1)) ] || bad "the counts differ"

say "More goes in and out while it runs"
show "dinst insert calls /Code/demo-server/turn; dinst remove ID       (25 times, 3 functions)"
for i in $(seq 25); do
	for function in turn compare_numbers answer_request; do
		dinst --json insert calls "/Code/demo-server/$function" -p "$server" >>"$work/more" 2>&1 ||
			bad "insert: $(tail -1 "$work/more")"
		more=$(tail -1 "$work/more" | field id)
		dinst --json remove "$more" -p "$server" >>"$work/removes" 2>&1 ||
			bad "remove: $(tail -1 "$work/removes")"
	done
done
more_stop=$(field stop_us <"$work/more" | largest)
echo "  75 inserted beside what is there and removed again, longest stop $more_stop us"
show "dinst remove --all; dinst flush; dinst insert calls /Code/demo-server/fibonacci"
dinst --json remove --all -p "$server" >"$work/remove" 2>&1 || bad "remove: $(cat "$work/remove")"
dinst --json flush -p "$server" >"$work/flush" 2>&1 || bad "flush: $(cat "$work/flush")"
dinst --json insert calls /Code/demo-server/fibonacci -p "$server" >"$work/again" 2>&1 ||
	bad "insert: $(cat "$work/again")"
for _ in $(seq 600); do
	again=$(dinst --json read "$(field id <"$work/again")" -p "$server" | field value)
	[ "${again:-0}" -gt 0 ] && break
	sleep 0.1
done
flush_stop=$(field stop_us <"$work/flush" | largest)
echo "  all out (stop of $flush_stop us), one function in again: $again calls"
[ "${again:-0}" -gt 0 ] || bad "nothing was counted"

say "Detach, and prove that nothing is left"
show "dinst detach"
dinst --json detach -p "$server" >"$work/detach" 2>&1 || bad "detach: $(cat "$work/detach")"
detach_stop=$(field stop_us <"$work/detach" | largest)
echo "  $(field restored <"$work/detach") places restored, $(field left <"$work/detach") left, stop of $detach_stop us"
"$build/examples/prove" check "$server" "$work/picture" >"$work/proof" || bad "something is left in the process"
sed 's/^/  /' "$work/proof"

from=$(mark)
sleep 2
after_rate=$(rate "$from" "$(mark)")
kill "$load"
wait "$load" || bad "the load saw wrong answers: $(head -3 "$work/load.errors")"
load=
answers=$(tail -1 "$work/load" | cut -d' ' -f2)
wrong=$(tail -1 "$work/load" | cut -d' ' -f3)
kill "$server"
wait "$server" || bad "the server did not end with status 0"
server=

say "In numbers"
awk -v b="$before_rate" -v d="$during_rate" -v a="$after_rate" 'BEGIN {
	printf "  throughput before  %8d requests/s\n", b
	printf "             during  %8d requests/s  %5.1f %%, all functions counted\n", d, (b ? 100 * d / b : 0)
	printf "             after   %8d requests/s  %5.1f %%\n", a, (b ? 100 * a / b : 0)
}'
printf '  stopped for %s us (attach), %s us (insert %s points), %s us (longest of 75 more), %s us (flush), %s us (detach)\n' \
	"$(field stop_us <"$work/attach")" "$insert_stop" "$points" "$more_stop" "$flush_stop" "$detach_stop"
echo "  $answers answers checked, $wrong wrong"
[ "$failures" -eq 0 ] || { echo "demo failed: $failures things were not as promised"; exit 1; }
