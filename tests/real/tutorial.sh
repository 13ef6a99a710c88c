#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tutorial.sh - docs/tutorial.md, word for word: a clone of this tree is built and installed, and
# looks into a redis-server of another user under load. In a place of its own: an empty
# /usr/local and /run, nobody else's processes, redis's own port.
. "$(dirname "$0")/lib.sh"

need redis-server redis-cli redis-benchmark python3 unshare git setpriv ip
need_clock
git rev-parse HEAD >/dev/null 2>&1 || skip "not a git repository, nothing to clone"
[ -f docs/tutorial.md ] || fail "no tutorial"

other=nobody
for user in redis $other; do
	id "$user" >/dev/null 2>&1 && other=$user && break
done
tree=$PWD
cp docs/tutorial.md tests/tools/transcript.py "$work/"
cat >"$work/inside" <<'END'
mount -t tmpfs none /run && mount -t tmpfs none /usr/local || exit 77
ip link set lo up
mkdir -m 777 /run/redis
unset DINST_SOCKET XDG_RUNTIME_DIR
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# compiled once is enough, where there is ccache
if command -v ccache >/dev/null; then
	export PATH=/usr/lib/ccache:$PATH CCACHE_DIR=$build/ccache CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
fi
# what is cloned in the first line is this tree
export DINST=$tree GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
setpriv --reuid="$other" --clear-groups redis-server --bind 127.0.0.1 --save '' --dir /run/redis >"$work/redis.log" 2>&1 &
server=$!
for _ in $(seq 600); do
	redis-cli ping >/dev/null 2>&1 && break
	sleep 0.1
done
# its clients come when the compiler has gone: there may be two processors for all of this
(
	until [ -x /usr/local/libexec/dinst/dinst-mutator ]; do sleep 0.2; done
	exec redis-benchmark -q -n 1000000000 -t set,get -P 4 >/dev/null 2>&1
) &
load=$!
cd "$work" || exit 1
./transcript.py tutorial.md >"$work/transcript" 2>&1
echo "transcript $?" >"$work/verdict"
cp dinst/redis.svg "$work/" 2>/dev/null
dinst stop >/dev/null 2>&1
kill $load $server
wait $server
echo "redis $?" >>"$work/verdict"
END
export work tree other
timeout 1750 unshare -m -n -p -f --mount-proc bash "$work/inside" >"$work/inside.log" 2>&1
status=$?
[ $status -eq 77 ] && skip "no mount namespaces here"
[ -s "$work/verdict" ] || fail "nothing was run (status $status): $(tail -3 "$work/inside.log" "$work/transcript")"
[ -n "${SHOW:-}" ] && cat "$work/transcript"
grep -qx 'transcript 0' "$work/verdict" || fail "$(grep -v '^  *\(CC\|CXX\|AR\|LINK\) ' "$work/transcript" | tail -150)"
grep -qx 'redis 0' "$work/verdict" || fail "redis-server: $(tail -2 "$work/verdict")"
grep -q '</svg>' "$work/redis.svg" || fail "no flame graph"
grep -q 'processCommand' "$work/redis.svg" || fail "the flame graph is about something else"
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/redis.svg" || fail "the flame graph is no XML"
pass "$(tail -1 "$work/transcript"), redis.svg of $(wc -c <"$work/redis.svg") bytes"
