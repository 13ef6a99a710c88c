#!/bin/bash
# SPDX-License-Identifier: MIT
#
# users.sh - who may look into what: root into a process of somebody else;
# somebody into a process of his own where Yama permits it; nobody into root's.
. "$(dirname "$0")/lib.sh"

need setpriv
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
# Where they can get at it: the programs, and a directory of their own for the socket.
mkdir -p "$work/bin" "$work/theirs"
cp "$build/dinst" "$build/dinstd" "$build/dinst-mutator" "$build/examples/demo-server" "$work/bin/"
cp -rL "$build/metrics" "$work/bin/"
chmod -R a+rX "$work/bin"
chown nobody "$work/theirs"
chmod 700 "$work/theirs"
"${as_nobody[@]}" "$work/bin/dinst" --version >/dev/null 2>&1 || skip "nobody cannot run programs in $work"

their_dinst() {
	timeout 60 "${as_nobody[@]}" env DINST_SOCKET="$work/theirs/dinstd.sock" "$work/bin/dinst" "$@"
}

they_count() {
	[ "$(their_dinst --json read | sed -n 's/.*"value": *\([0-9]*\).*/\1/p')" -gt 0 ]
}

# fear A12: root into a process of another user, a user into his own, nobody into root's: works, or told why not
# --- root, into a process of nobody's
"${as_nobody[@]}" "$work/bin/demo-server" "$work/theirs/socket" 2 > >(exec cat >"$work/server.log") 2>&1 &
server=$!
children+=("$server")
wait_for 60 grep -q ready "$work/server.log" || fail "the server does not start"
prove save "$server" "$work/picture"
"$build/examples/demo-load" "$work/theirs/socket" 1 >"$work/load.log" 2>"$work/load.err" &
load=$!
children+=("$load")
json attach attach "$server"
json insert insert calls /Code/demo-server/answer_request
wait_for 60 counts "$(field id insert)" "$server" || fail "nothing was counted"
json detach detach
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
say "root into a process of nobody's: worked"

# --- nobody, into his own
yama=$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)
their_dinst --json attach "$server" >"$work/out" 2>&1
status=$?
if [ "$yama" -eq 0 ]; then
	[ $status -eq 0 ] || fail "nobody into his own: $(cat "$work/out")"
	their_dinst --json insert calls /Code/demo-server/answer_request >"$work/insert" 2>&1 || fail "insert: $(cat "$work/insert")"
	wait_for 60 they_count || fail "nothing was counted"
	their_dinst --json detach >"$work/out" 2>&1 || fail "detach: $(cat "$work/out")"
	say "nobody into his own: worked"
else
	[ $status -eq 1 ] && grep -qi yama "$work/out" || fail "Yama ($yama) is not named: $(cat "$work/out")"
	say "nobody into his own: refused, Yama is named"
fi
prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"

# --- nobody, into root's
# fear L2: a user gets into nothing through dinst that he could not get into without
their_dinst --json attach $$ >"$work/out" 2>&1
[ $? -eq 1 ] || fail "nobody could attach to a process of root's"
grep -q 'not-permitted' "$work/out" || fail "the reason is not told: $(cat "$work/out")"
say "nobody into root's: $(sed -n 's/.*"message": *"\(.*\)".*/\1/p' "$work/out")"
their_dinst --json doctor $$ >"$work/out" 2>&1
grep -q '"ok": *false' "$work/out" || fail "doctor sees nothing wrong: $(cat "$work/out")"
their_dinst stop >/dev/null 2>&1

kill "$load"
wait "$load" || fail "wrong answers: $(head -3 "$work/load.err")"
kill "$server"
wait "$server" || fail "the server ended with status $?"
pass "who may, and who is told why not"
