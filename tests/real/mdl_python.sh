#!/bin/bash
# SPDX-License-Identifier: MIT
#
# mdl_python.sh - how long python's threads wait for the interpreter lock, by the
# example gil_wait.mdl. Two threads that count share one lock: the time in which
# the kernel says that they sleep is what they wait, and a part of the time in
# which they could run and got no processor.
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
	dinst --json read "$1" -p "$target" | grep -o '"value": *[0-9]*' | head -1 | grep -o '[0-9]*$'
}

# CPU time of the two threads, and time that they were kept waiting for a processor, ns.
scheduled() {
	for tid in "/proc/$target/task/"*; do
		[ "${tid##*/}" = "$target" ] || cat "$tid/schedstat"
	done | awk '{ c += $1; d += $2 } END { print c, d }'
}

json attach attach "$target" -M examples/mdl/gil_wait.mdl
json each insert gil_wait '/Process/*' -p "$target"
json waits insert gil_waits -p "$target"
say "$(describe each); $(describe waits)"
gil=$(field id each)
from=$(date +%s%N) s0=$(scheduled) v0=$(value "$gil")
sleep "$seconds"
v1=$(value "$gil") s1=$(scheduled) to=$(date +%s%N)
waited=$((v1 - v0)) computed=$((${s1% *} - ${s0% *})) kept=$((${s1#* } - ${s0#* })) passed=$((to - from))
slept=$((2 * passed - computed - kept))
dinst read -p "$target" >"$work/read.txt" 2>&1 || fail "read: $(cat "$work/read.txt")"
sed 's/^/  /' "$work/read.txt"
say "gil_wait $((waited / 1000000)) ms; the kernel: slept $((slept / 1000000)) ms, kept waiting for a processor $((kept / 1000000)) ms, ran $((computed / 1000000)) ms"
awk -v w="$waited" -v s="$slept" -v k="$kept" -v p="$passed" 'BEGIN { exit !(w > 0.9 * s - 0.02 * p && w < 1.1 * (s + k) + 0.02 * p) }' ||
	fail "two threads waited $waited ns, and slept $slept ns"
[ "$(grep -cE '^ *[0-9]{3,} ' "$work/read.txt")" -ge 2 ] || fail "the threads are not told apart"
json detach detach -p "$target"
echo more >&"${PYTHON[1]}"
read -r -t 20 line <&"${PYTHON[0]}" || fail "python does not answer after detach"
exec {PYTHON[1]}>&-
wait "$target" || fail "python ended with status $?"
pass "gil_wait $((waited / 1000000)) ms, slept $((slept / 1000000)) ms of two times $((passed / 1000000)) ms"
