#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fleet.sh - a real Prometheus scrapes two daemons and answers questions about both.
#
# Two dinstd, each with a redis of its own under a known load; counts, rates, quantiles (of
# classic and of native histograms) and the text's cleanness are compared with what redis and
# dinst say themselves. What a scrape costs is measured and told.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark prometheus promtool curl python3

declare -a redis_pid daemon_port daemon_pid redis_socket
requests=$(short 60000 20000)

# on N ARGS...: dinst with the N-th daemon.
on() {
	local n=$1

	shift
	DINST_SOCKET=$work/host$n/dinstd.sock dinst "$@"
}

start_host() {
	local n=$1 try

	mkdir -m 700 "$work/host$n"
	redis_socket[n]=$work/host$n/redis.sock
	redis-server --port 0 --unixsocket "${redis_socket[n]}" --save "" --appendonly no \
		>"$work/redis$n.log" 2>&1 &
	redis_pid[n]=$!
	children+=($!)
	wait_for 60 redis-cli -s "${redis_socket[n]}" ping || fail "redis $n does not start"
	for try in 1 2 3; do
		daemon_port[n]=$(free_port)
		"$build/dinstd" -s "$work/host$n/dinstd.sock" -m "127.0.0.1:${daemon_port[n]}" \
			2>"$work/dinstd$n.err" &
		daemon_pid[n]=$!
		wait_for 60 scrape "$n" && break
	done
	children+=("${daemon_pid[n]}")
	on "$n" attach "${redis_pid[n]}" >"$work/attach$n" 2>&1 || fail "attach: $(cat "$work/attach$n")"
	on "$n" insert calls processCommand >/dev/null || fail "insert calls"
	on "$n" insert latency processCommand >/dev/null || fail "insert latency"
	on "$n" insert cpu '/Process/*' >/dev/null || fail "insert cpu"
}

scrape() {
	curl -s -m 10 --fail "http://127.0.0.1:${daemon_port[$1]}/metrics" >"$work/scrape$1"
}

load() {
	redis-benchmark -s "${redis_socket[$1]}" -n "$requests" -c 5 -q -t "$2" >/dev/null 2>&1
}

# ask QUERY: the values, one a line, sorted.
ask() {
	curl -s -m 10 --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" |
		python3 -c 'import json, sys
answer = json.load(sys.stdin)
assert answer["status"] == "success", answer
for row in sorted(answer["data"]["result"], key=lambda r: r["metric"].get("instance", "")):
    value = row.get("value") or ["", "histogram"]
    print(value[1])'
}

# lines QUERY N: true when there are N values.
lines() {
	[ "$(ask "$1" | wc -l)" -eq "$2" ]
}

is_ready() {
	curl -s -m 2 --fail "http://127.0.0.1:$prometheus_port/-/ready"
}

# check NAME CONDITION VALUE...: an awk condition on v[1], v[2]...
check() {
	local what=$1 condition=$2

	shift 2
	[ $# -gt 0 ] || fail "$what: no answer"
	# shellcheck disable=SC2016
	printf '%s\n' "$@" | awk "{ v[NR] = \$1 } END { exit !($condition) }" ||
		fail "$what: $* is not $condition"
	say "$what: $*"
}

start_prometheus() {
	prometheus_port=$(free_port)
	cat >"$work/prometheus.yml" <<-END
		global: {scrape_interval: 1s}
		scrape_configs:
		  - job_name: dinst
		    static_configs:
		      - targets: ["127.0.0.1:${daemon_port[1]}", "127.0.0.1:${daemon_port[2]}"]
	END
	promtool check config "$work/prometheus.yml" >/dev/null || fail "the configuration"
	rm -rf "$work/data"
	prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
		--web.listen-address="127.0.0.1:$prometheus_port" "$@" >"$work/prometheus.log" 2>&1 &
	prometheus_pid=$!
	children+=($!)
	wait_for 120 is_ready || fail "Prometheus does not start"
	wait_for 120 lines 'up == 1' 2 || fail "not both are up: $(ask up)"
}

stop_prometheus() {
	kill "$prometheus_pid"
	wait_for 60 is_gone "$prometheus_pid" || fail "Prometheus does not end"
}

start_host 1
start_host 2
load 1 set
load 2 set
load 2 get

# what redis has counted itself, between two quiet moments
scrape 1 || fail "no scrape"
promtool check metrics <"$work/scrape1" >"$work/lint" 2>&1 || fail "promtool: $(head -5 "$work/lint")"
[ -s "$work/lint" ] && fail "promtool has something to say: $(head -5 "$work/lint")"
say "promtool check metrics: clean ($(grep -vc '^#' "$work/scrape1") lines, $(wc -c <"$work/scrape1") bytes)"

start_prometheus
wait_for 60 lines 'dinst_calls_total' 2 || fail "no counters"
sleep 2
check "calls of both" "v[1] >= $requests && v[2] >= 2 * $requests && v[2] < 2 * $requests + 60" \
	$(ask 'sort(dinst_calls_total)' | sort -n)
check "all together" "v[1] >= 3 * $requests && v[1] < 3 * $requests + 120" \
	$(ask 'sum(dinst_calls_total{function="processCommand"})')
check "as many latencies as calls" 'v[1] < 60' $(ask 'max(abs(dinst_latency_seconds_count - on(instance) dinst_calls_total))')

# a rate over a load that goes on
(for _ in 1 2 3 4 5 6 7 8; do load 1 get; done) &
loader=$!
sleep 5
check "rate under load" 'v[1] > 100' \
	$(ask "rate(dinst_calls_total{instance=\"127.0.0.1:${daemon_port[1]}\"}[15s])")
check "one process of a CPU at most, and not idle" 'v[1] > 0.02 && v[1] < 8' \
	$(ask "sum(rate(dinst_cpu_seconds_total{instance=\"127.0.0.1:${daemon_port[1]}\"}[15s]))")
wait $loader
sleep 2

# quantiles: within the bucket that dinst's own exact quantile lies in (classic ones are 1.5 wide)
own=$(on 2 --json read 2 | sed -n 's/.*"p99": *\([0-9]*\).*/\1/p')
check "p99 by classic buckets (dinst: $own ns)" "v[1] * 1e9 > $own / 1.55 && v[1] * 1e9 < $own * 1.55" \
	$(ask "histogram_quantile(0.99, dinst_latency_seconds_bucket{instance=\"127.0.0.1:${daemon_port[2]}\"})")
lines 'dinst_session_up == 1' 2 || fail "sessions are not up: $(ask dinst_session_up)"
check "stops" 'v[1] > 0 && v[2] > 0' $(ask dinst_session_stop_seconds_total)
stop_prometheus

start_prometheus --enable-feature=native-histograms
wait_for 60 lines 'histogram_count(dinst_latency_seconds)' 2 || fail "no native histograms"
check "native count" "v[1] >= 2 * $requests && v[1] < 2 * $requests + 60" \
	$(ask "histogram_count(dinst_latency_seconds{instance=\"127.0.0.1:${daemon_port[2]}\"})")
check "p99 by native buckets (dinst: $own ns)" "v[1] * 1e9 > $own / 1.12 && v[1] * 1e9 < $own * 1.12" \
	$(ask "histogram_quantile(0.99, dinst_latency_seconds{instance=\"127.0.0.1:${daemon_port[2]}\"})")

# a target that ends is told, and does not end the series of the other
kill "${redis_pid[1]}"
wait_for 60 lines 'dinst_session_up == 0' 1 || fail "an ended session is up"
lines 'dinst_session_up == 1' 1 || fail "the other one is not up"
stop_prometheus

# what a scrape costs dinstd
ticks() {
	awk '{ print $14 + $15 }' "/proc/${daemon_pid[2]}/stat"
}
before=$(ticks)
for _ in $(seq 20); do
	sleep 0.5
	scrape 2 || fail "no scrape"
done
used=$(awk -v a="$before" -v b="$(ticks)" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f", (b - a) * 1000 / hz / 20 }')
resident=$(awk '/VmRSS/ { print $2 }' "/proc/${daemon_pid[2]}/status")
say "a scrape of $(wc -c <"$work/scrape2") bytes takes dinstd $used ms of CPU; it has $resident KiB resident"
[ "$resident" -lt 65536 ] || fail "dinstd has $resident KiB"

on 2 detach >/dev/null || fail "detach"
on 1 stop >/dev/null 2>&1
on 2 stop >/dev/null 2>&1
pass "two daemons, one Prometheus: counts, rates, quantiles; $used ms a scrape"
