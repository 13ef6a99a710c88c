#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mdl_nginx.sh - bytes of each connection of an nginx worker, by the example
# connection_bytes.mdl, against what the clients say; sizes of its writes.
. "$(dirname "$0")/lib.sh"

need nginx curl
port=$(free_port)
requests=$(short 400 150)

mkdir -p "$work/html"
chmod 755 "$work" "$work/html"
head -c 30000 /dev/urandom >"$work/html/large"
echo hello >"$work/html/small"
chmod 644 "$work/html/"*
cat >"$work/nginx.conf" <<EOF
daemon off; master_process off; pid $work/pid; error_log $work/error.log;
events { worker_connections 256; }
http {
	access_log off; sendfile on; keepalive_requests 100000;
	client_body_temp_path $work/t; proxy_temp_path $work/t; fastcgi_temp_path $work/t;
	uwsgi_temp_path $work/t; scgi_temp_path $work/t;
	server { listen 127.0.0.1:$port; root $work/html; }
}
EOF
nginx -c "$work/nginx.conf" -p "$work" >"$work/nginx.log" 2>&1 &
server=$!
children+=("$server")
wait_for 60 curl -sf "http://127.0.0.1:$port/small" || fail "nginx does not answer: $(cat "$work/nginx.log" "$work/error.log")"
prove save "$server" "$work/picture" || fail "cannot look at the process"

json attach attach "$server" -M examples/mdl/connection_bytes.mdl -M examples/mdl/write_sizes.mdl
json each insert connection_bytes '/SyncObject/Connection/*' -p "$server"
json sizes insert write_sizes '/File/*' -p "$server"
say "two vectors: $(describe each); $(describe sizes)"

# One connection for the large file, one for the small one; headers count, too.
fetch() {
	printf 'url = "http://127.0.0.1:%s/%s"\n' "$port" "$1" >"$work/one.$1"
	for _ in $(seq "$requests"); do
		cat "$work/one.$1"
		echo 'output = "/dev/null"'
	done >"$work/urls.$1"
	curl -s -K "$work/urls.$1" -w '%{size_download} %{size_header} %{size_request} %{num_connects}\n' >"$work/said.$1" ||
		fail "curl: status $?"
	awk '{ n += $1 + $2 + $3; c += $4 } END { printf "%.0f %.0f\n", n, c }' "$work/said.$1"
}
large=$(fetch large)
small=$(fetch small)
say "the clients say: $large and $small (bytes, connections)"
settle "$server"
dinst --json read "$(field id each)" -p "$server" >"$work/values"
# The two descriptors may be one number, where the first connection was closed by then.
ours=$(sed -n 's/.*"value": *\([0-9]*\),.*"elements".*/\1/p; s/^.*"value": *\([0-9]*\).*/\1/p' "$work/values" | head -1)
theirs=$((${large% *} + ${small% *}))
say "connection_bytes: $ours, the clients: $theirs"
[ "$ours" -eq "$theirs" ] || fail "connection_bytes: $ours instead of $theirs"
dinst read "$(field id sizes)" -p "$server" >"$work/sizes.txt" || fail "read: $(cat "$work/sizes.txt")"
say "$(grep -c . "$work/sizes.txt") lines about sizes of writes"

json detach detach -p "$server"
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
say "$(cat "$work/proof")"
kill "$server"
wait "$server" || fail "nginx ended with status $?"
pass "$ours bytes of ${large#* } + ${small#* } connections, as curl counts them"
