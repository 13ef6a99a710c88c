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
read -r -t 120 line <&"${PYTHON[0]}" && [ "$line" = ready ] || fail "python says '$line'"

value() {
	dinst --json read "$1" -p "$target" | grep -o '"value": *[0-9]*' | head -1 | grep -o '[0-9]*$'
}

# CPU time of the two threads, and time that they were kept waiting for a processor, ns.
scheduled() {
	for tid in "/proc/$target/task/"*; do
		[ "${tid##*/}" = "$target" ] || cat "$tid/schedstat"
	done | awk '{ c += $1; d += $2 } END { printf "%.0f %.0f\n", c, d }'
}

# Time that the hypervisor took the processors away, ns: in neither of the two (of a thread that only
# computes, 5 s of the clock are its time, its delay and that, to 1 ms: CONFIG_PARAVIRT_TIME_ACCOUNTING).
stolen() {
	awk -v hz="$(getconf CLK_TCK)" '/^cpu / { printf "%.0f\n", $9 * 1e9 / hz }' /proc/stat
}

json attach attach "$target" -M examples/mdl/gil_wait.mdl
json each insert gil_wait '/Process/*' -p "$target"
json waits insert gil_waits -p "$target"
say "$(describe each); $(describe waits)"
gil=$(field id each)
# Looks at the clock and at the kernel's figures before and after each value: the value is for a
# time between the inner and the outer ones.
stolen1=$(stolen)
t1=$(date +%s%N) s1=$(scheduled) v1=$(value "$gil") s2=$(scheduled) t2=$(date +%s%N)
sleep "$seconds"
t3=$(date +%s%N) s3=$(scheduled) v2=$(value "$gil") s4=$(scheduled) t4=$(date +%s%N)
stolen=$(($(stolen) - stolen1))
waited=$((v2 - v1)) passed=$((t4 - t1))
# at least: all of the inner time in which they neither ran nor wanted to, nor had to wait for the hypervisor; at most: all of the outer
# one in which they did not run
least=$((2 * (t3 - t2) - (${s4% *} - ${s1% *}) - (${s4#* } - ${s1#* }) - stolen))
most=$((2 * (t4 - t1) - (${s3% *} - ${s2% *})))
dinst read -p "$target" >"$work/read.txt" 2>&1 || fail "read: $(cat "$work/read.txt")"
sed 's/^/  /' "$work/read.txt"
say "gil_wait $((waited / 1000000)) ms; the kernel: slept for $((least / 1000000)) ms at least, did not run for $((most / 1000000)) ms at most ($((stolen / 1000000)) ms stolen; looks took $(((t2 - t1) / 1000000)) and $(((t4 - t3) / 1000000)) ms)"
awk -v w="$waited" -v l="$least" -v m="$most" -v p="$passed" 'BEGIN { exit !(w > 0.9 * l - 0.02 * p && w < 1.1 * m + 0.02 * p) }' ||
	fail "two threads waited $waited ns, at least $least ns and at most $most ns"
[ "$(grep -cE '^ *[0-9]{3,} ' "$work/read.txt")" -ge 2 ] || fail "the threads are not told apart"
json detach detach -p "$target"
echo more >&"${PYTHON[1]}"
read -r -t 120 line <&"${PYTHON[0]}" || fail "python does not answer after detach"
exec {PYTHON[1]}>&-
wait "$target" || fail "python ended with status $?"
pass "gil_wait $((waited / 1000000)) ms, slept for $((least / 1000000)) to $((most / 1000000)) ms of two times $((passed / 1000000)) ms"
