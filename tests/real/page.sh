#!/bin/bash
# SPDX-License-Identifier: MIT
#
# page.sh - the page in a real browser, without one in the way, and against bad clients.
#
# Headless Chromium loads it from a daemon with a loaded redis: what it shows is compared with
# what dinst says; nothing is fetched from elsewhere; names that are HTML stay text; the token
# inserts and removes. Then tests/tools/http_hostile.py, with and without a token.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark python3 curl chromium

web=$(free_port)
url=http://127.0.0.1:$web
token=$work/token

api() {
	curl -s -m 60 "$url/api/$1"
}

# in_page FILE HASH: the page's DOM after some seconds of its time.
in_page() {
	HOME=$work timeout 400 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/chromium" \
		--window-size=1400,1300 --virtual-time-budget=8000 --enable-logging=stderr --v=0 \
		--dump-dom "$url/#$2" >"$work/$1" 2>"$work/$1.err"
}

shows() {
	grep -qF -- "$2" "$work/$1" || fail "the page does not show '$2': $(grep -o '<main.*' "$work/$1" | head -c 1500)"
}

start_load() {
	redis-benchmark -s "$work/redis.sock" -n 100000000 -c 4 -q -t get,set >/dev/null 2>&1 &
	loader=$!
	children+=("$loader")
}

is_up() {
	curl -s -m 60 --fail "$url/-/healthy"
}

redis-server --port 0 --unixsocket "$work/redis.sock" --save "" --dir "$work" >"$work/redis.log" 2>&1 &
redis=$!
children+=($!)
wait_for 60 redis-cli -s "$work/redis.sock" ping || fail "redis does not start"
"$build/dinstd" -m "127.0.0.1:$web" --token "$token" 2>"$work/dinstd.err" &
daemon=$!
children+=($!)
wait_for 60 is_up || fail "dinstd does not serve: $(cat "$work/dinstd.err")"
[ "$(stat -c %a "$token")" = 600 ] || fail "the token has mode $(stat -c %a "$token")"

# empty at first
in_page empty.html ''
shows empty.html 'dinst attach TARGET'

dinst attach "$redis" -n base >/dev/null || fail "attach"
dinst insert calls processCommand >/dev/null || fail "insert calls"
dinst insert latency processCommand >/dev/null || fail "insert latency"
dinst insert io_bytes >/dev/null || fail "insert io_bytes"
start_load
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"recording","params":{"title":"<b>bold</b> recording","unit":"ns",
"folded":"main;one 500\nmain;<script>document.title=1</script> 300\nmain;two;three 200\n"}}' | tr -d '\n' >"$work/recording"
python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(open(sys.argv[2], "rb").read() + b"\n")
answer = s.recv(4096); assert b"result" in answer, answer' "$DINST_SOCKET" "$work/recording" || fail "recording"
for _ in 1 2 3 4 5; do
	sleep 1
	api state >/dev/null
done

in_page full.html 'session=base'
for text in '>base<' processCommand latency io_bytes 'Longest stop' 'p99' '<canvas' 'one: ' '>live<'; do
	shows full.html "$text"
done
shows full.html '&lt;b&gt;bold&lt;/b&gt; recording'
shows full.html '<title>dinst</title>'
grep -q '<script>document' "$work/full.html" && fail "a name is taken for HTML"
grep -E 'Refused to|Uncaught|SyntaxError|ERR_' "$work/full.html.err" | grep -v favicon >"$work/errors"
[ -s "$work/errors" ] && fail "the browser says: $(head -3 "$work/errors")"
grep -rnE 'https?://' data/page | grep -v 'http://www.w3.org/2000/svg' >"$work/outside"
[ -s "$work/outside" ] && fail "it wants something from elsewhere: $(head -2 "$work/outside")"
rows=$(grep -o '<tr><td>[0-9]*</td>' "$work/full.html" | wc -l)
[ "$rows" -eq 3 ] || fail "$rows rows instead of 3"
say "in Chromium: $rows values, $(grep -o '<article' "$work/full.html" | wc -l) charts, $(grep -o '<rect' "$work/full.html" | wc -l) frames, no error"

# Another session is chosen while values are on their way: its buttons are those of the session that is shown.
if command -v node >/dev/null; then
	node tests/tools/page_sessions.js data/page >"$work/chosen" 2>&1 || fail "two sessions: $(cat "$work/chosen")"
	node tests/tools/page_rates.js data/page >"$work/rates" 2>&1 || fail "rates: $(cat "$work/rates")"
else
	absent "two sessions, rates" "nodejs is not installed"
fi

# What the page is told is what dinst says. The values are asked for last: what came meanwhile is
# in them and in nothing else; at rest there is nothing that came.
kill "$loader"
wait "$loader" 2>/dev/null
settle "$redis"
api 'history?session=base&ids=1,2' >"$work/history"
api 'heat?session=base&id=2' >"$work/heat"
dinst --json read 1 >"$work/own"
all_seen() {
	api 'values?session=base' >"$work/values"
	python3 -c 'import json, sys
seen = {r["id"]: r["value"] for r in json.load(open(sys.argv[1] + "/values"))["rows"] if "value" in r}
sys.exit(seen[1] != json.loads(open(sys.argv[1] + "/own").readline())["value"])' "$work"
}
wait_for 60 all_seen || fail "the page is told something else than dinst: $(cat "$work/values" "$work/own")"
python3 - "$work" <<'END' || fail "the values"
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
values = {r["id"]: r for r in load("values")["rows"]}
history = {r["id"]: r for r in load("history")["rows"]}
heat = load("heat")
assert set(values) == {1, 2, 3} and "buckets" not in values[2], values
assert abs(sum(history[1]["bins"]) - history[1]["value"]) <= 1, "bins do not add up"
assert 0 < history[1]["value"] <= values[1]["value"], (history[1]["value"], values[1]["value"])
assert heat["columns"] and sum(n for c in heat["columns"] for _, n in c["counts"]) <= values[2]["count"]
print("  %d calls, %d columns of heat" % (values[1]["value"], len(heat["columns"])))
END

# changes: with the token only
start_load
insert='{"session":"base","metric":"calls","focus":["call"],"each":false}'
change() {
	curl -s -m 60 -o "$work/change" -w '%{http_code}' -X POST -H 'Content-Type: application/json' "${@:3}" -d "$2" "$url/api/$1"
}
[ "$(change insert "$insert")" = 401 ] || fail "an insert without the token: $(cat "$work/change")"
[ "$(change insert "$insert" -H "Authorization: Bearer wrong")" = 401 ] || fail "an insert with a wrong token"
[ "$(change insert "$insert" -H "Authorization: Bearer $(cat "$token")")" = 200 ] || fail "insert: $(cat "$work/change")"
id=$(sed -n 's/.*"id": *\([0-9]*\).*/\1/p' "$work/change")
dinst --json read "$id" >/dev/null || fail "what was inserted over HTTP is not there"
[ "$(change remove "{\"session\":\"base\",\"ids\":[$id]}" -H "Authorization: Bearer $(cat "$token")")" = 200 ] || fail "remove: $(cat "$work/change")"
dinst --json read "$id" >/dev/null 2>&1 && fail "what was removed over HTTP is there"
[ "$(change insert '{"session":"base","metric":"nonsense","focus":[]}' -H "Authorization: Bearer $(cat "$token")")" = 409 ] ||
	fail "a metric that is none: $(cat "$work/change")"

# bad clients, then with a daemon that nobody may change
python3 tests/tools/http_hostile.py "$web" "$daemon" "$(cat "$token")" "$(short 30 5)" >"$work/hostile" || fail "$(head -5 "$work/hostile")"
say "$(tail -1 "$work/hostile")"
kill -0 $daemon 2>/dev/null || fail "dinstd is gone"
dinst detach >/dev/null || fail "detach"
dinst stop >/dev/null 2>&1
wait_for 60 is_gone "$daemon" || fail "dinstd does not end"
"$build/dinstd" -m "127.0.0.1:$web" 2>"$work/dinstd2.err" &
daemon=$!
children+=($!)
wait_for 60 is_up || fail "dinstd does not serve again: $(cat "$work/dinstd2.err")"
python3 tests/tools/http_hostile.py "$web" "$daemon" "" 2 >"$work/hostile" || fail "read-only: $(head -5 "$work/hostile")"
api state | grep -q '"read_only":true' || fail "it does not say that it is read-only"

# a daemon that runs serves when it is asked to, once
dinst stop >/dev/null 2>&1
wait_for 60 is_gone "$daemon" || fail "dinstd does not end"
dinst serve "127.0.0.1:$web" >"$work/serve" || fail "dinst serve: $(cat "$work/serve")"
grep -qF "$url/" "$work/serve" || fail "it does not say where: $(cat "$work/serve")"
is_up >/dev/null || fail "dinst serve serves nothing"
dinst serve >/dev/null 2>"$work/serve" && fail "it serves twice"
grep -qF "$url/" "$work/serve" || fail "it does not say where it serves already: $(cat "$work/serve")"
dinst serve "127.0.0.1:$web" --json 2>&1 | grep -q '"busy"' || fail "not busy"
dinst stop >/dev/null 2>&1

# who may read and write the files
cp "$token" "$work/open" && chmod 644 "$work/open"
"$build/dinstd" -s "$work/x.sock" -m 127.0.0.1:0 --token "$work/open" 2>"$work/dinstd3.err" && fail "a token that all can read is taken"
grep -q 'mode 0600' "$work/dinstd3.err" || fail "it does not say why: $(cat "$work/dinstd3.err")"
"$build/dinstd" -s "$work/dinstd/y.sock" -m "unix:$work/dinstd/web.sock" 2>"$work/dinstd4.err" &
children+=($!)
wait_for 60 test -S "$work/dinstd/web.sock" || fail "no unix socket: $(cat "$work/dinstd4.err")"
[ "$(stat -c %a "$work/dinstd/web.sock")" = 600 ] || fail "the socket is open to others"
curl -s -m 60 --unix-socket "$work/dinstd/web.sock" http://localhost/metrics | grep -q dinst_build_info || fail "no values at the unix socket"
pass "as the browser shows it, $rows values; changes with the token only"
