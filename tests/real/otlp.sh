#!/bin/bash
# SPDX-License-Identifier: MIT
#
# otlp.sh - values pushed by OTLP: their shape, and what happens when the receiver is away,
# busy, refuses or hangs up.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark python3 curl

port=$(free_port)
web=$(free_port)
requests=20000

receiver() {
	python3 tests/tools/otlp_receiver.py "$port" "$work/got" "$@" 2>"$work/receiver.err" &
	receiver=$!
	children+=($!)
}

stop_receiver() {
	kill "$receiver"
	wait_for 60 is_gone "$receiver"
}

has_lines() {
	[ -e "$work/got" ] && [ "$(grep -c "$1" "$work/got")" -ge "$2" ]
}

# own NAME: what dinstd says of its exports.
own() {
	curl -s -m 60 "http://127.0.0.1:$web/metrics" | sed -n "s/^dinst_otlp_$1 //p"
}

own_is() {
	[ "$(own "$1")" -ge "$2" ]
}

of_threads() {
	curl -s -m 60 "http://127.0.0.1:$web/metrics" >"$work/metrics"
	grep -q '^dinst_latency_seconds_sum{.*key=' "$work/metrics"
}

redis-server --port 0 --unixsocket "$work/redis.sock" --save "" --dir "$work" >"$work/redis.log" 2>&1 &
redis=$!
children+=($!)
wait_for 60 redis-cli -s "$work/redis.sock" ping || fail "redis does not start"

# seconds: since the daemon began, a value for the queue a second.
seconds() {
	echo $((($(date +%s%3N) - began) / 1000 + 1))
}

# nobody listens at first
began=$(date +%s%3N)
"$build/dinstd" -m "127.0.0.1:$web" --otlp "http://127.0.0.1:$port" --otlp-interval 1 2>"$work/dinstd.err" &
daemon=$!
children+=($!)
wait_for 60 own_is failures_total 0 || fail "dinstd does not start: $(cat "$work/dinstd.err")"
dinst attach "$redis" -n base >/dev/null || fail "attach"
dinst insert calls processCommand >/dev/null || fail "insert calls"
dinst insert latency processCommand >/dev/null || fail "insert latency"
dinst insert active processCommand >/dev/null || fail "insert active"
dinst insert io_bytes >/dev/null || fail "insert io_bytes"
redis-benchmark -s "$work/redis.sock" -n $requests -c 5 -q -t set >/dev/null 2>&1
wait_for 60 own_is failures_total 2 || fail "nothing failed without a receiver: $(own failures_total)"
say "without a receiver: $(own failures_total) failures, $(own queue_length) wait"

# one that does not even answer that somebody connects: it is given up
python3 - "$port" <<'END' >"$work/silent" &
import socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(0)
waiting = []
for i in range(4):
    waiting.append(socket.socket())
    waiting[-1].setblocking(False)
    waiting[-1].connect_ex(("127.0.0.1", int(sys.argv[1])))
print("silent", flush=True)
time.sleep(300)
END
silent=$!
children+=($!)
wait_for 60 grep -q silent "$work/silent" || fail "the silent receiver does not start"
failures=$(own failures_total)
wait_for 100 own_is failures_total $((failures + 1)) || fail "dinstd waits for ever: $(tail -2 "$work/dinstd.err")"
nap 1
[ -n "$(own failures_total)" ] || fail "dinstd has ended: $(tail -2 "$work/dinstd.err")"
kill "$silent"
wait_for 60 is_gone "$silent"

# one that is busy, hangs up, and then takes what has waited
receiver 503 0 429
wait_for 60 has_lines '^200 ok' 3 || fail "exports do not come: $(cat "$work/got" 2>/dev/null)"
has_lines bad 1 && fail "$(grep bad "$work/got" | head -3)"
wait_for 60 own_is exports_total 3 || fail "it does not know what came: $(own exports_total)"
# the queue has room for 16: on a slow machine it may have been full
dropped=$(own dropped_total)
[ "$dropped" -eq 0 ] || [ "$dropped" -le $(($(seconds) - 16)) ] || fail "$dropped were dropped in $(seconds) s"
wait_for 60 eval '[ "$(own queue_length)" -le 1 ]' || fail "$(own queue_length) wait still"
cat >"$work/check" <<'END'
import json, sys
root, requests = json.load(open(sys.argv[1])), int(sys.argv[2])
resources = {}
for r in root["resourceMetrics"]:
    about = {a["key"]: next(iter(a["value"].values())) for a in r["resource"]["attributes"]}
    resources[about.get("dinst.session", "")] = (about, {m["name"]: m for m in r["scopeMetrics"][0]["metrics"]})
about, metrics = resources["base"]
assert about["service.name"] == "redis-server" and int(about["process.pid"]) > 1, about
calls = int(metrics["dinst_calls_total"]["sum"]["dataPoints"][0]["asInt"])
latency = metrics["dinst_latency_seconds"]["exponentialHistogram"]["dataPoints"][0]
assert requests <= calls < requests + 50, calls
assert int(latency["count"]) == calls and 0 < latency["min"] < latency["max"] < 10, latency
assert metrics["dinst_io_bytes_total"]["unit"] == "By" and "gauge" in metrics["dinst_active"]
assert "dinst_sessions" in resources[""][1] and "dinst_session_up" in metrics
print("  values: %d calls, p0 %g s, p100 %g s; %d metrics" % (calls, latency["min"], latency["max"], len(metrics)))
END
# what waited was from before the load's end: the last export has all of it
wait_for 60 python3 "$work/check" "$work/got.json" $requests
python3 "$work/check" "$work/got.json" $requests || fail "the values"

# of a vector's elements the unit is that of the whole
dinst insert latency processCommand '/Process/*' >/dev/null || fail "insert latency for each thread"
redis-benchmark -s "$work/redis.sock" -n 2000 -c 5 -q -t set >/dev/null 2>&1
wait_for 60 of_threads || fail "no latency of a thread: $(grep latency "$work/metrics" | head -5)"
awk '/^dinst_latency_seconds_sum/ && $NF > 1000 { print; bad = 1 } END { exit bad }' "$work/metrics" ||
	fail "that is longer than we have been here"

# what is refused is given up, and said
stop_receiver
receiver 400 400
wait_for 60 has_lines '^400 ok' 2 || fail "exports do not come: $(tail -3 "$work/got")"
wait_for 60 own_is dropped_total $((dropped + 2)) || fail "what is refused is not dropped: $(own dropped_total)"

# away for long: the queue is bounded, and what does not fit any more is dropped
stop_receiver
dropped=$(own dropped_total)
wait_for 120 own_is dropped_total $((dropped + $(short 20 3))) || fail "nothing is dropped: $(own queue_length) wait"
[ "$(own queue_length)" -le 17 ] || fail "$(own queue_length) wait"
grep -q 'otlp: 127.0.0.1' "$work/dinstd.err" || fail "nothing is said in the log"
[ "$(grep -c 'otlp: 127.0.0.1' "$work/dinstd.err")" -lt 12 ] || fail "the log is full of it"

# a thread that sleeps in what was inserted would hold it: let it move
redis-benchmark -s "$work/redis.sock" -n 100000000 -c 2 -q -t set >/dev/null 2>&1 &
children+=($!)
dinst detach >/dev/null || fail "detach"
dinst stop >/dev/null 2>&1
wait_for 60 is_gone "$daemon" || fail "dinstd does not end while it waits for a receiver"
pass "strict shape, retries, refusals, a bounded queue"
