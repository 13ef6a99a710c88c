#!/bin/bash
# SPDX-License-Identifier: MIT
#
# protocol.sh - the examples of docs/protocol.md, as they stand there, and the ten lines of
# Python. In a place of its own: an empty /run and nobody else's processes.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark socat python3 unshare ip

cat >"$work/inside" <<'END'
mount -t tmpfs none /run || exit 77
unset DINST_SOCKET XDG_RUNTIME_DIR
redis-server --bind 127.0.0.1 --save '' --dir "$work" >"$work/redis.log" 2>&1 &
server=$!
"$build/dinstd" >"$work/dinstd.log" 2>&1 &
daemon=$!
for _ in $(seq 600); do
	redis-cli ping >/dev/null 2>&1 && [ -S /run/dinst/dinstd.sock ] && break
	sleep 0.1
done
tests/tools/transcript.py docs/protocol.md Examples >"$work/transcript" 2>&1
echo "transcript $?" >"$work/verdict"
redis-benchmark -n 1000000000 -t set -q >/dev/null 2>&1 &
load=$!
timeout 300 examples/python/top.py redis-server >"$work/python" 2>&1
echo "python $?" >>"$work/verdict"
kill $load 2>/dev/null
for _ in $(seq 600); do
	"$build/dinst" --json ls >"$work/sessions" 2>/dev/null
	[ -s "$work/sessions" ] || break
	sleep 0.1
done
kill $daemon $server
wait $daemon
echo "daemon $?" >>"$work/verdict"
wait $server
echo "redis $?" >>"$work/verdict"
END
export work build
# A network of its own as well: the examples use redis's own port.
timeout 850 unshare -m -n -p -f --mount-proc bash -c "ip link set lo up; . $work/inside" >"$work/inside.log" 2>&1
status=$?
[ $status -eq 77 ] && skip "no mount namespaces here"
[ -s "$work/verdict" ] || fail "nothing was run (status $status): $(tail -3 "$work/inside.log")"
grep -qx 'transcript 0' "$work/verdict" || fail "$(cat "$work/transcript")"
grep -qx 'python 0' "$work/verdict" || fail "python: $(tail -3 "$work/python")"
[ "$(wc -l <"$work/python")" -eq 10 ] || fail "python: $(cat "$work/python")"
head -1 "$work/python" | grep -qE '^[1-9][0-9]* /Code/redis-server/' || fail "python: $(cat "$work/python")"
# A daemon that has died has no sessions either.
grep -qx 'daemon 0' "$work/verdict" || fail "the daemon: $(grep daemon "$work/verdict"): $(tail -3 "$work/dinstd.log")"
grep -qx 'redis 0' "$work/verdict" || fail "redis-server: $(tail -1 "$work/verdict"): $(tail -2 "$work/redis.log")"
[ -s "$work/sessions" ] && fail "a held session stayed: $(cat "$work/sessions")"
say "most called: $(head -1 "$work/python")"
pass "$(tail -1 "$work/transcript")"
