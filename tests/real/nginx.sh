#!/bin/bash
# SPDX-License-Identifier: MIT
#
# nginx.sh - nginx with two workers and wrk: requests counted exactly, all
# functions of master and workers counted under load, workers replaced by a
# reload meanwhile, and nothing left.
. "$(dirname "$0")/lib.sh"

need nginx wrk curl
port=$(free_port)
seconds=$(short 6 3)

mkdir -p "$work/www" "$work/tmp"
chmod 755 "$work/www"
seq 1 20000 >"$work/www/numbers.txt"
echo hello >"$work/www/index.html"
cat >"$work/nginx.conf" <<CONF
daemon off;
user root;
worker_processes 2;
pid $work/nginx.pid;
error_log $work/error.log warn;
events { worker_connections 256; }
http {
	access_log off;
	gzip on;
	gzip_types text/plain;
	client_body_temp_path $work/tmp/body;
	proxy_temp_path $work/tmp/proxy;
	fastcgi_temp_path $work/tmp/fastcgi;
	uwsgi_temp_path $work/tmp/uwsgi;
	scgi_temp_path $work/tmp/scgi;
	types { text/plain txt; text/html html; }
	server {
		listen 127.0.0.1:$port;
		root $work/www;
		location /status { stub_status; }
		location /again/ { proxy_pass http://127.0.0.1:$port/; }
		location ~ ^/match/([a-z]+)/(\d+)\$ { return 200 "\$1=\$2"; }
	}
}
CONF

get() {
	timeout 60 curl -s "http://127.0.0.1:$port$1" "${@:2}"
}

# replies: a checksum over replies of all kinds.
replies() {
	{
		get /numbers.txt
		get /again/numbers.txt
		get /numbers.txt -H 'Accept-Encoding: gzip' | gzip -dc
		get /numbers.txt -H 'Range: bytes=1000-1999'
		get /match/abc/123
		get /nothing -o /dev/null -w '%{http_code}'
		get /numbers.txt -I | grep -iE '^(content-length|content-type)'
	} | sha256sum
}

# requests: how many requests the server has taken, this one included.
requests() {
	get /status | awk 'NR == 3 { print $3 }'
}

workers() {
	cat "/proc/$server/task/$server/children"
}

two_workers() {
	[ "$(workers | wc -w)" -eq 2 ]
}

# all_taken: the server has no connection but the one that asks: what the others sent is done.
all_taken() {
	[ "$(get /status | awk '/^Active/ { print $3 }')" = 1 ]
}

nginx -c "$work/nginx.conf" -e "$work/error.log" -p "$work" >"$work/nginx.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 get / || fail "nginx does not answer"
expected=$(replies)
[ "$(replies)" = "$expected" ] || fail "the replies are not deterministic"
timeout 120 wrk --timeout 60s -t2 -c16 -d1s "http://127.0.0.1:$port/" >/dev/null
wait_for 60 all_taken || fail "connections stay: $(get /status)"
wait_for 60 two_workers || fail "not two workers: $(workers)"
read -r worker_1 worker_2 <<<"$(workers)"
for pid in $server $worker_1 $worker_2; do
	prove save "$pid" "$work/picture.$pid" || fail "cannot look at $pid"
	json "attach.$pid" attach "$pid" -n "nginx-$pid"
done
say "attach: $(field attach_ms "attach.$worker_1") ms, stopped for $(field stop_us "attach.$worker_1") us"

# --- exact: both workers together, between two quiet moments
for pid in $worker_1 $worker_2; do
	json "one.$pid" insert calls /Code/nginx/ngx_http_process_request -p "nginx-$pid"
done
ours() {
	echo $(($(read_value "$(field id "one.$worker_1")" "nginx-$worker_1") + $(read_value "$(field id "one.$worker_2")" "nginx-$worker_2")))
}
theirs_1=$(requests)
ours_1=$(ours)
timeout 300 wrk --timeout 60s -t2 -c16 -d2s "http://127.0.0.1:$port/" >"$work/wrk-1"
wait_for 60 all_taken || fail "connections stay: $(get /status)"
theirs_2=$(requests)
ours_2=$(ours)
say "ngx_http_process_request: $((ours_2 - ours_1)), stub_status: $((theirs_2 - theirs_1))"
# wrk leaves requests behind whose connection it has closed: taken in, but some never
# processed, so what the server counts may be more by at most its connections.
lost=$((theirs_2 - theirs_1 - (ours_2 - ours_1)))
[ $lost -ge 0 ] && [ $lost -le 16 ] || fail "counted $((ours_2 - ours_1)), the server says $((theirs_2 - theirs_1))"
ours_1=$(ours)
theirs_1=$(requests)
for i in $(seq 100); do echo "url=http://127.0.0.1:$port/match/n/$i"; done >"$work/urls"
timeout 300 curl -s -K "$work/urls" >/dev/null
theirs_2=$(requests)
ours_2=$(ours)
[ $((theirs_2 - theirs_1)) -eq 101 ] || fail "the server took $((theirs_2 - theirs_1)) requests, not 101"
[ $((ours_2 - ours_1)) -eq 102 ] || fail "counted $((ours_2 - ours_1)), not 102"

# --- all functions of all three processes, under load
timeout 300 wrk --timeout 60s -t2 -c16 -d${seconds}s "http://127.0.0.1:$port/again/numbers.txt" >"$work/wrk-2" 2>&1 &
load=$!
children+=("$load")
sleep 0.3
for pid in $server $worker_1 $worker_2; do
	json "all.$pid" insert calls '/Code/nginx/*' --each -p "nginx-$pid"
done
say "all functions of a worker: $(wc -l <"$work/all.$worker_1") instances, $(describe "all.$worker_1")"
[ "$(field points "all.$worker_1" | sum)" -ge 500 ] || fail "only $(field points "all.$worker_1" | sum) points"
for i in 1 2 3; do
	got=$(replies)
	[ "$got" = "$expected" ] || fail "wrong reply"
done
wait "$load" || fail "wrk: $(tail -3 "$work/wrk-2")"
json values read -p "nginx-$worker_1"
active=$(field value values | awk '$1 > 0' | wc -l)
say "$active functions of a worker were called"
[ "$active" -ge 50 ] || fail "only $active functions were called"
grep -qE 'Non-2xx|Socket errors' "$work/wrk-2" && fail "wrk: $(grep -E 'Non-2xx|Socket errors' "$work/wrk-2")"
say "$(grep Requests/sec "$work/wrk-2")"

# --- the master forks new workers while it is instrumented; they serve like the old ones
kill -HUP "$server"
new_workers() {
	local now
	now=$(workers)
	[ -n "$now" ] && [[ " $now " != *" $worker_1 "* ]] && [[ " $now " != *" $worker_2 "* ]]
}
wait_for 60 new_workers || fail "the old workers $worker_1 $worker_2 stay after HUP: $(workers)"
got=$(replies)
[ "$got" = "$expected" ] || fail "wrong reply from workers forked meanwhile"
read -r worker_3 _ <<<"$(workers)"
grep -q 'memfd:dinst' "/proc/$worker_3/maps" || say "the new worker has no arena"

for pid in $worker_1 $worker_2 $server; do
	json "detach.$pid" detach -p "nginx-$pid"
done
say "detach of the master: $(field restored "detach.$server") restored, $(field left "detach.$server") left, stopped for $(field stop_us "detach.$server") us"
prove check "$server" "$work/picture.$server" >"$work/proof" || fail "the master is not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
# A new worker is a copy of the master: its text must be that of the picture, too.
prove check "$worker_3" "$work/picture.$server" >"$work/proof.new" 2>&1
grep -qE 'byte:|dinst' "$work/proof.new" && fail "something is left in a forked worker: $(head -c 600 "$work/proof.new")"
[ "$(replies)" = "$expected" ] || fail "wrong reply after detach"
exact_cycle "$worker_3" '/Code/nginx/*'
kill -QUIT "$server"
wait "$server" || fail "nginx ended with status $?"
grep -qE 'alert|emerg|crit' "$work/error.log" && fail "nginx: $(grep -E 'alert|emerg|crit' "$work/error.log" | head -3)"
pass "$(field points "all.$worker_1" | sum) points a process under load, $(field stop_us "all.$worker_1" | largest) us; workers forked meanwhile are clean"
