#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mdl_python.sh - how long python's threads wait for the interpreter lock, by the
# example gil_wait.mdl. Two threads that count share one lock: what they wait and
# what they compute is all there is, and half each.
. "$(dirname "$0")/lib.sh"

need python3
seconds=$(short 6 3)

cat >"$work/count.py" <<'EOF'
import sys, threading
stop = False
counts = [0, 0]
def count(which):
    n = 0
    while not stop:
        for i in range(1000):
            n += i & 1
        counts[which] += 1
threads = [threading.Thread(target=count, args=(i,)) for i in range(2)]
for t in threads:
    t.start()
print("ready", flush=True)
for line in sys.stdin:
    print(*counts, flush=True)
stop = True
for t in threads:
    t.join()
EOF
coproc PYTHON { exec python3 "$work/count.py" 2>&1; }
children+=("$PYTHON_PID")
target=$PYTHON_PID
read -r -t 20 line <&"${PYTHON[0]}" && [ "$line" = ready ] || fail "python says '$line'"

value() {
	dinst --json read "$1" -p "$target" | sed -n 's/^.*"value": *\([0-9]*\).*/\1/p' | head -1
}

# CPU time of all threads, ns.
cpu() {
	cat "/proc/$target/task/"*/schedstat | awk '{ n += $1 } END { print n }'
}

json attach attach "$target" -M examples/mdl/gil_wait.mdl
json each insert gil_wait '/Process/*' -p "$target"
json waits insert gil_waits -p "$target"
say "$(describe each); $(describe waits)"
gil=$(field id each)
from=$(date +%s%N) c0=$(cpu) v0=$(value "$gil")
sleep "$seconds"
v1=$(value "$gil") c1=$(cpu) to=$(date +%s%N)
waited=$((v1 - v0)) computed=$((c1 - c0)) passed=$((to - from))
dinst read -p "$target" >"$work/read.txt" 2>&1 || fail "read: $(cat "$work/read.txt")"
sed 's/^/  /' "$work/read.txt"
say "waited $((waited / 1000000)) ms, computed $((computed / 1000000)) ms, two threads for $((passed / 1000000)) ms"
# One of them has the lock: together they wait about as long as has passed, however busy the machine is.
awk -v w="$waited" -v p="$passed" 'BEGIN { exit !(w > 0.7 * p && w < 1.3 * p) }' ||
	fail "two threads waited $waited ns in $passed ns"
[ "$(grep -cE '^ *[0-9]{3,} ' "$work/read.txt")" -ge 2 ] || fail "the threads are not told apart"
json detach detach -p "$target"
echo more >&"${PYTHON[1]}"
read -r -t 20 line <&"${PYTHON[0]}" || fail "python does not answer after detach"
exec {PYTHON[1]}>&-
wait "$target" || fail "python ended with status $?"
pass "waited $((waited / 1000000)) ms in $((passed / 1000000)) ms, computed $((computed / 1000000)) ms"
