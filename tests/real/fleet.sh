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
	local n=$1

	mkdir -m 700 "$work/host$n"
	redis_socket[n]=$work/host$n/redis.sock
	redis-server --port 0 --unixsocket "${redis_socket[n]}" --save "" --appendonly no \
		--dir "$work" >"$work/redis$n.log" 2>&1 &
	redis_pid[n]=$!
	children+=($!)
	wait_for 60 redis-cli -s "${redis_socket[n]}" ping || fail "redis $n does not start"
	daemon_port[n]=$(free_port)
	"$build/dinstd" -s "$work/host$n/dinstd.sock" -m "127.0.0.1:${daemon_port[n]}" \
		2>"$work/dinstd$n.err" &
	daemon_pid[n]=$!
	children+=("${daemon_pid[n]}")
	wait_for 60 scrape "$n" || fail "dinstd $n does not serve: $(cat "$work/dinstd$n.err")"
	on "$n" attach "${redis_pid[n]}" >"$work/attach$n" 2>&1 || fail "attach: $(cat "$work/attach$n")"
	on "$n" insert calls processCommand >/dev/null || fail "insert calls"
	on "$n" insert latency processCommand >/dev/null || fail "insert latency"
	on "$n" insert cpu '/Process/*' >/dev/null || fail "insert cpu"
}

scrape() {
	curl -s -m 60 --fail "http://127.0.0.1:${daemon_port[$1]}/metrics" >"$work/scrape$1"
}

load() {
	redis-benchmark -s "${redis_socket[$1]}" -n "$requests" -c 5 -q -t "$2" >/dev/null 2>&1
}

# ask QUERY: the values, one a line, sorted.
ask() {
	curl -s -m 60 --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" |
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

# answer QUERY: the values; a scrape that was too slow leaves a gap, which the next one ends.
answer() {
	local values

	for _ in $(seq 600); do
		values=$(ask "$1")
		[ -n "$values" ] && break
		sleep 0.1
	done
	echo "$values"
}

is_ready() {
	curl -s -m 60 --fail "http://127.0.0.1:$prometheus_port/-/ready"
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
		global: {scrape_interval: 2s}
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

# value_of KEY: in the JSON of one row on standard input.
value_of() {
	sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" | head -1
}

# has_run PID: ns that its threads have run, says the kernel.
has_run() {
	awk '{ n += $1 } END { printf "%.0f", n }' "/proc/$1/task/"*/schedstat
}

start_host 1
start_host 2
host_1="instance=\"127.0.0.1:${daemon_port[1]}\""
host_2="instance=\"127.0.0.1:${daemon_port[2]}\""
load 1 set
load 2 set
load 2 get

# What there is when nothing moves: redis has counted its requests, dinst is asked itself.
settle "${redis_pid[@]}"
calls_1=$(on 1 --json read 1 | value_of value)
calls_2=$(on 2 --json read 1 | value_of value)
own=$(on 2 --json read 2 | value_of p99)
check "calls that dinst counted" "v[1] >= $requests && v[1] < $requests + 60 && v[2] >= 2 * $requests && v[2] < 2 * $requests + 60" \
	"$calls_1" "$calls_2"
scrape 1 || fail "no scrape"
promtool check metrics <"$work/scrape1" >"$work/lint" 2>&1 || fail "promtool: $(head -5 "$work/lint")"
[ -s "$work/lint" ] && fail "promtool has something to say: $(head -5 "$work/lint")"
say "promtool check metrics: clean ($(grep -vc '^#' "$work/scrape1") lines, $(wc -c <"$work/scrape1") bytes)"

# Values may be from before the load's end, until dinstd has asked again; then they are the same.
start_prometheus
wait_for 120 lines "dinst_calls_total{$host_1} == $calls_1" 1 || fail "not $calls_1 calls: $(ask dinst_calls_total)"
wait_for 120 lines "dinst_calls_total{$host_2} == $calls_2" 1 || fail "not $calls_2 calls: $(ask dinst_calls_total)"
check "all together" "v[1] == $calls_1 + $calls_2" $(answer 'sum(last_over_time(dinst_calls_total{function="processCommand"}[2m]))')
check "as many latencies as calls" 'v[1] == 0' \
	$(answer 'max(abs(last_over_time(dinst_latency_seconds_count[2m]) - on(instance) last_over_time(dinst_calls_total[2m])))')

# quantiles: within the bucket that dinst's own exact quantile lies in (classic ones are 1.5 wide)
check "p99 by classic buckets (dinst: $own ns)" "v[1] * 1e9 > $own / 1.55 && v[1] * 1e9 < $own * 1.55" \
	$(answer "histogram_quantile(0.99, last_over_time(dinst_latency_seconds_bucket{$host_2}[2m]))")

# a rate, over a load that goes on until it is seen
(while [ ! -e "$work/enough" ]; do load 1 get; done) &
loader=$!
children+=("$loader")
wait_for 120 lines "rate(dinst_calls_total{$host_1}[15s]) > 0" 1 ||
	fail "no rate under load: $(ask "rate(dinst_calls_total{$host_1}[15s])")"
wait_for 120 lines "sum(rate(dinst_cpu_seconds_total{$host_1}[15s])) > 0" 1 ||
	fail "idle under load: $(ask "sum(rate(dinst_cpu_seconds_total{$host_1}[15s]))")"
touch "$work/enough"
wait $loader

# and what was counted meanwhile, when it is over
settle "${redis_pid[@]}"
more_1=$(on 1 --json read 1 | value_of value)
wait_for 120 lines "dinst_calls_total{$host_1} == $more_1" 1 || fail "not $more_1 calls: $(ask dinst_calls_total)"
say "under load: $((more_1 - calls_1)) calls more"
spent=$(has_run "${redis_pid[1]}")
cpu=$(answer "sum(last_over_time(dinst_cpu_seconds_total{$host_1}[2m]))")
check "CPU seconds, of $spent ns that it has run" \
	"v[1] * 1e9 > 0.2 * $spent && v[1] * 1e9 <= $(has_run "${redis_pid[1]}")" "$cpu"

wait_for 120 lines 'dinst_session_up == 1' 2 || fail "sessions are not up: $(ask dinst_session_up)"
check "stops" 'v[1] > 0 && v[2] > 0' $(answer 'last_over_time(dinst_session_stop_seconds_total[2m])')
stop_prometheus

start_prometheus --enable-feature=native-histograms
wait_for 120 lines "histogram_count(dinst_latency_seconds{$host_2}) == $calls_2" 1 ||
	fail "native histograms: $(ask 'histogram_count(dinst_latency_seconds)') of $calls_2"
wait_for 120 lines 'histogram_count(dinst_latency_seconds)' 2 || fail "no native histograms"
check "p99 by native buckets (dinst: $own ns)" "v[1] * 1e9 > $own / 1.12 && v[1] * 1e9 < $own * 1.12" \
	$(answer "histogram_quantile(0.99, dinst_latency_seconds{$host_2})")

# a target that ends is told, and does not end the series of the other
kill "${redis_pid[1]}"
wait_for 60 lines 'dinst_session_up == 0' 1 || fail "an ended session is up"
wait_for 120 lines 'dinst_session_up == 1' 1 || fail "the other one is not up"
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
