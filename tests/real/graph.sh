#!/bin/bash
# SPDX-License-Identifier: MIT
#
# graph.sh - dinst graph on Debian's redis-server under redis-benchmark: the tree of
# processCommand has what redis does for a SET, every file is read back by the program
# it is for, Ctrl-C prints what there is, and nothing is left.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark python3
need_clock
port=$(free_port)

cli() {
	timeout 60 redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# A copy: what others do with probes on the installed file is none of our business.
cp "$(readlink -f "$(command -v redis-server)")" "$work/redis-server" || fail "no copy"
"$work/redis-server" --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no \
	>"$work/redis.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 cli ping || fail "redis-server does not answer"
prove save "$server" "$work/picture" || fail "cannot look at the process"

timeout 880 redis-benchmark -h 127.0.0.1 -p "$port" -t set -n 100000000 -q >/dev/null 2>&1 &
load=$!
children+=("$load")
wait_for 60 eval '[ "$(cli dbsize)" -gt 0 ]' || fail "no load"

dinst --json graph -p "$server" processCommand -d 5 -o "$work/tree.json" \
	--flame "$work/out.svg" --chrome "$work/chrome.json" --perfetto "$work/perfetto.json" \
	--folded "$work/out.folded" --callgrind "$work/callgrind.out" --pprof "$work/out.pb.gz" \
	2>"$work/graph.err" || fail "graph: $(cat "$work/graph.err")"
dinst ls -q | grep -q redis && fail "a session was left"

# Each call of processCommand that was followed runs call(), which runs setCommand() by a pointer.
python3 - "$work" <<'EOF' >"$work/tree.txt" || fail "$(cat "$work/tree.txt")"
import json, sys
work = sys.argv[1]
rows = [json.loads(line) for line in open(work + '/tree.json')]
head, nodes = rows[0], {'/'.join(r['path']): r for r in rows[1:]}
root = nodes['processCommand']
assert root['calls'] == head['followed'] > 0, head
for path in 'processCommand/call', 'processCommand/call/setCommand':
    n = nodes[path]
    # those that were running at the end have not come so far
    assert root['calls'] - root['running'] - 1 <= n['calls'] <= root['calls'], (path, n, root)
    assert n['total_ns'] <= root['total_ns'], (path, n, root)
assert len(nodes) > 20, len(nodes)
for path, n in nodes.items():
    below = sum(m['total_ns'] for p, m in nodes.items() if p.rsplit('/', 1)[0] == path and p != path)
    assert n['self_ns'] + below <= n['total_ns'] * 1.0001 + 1, (path, n, below)
folded = sum(int(line.rsplit(' ', 1)[1]) for line in open(work + '/out.folded'))
assert abs(folded - root['total_ns']) <= root['total_ns'] * 0.001, (folded, root)
for name in 'chrome', 'perfetto':
    events = json.load(open(f'{work}/{name}.json'))['traceEvents']
    spans = sum(e['ph'] == 'X' and e['name'] == 'processCommand' for e in events)
    assert abs(spans - root['calls']) <= 1, (spans, root)
    assert any(e['ph'] == 'M' and e['name'] == 'thread_name' for e in events)
print(f"{head['followed']} of {head['calls']} calls followed, {len(nodes)} paths, "
      f"{head['events']} events, {head['lost']} lost, cost {head['cost_percent']:.1f} %")
EOF
say "$(cat "$work/tree.txt")"
total=$(python3 -c 'import json,sys; print(json.loads(open(sys.argv[1]).readlines()[1])["total_ns"])' "$work/tree.json")

if have callgrind_annotate; then
	callgrind_annotate --inclusive=yes "$work/callgrind.out" >"$work/annotated" 2>&1 ||
		fail "callgrind_annotate: $(cat "$work/annotated")"
	grep -q ':processCommand \[redis-server\]' "$work/annotated" || fail "callgrind_annotate: no processCommand"
	say "callgrind_annotate: $(grep 'PROGRAM TOTALS' "$work/annotated" | tr -s ' ')"
else
	absent callgrind_annotate "is not installed"
fi
if have go; then
	HOME=$work go tool pprof -unit=ns -top -cum "$work/out.pb.gz" >"$work/pprof" 2>&1 ||
		fail "pprof: $(cat "$work/pprof")"
	grep -q "${total}ns.*processCommand" "$work/pprof" || fail "pprof: $(head -12 "$work/pprof")"
	say "pprof: $(grep processCommand "$work/pprof" | tr -s ' ')"
else
	absent pprof "go is not installed"
fi
if have chromium; then
	HOME=$work timeout 400 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--virtual-time-budget=2000 --dump-dom "file://$work/out.svg" >"$work/dom" 2>/dev/null ||
		fail "chromium ends with $?"
	# the script has run: it shows the bar
	grep -q 'id="bar"[^>]*visibility="visible"' "$work/dom" || fail "the drawing's script did not run"
	grep -q 'data-f="setCommand"' "$work/dom" || fail "no setCommand is drawn"
	say "chromium: $(grep -o 'class="f' "$work/dom" | wc -l) boxes"
else
	absent chromium "is not installed"
fi

# Ctrl-C in the middle of it, a signal while it still looks, and a client that is killed.
# interrupted SIGNAL SECONDS FILE: a graph that gets the signal so long after it has attached.
interrupted() {
	# INT is ignored in what a script starts in the background
	env --default-signal=INT "$build/dinst" graph -p "$server" processCommand -d 600 \
		>"$work/$3" 2>"$work/cut.err" &
	looking=$!
	children+=("$looking")
	wait_for 60 eval 'dinst ls -q | grep -q redis' || fail "graph does not attach: $(cat "$work/cut.err")"
	sleep "$2"
	kill -s "$1" "$looking"
	wait "$looking"
}
interrupted INT 8 cut.txt || fail "Ctrl-C: $? $(cat "$work/cut.err")"
dinst ls -q | grep -q redis && fail "a session was left by Ctrl-C"
interrupted TERM 0.1 cut.early || fail "SIGTERM: $? $(cat "$work/cut.err")"
dinst ls -q | grep -q redis && fail "a session was left by SIGTERM"
interrupted KILL 2 cut.killed 2>/dev/null
wait_for 60 eval '! dinst ls -q 2>/dev/null | grep -q redis' ||
	fail "a session was left by a client that was killed"
say "after 8 s and Ctrl-C: $(sed -n 2p "$work/cut.txt")"

kill "$load"
wait "$load" 2>/dev/null
[ "$(cli ping)" = PONG ] || fail "redis does not answer any more"
dinst stop >/dev/null 2>&1
prove check "$server" "$work/picture" || fail "the process is not as before"
pass "$(cat "$work/tree.txt")"
