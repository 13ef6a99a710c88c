#!/bin/bash
# SPDX-License-Identifier: MIT
#
# stressors.sh - the stressors of stress-ng, which verify what they compute, with
# all functions of theirs and of libc instrumented.
#
#   stressors.sh [STRESSOR]...   only those; without, 42 of them by SEED, with DINST_SHORT=1 four; with ALL=1 all
#
# Each stressor runs twice at the same time, so that what else goes on here weighs
# on both alike. When one of them is in the middle of its work, the entries of all
# functions of the executable and of libc go into its worker and into each process
# that this one has made and kept, stay, and go out again; then both are ended.
# Wrong is: a stress-ng that does not end with 0 or tells a failure, a mutator that
# fails or leaves anything, code that is not as in the file, and a stressor that
# does less than a fifth of the other one's work while it is instrumented: that
# one gets a second and a third chance, four times as long, since a second of work is little of it:
# our mutator, which goes before all others, keeps the one beside it from its processor while it prepares.
#
# fear A4, A6, B5, E3, G1, G2, G9, K3: 42 stressors of stress-ng, of 81, one of each kind (signals, timers,
#   pipes, vectors, contexts, longjmp, forks, threads, memory) and the others by SEED, verify all they do and keep a fifth of their
#   speed with all functions of theirs and of libc instrumented in mid-run
. "$(dirname "$0")/../real/lib.sh"

need stress-ng awk
instrument=$build/tests/tools/instrument
SEED=${SEED:-1}

# Not funcret: a call of its functions, one instruction each, costs a cycle, and to count it another eight.
# Nor alarm: told to end half a second after it had begun, without any mutator, it did not in 6 of 770 runs
# (it ends its worker by a signal that this one takes for one of its own), or took its own counter for damaged.
# Nor hrtimers: its real-time processes take all processors, so that for seconds nobody comes to what we ask: busy.
stressors=(
	cpu fp funccall bsearch hash heapsort qsort mergesort radixsort str wcs tree skiplist regs
	vecmath vecfp vecshuf vecwide matrix memcpy zlib jpeg
	vm vm-rw vm-addr mmap mmapmany mremap malloc mprotect madvise stackmmap
	fork vfork clone daemon wait
	pthread mutex futex sem race-sched
	signal signest sigq sigfd sigfpe sigsegv sigsuspend sigpending sigchld sigtrap sigio sigabrt kill
	timer timerfd itimer nanosleep clock cyclic
	schedpolicy affinity yield switch
	context longjmp bad-altstack
	pipe fifo eventfd poll epoll mq sock msg io-uring
	fault opcode dynlib vdso
)

# One of each kind, which are always among them.
kinds=(cpu vm pthread signal fork pipe futex timer schedpolicy malloc mmap context longjmp sigfd poll switch vecmath)

# options STRESSOR: what keeps its rounds short, and lets two of a kind run at the same time: two of
# cyclic's deadlines, a whole processor each, are more than the kernel grants of two. Timer's own rate, a
# million signals a second, leaves nothing but its handler where a signal takes longer than that: then the one
# that is to end it is never handled, with or without us (2 of 120 that nobody touched hung, 1 of 60 with us).
options() {
	case $1 in
	vm | vm-rw | mmap | mremap) echo "--$1-bytes" 16m ;;
	# Fewer than are to be searched for tasks that it might have parked: it has swapcontext().
	malloc) echo --malloc-bytes 64k --malloc-max 512 ;;
	heapsort | qsort | mergesort | radixsort) echo "--$1-size" 20000 ;;
	tree) echo --tree-size 10000 ;;
	vm-addr) echo --vm-addr-method inc ;;
	cyclic) echo --cyclic-policy rr ;;
	timer) echo --timer-freq 100000 ;;
	sock) echo --sock-port "$(free_port)" ;;
	esac
}

# least STRESSOR CHANCE: the shortest time, in s, for which it is instrumented. Those whose operations are few
# and long, or whose stacks cannot be known, so that it takes long to be rid of us, need more of it; who is
# tried again, four times as much.
least() {
	local seconds

	case $1 in
	mmapmany | malloc | clone) seconds=$(short 6 2) ;;
	*) seconds=$(short 1.5 0.8) ;;
	esac
	awk -v seconds="$seconds" -v chance="$2" 'BEGIN { print (chance > 1 ? 4 : 1) * seconds }'
}

# below PID: all processes below it, its own children first; there may be thousands.
below() {
	ps -e -o pid=,ppid= | awk -v top="$1" '
		{ children[$2] = children[$2] " " $1 }
		END {
			for (next_one = top; next_one != ""; next_one = queue[++at]) {
				n = split(children[next_one], words)
				for (i = 1; i <= n; i++) print queue[++last] = words[i]
			}
		}'
}

has_worker() {
	[ -n "$(below "$1")" ]
}

# start STRESSOR NAME: leaves its pid in program.
start() {
	mkdir -p "$work/$2"
	# shellcheck disable=SC2046
	(cd "$work/$2" && exec chrt --other 0 stress-ng --seed "$SEED" --temp-path . --verify --metrics --timeout 1200 \
		"--$1" 1 $(options "$1") >"$work/$2.out" 2>&1) &
	program=$!
	children+=("$program")
}

# operations STRESSOR NAME: of the first of its lines; others have what else it has measured.
operations() {
	awk -v name="$1" '$2 == "metrc:" && $4 == name && NF > 10 { print $5; exit }' "$work/$2.out"
}

# show_stuck PID: each process below it, its signals, and where its threads are.
show_stuck() {
	local pid

	for pid in "$1" $(below "$1"); do
		grep -sE '^(Name|Pid|PPid|State|TracerPid|SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt):' "/proc/$pid/status" | paste -sd' '
		grep -sH . "/proc/$pid/task/"*/{wchan,syscall,stack}
	done
}

# land PID NAME STRESSOR: it has ended well; 1 if the one that nobody touched has not, which says nothing
# of the other one (pipe's last write is interrupted by the signal to end now and then).
land() {
	local status

	if ! wait_for 60 is_gone "$1"; then
		show_stuck "$1"
		[ "$2" = plain ] || fail "$3 $2: did not end within 60 s"
		say "$3 $2: did not end within 60 s"
		# shellcheck disable=SC2046
		kill -KILL $(below "$1") "$1"
		wait "$1"
		return 1
	fi
	wait "$1"
	status=$?
	if [ $status -ne 0 ] || grep -qE 'fail:|FAIL|unsuccessful' "$work/$2.out"; then
		tail -n 20 "$work/$2.out"
		[ "$2" = plain ] || fail "$3 $2: status $status: $(grep -m1 -E 'fail' "$work/$2.out")"
		say "$3 $2: status $status"
		return 1
	fi
	return 0
}

# as_before STRESSOR PID: but for what stressors themselves map otherwise all the time: memory that
# it shares (mprotect), its own files (fault, madvise), and the libraries that dynlib loads and unloads.
as_before() {
	if [ "$1" = dynlib ]; then
		! grep -q memfd:dinst "/proc/$2/maps" && grep -q '^TracerPid:[[:space:]]*0$' "/proc/$2/status"
		return
	fi
	prove check "$2" "$work/picture" all >"$work/proof" && return
	grep -q '^DIFFERENT: [0-9]* differences$' "$work/proof" &&
		! grep -qvE "^DIFFERENT|^  mapping (gone|new): .* (/dev/zero \(deleted\)|$work/.*)\$" "$work/proof"
}

# child_as_before PID: what the worker has made and its mutator has left: the code that both have is that of the
# picture, and no arena is there. What it maps, and whether it is stopped, is the stressor's business.
child_as_before() {
	grep -q '^detached: 0 left' "$work/mutator.$1" || return 0
	prove check "$1" "$work/picture" child >"$work/proof.child" 2>&1
	! grep -qE '^  (byte|memory of dinst): ' "$work/proof.child" && ! grep -qs memfd:dinst "/proc/$1/maps"
}

# is_answered PID: its mutator has inserted, or failed.
is_answered() {
	grep -qE 'points,|^instrument: ' "$work/mutator.$1"
}

# is_large PID: it has so much memory that it may be too much to be searched for parked tasks: it has swapcontext().
is_large() {
	[ "$(awk '/^RssAnon:/ { print $2 }' "/proc/$1/status" 2>/dev/null || echo 0)" -gt 65536 ]
}

# left_over PID: a mutator's line where it says that it left something, though it could have known better.
left_over() {
	grep '^detached: ' "$work/mutator.$1" | grep -v '^detached: 0 left' | {
		! grep -q 'too large to be searched' "$work/mutator.$1" || ! is_large "$1" && grep .
	}
}

# try STRESSOR CHANCE: a line about it; 1 if it was too slow, or not to be compared, 2 if it does not run here.
try() {
	local untouched=0 plain other worker first pids=() at began asked inserted removed over pid status

	rm -f "$work"/mutator.*
	start "$1" plain
	plain=$program
	start "$1" instrumented
	other=$program
	began=$(date +%s%3N)
	wait_for 10 has_worker "$other" || true
	sleep 0.25
	worker=$(below "$other" | head -1)
	if [ -z "$worker" ]; then
		kill -INT "$plain" "$other" 2>/dev/null
		wait "$plain" "$other"
		return 2
	fi
	first=$(below "$other")
	# It shares its memory with its child: who has one of them has both.
	[ "$1" != vm-rw ] || first=$worker
	sleep 0.05
	# No picture of libraries that come and go: one may be gone before it is read.
	[ "$1" = dynlib ] || prove save "$worker" "$work/picture" || fail "$1: cannot look at its worker"
	asked=$(date +%s%3N)
	for pid in $(below "$other" | grep -xF "$first" | head -8); do
		"$instrument" "$pid" e 1 - @main @libc <"$work/stay" >"$work/mutator.$pid" 2>&1 &
		pids+=($!)
	done
	exec 5>"$work/stay"
	wait_for 200 is_answered "$worker"
	if ! grep -q 'points,' "$work/mutator.$worker"; then
		say "$1: after $(($(date +%s%3N) - began)) ms: $(cat "$work/mutator.$worker"); worker $(grep ^State: "/proc/$worker/status")"
		exec 5>&-
		wait "${pids[@]}"
		fail "$1: not inserted: $(cat "$work/mutator.$worker")"
	fi
	inserted=$(date +%s%3N)
	points=$(sed -n 's/.* \([0-9]*\) points,.*/\1/p' "$work/mutator.$worker" | sum)
	[ "$points" -ge 500 ] || fail "$1: only $points points: $(cat "$work/mutator.$worker")"
	# Most of the time it is to be there, however long all of it takes here; half of it where that takes
	# long. A stressor of a real-time priority may leave us so little of a busy machine that this has to end, too.
	sleep "$(awk -v least="$(least "$1" "$2")" -v ms=$((inserted - asked)) 'BEGIN {
		t = ms < 4000 ? ms / 500 : 4 + ms / 1000
		t = t < 60 ? t : 60
		print (t > least ? t : least) }')"
	for pid in $first; do
		! is_large "$pid" || echo "$pid"
	done >"$work/large"
	exec 5>&-
	removed=$(date +%s%3N)
	for at in "${pids[@]}"; do
		wait "$at"
		status=$?
		[ $status -lt 124 ] || fail "$1: a mutator died (status $status): $(tail -2 "$work"/mutator.*)"
	done
	# A process that came to its end, or is traced by the one beside it, is no failure; others are. What is
	# said to be too large is judged below.
	if grep -h '^instrument: ' "$work"/mutator.* | grep -vE 'has the pid|zombie|has ended|is gone|too large to be searched|already traced by process [0-9]+ \(instrument\)' | grep .; then
		fail "$1: a mutator failed"
	fi
	for pid in $(below "$other" | grep -xF "$first" | head -8); do
		! left_over "$pid" || fail "$1: a mutator left something in process $pid"
	done
	for at in $(grep -l 'too large to be searched' "$work"/mutator.*); do
		pid=${at##*.}
		grep -qx "$pid" "$work/large" || is_large "$pid" || fail "$1: process $pid is not large: $(tail -2 "$at")"
	done
	grep -q '^detached: 0 left' "$work/mutator.$worker" || fail "$1: $(tail -1 "$work/mutator.$worker")"
	if ! as_before "$1" "$worker"; then
		# If it has ended, what stress-ng says of that tells why.
		[ -d "/proc/$worker" ] || wait "$other"
		cat "$work/mutator.$worker"
		tail -n 20 "$work/instrumented.out"
		fail "$1: worker $worker is not as before: $(head -c 300 "$work/proof")"
	fi
	for pid in $([ "$1" = dynlib ] || below "$other" | grep -xF "$first" | head -8); do
		[ "$pid" = "$worker" ] || child_as_before "$pid" ||
			fail "$1: process $pid is not as before: $(head -c 300 "$work/proof.child")"
	done
	kill -INT "$plain" "$other"
	over=$(date +%s%3N)
	land "$plain" plain "$1" || untouched=1
	land "$other" instrumented "$1"
	[ $untouched -eq 0 ] || return 1
	cat "$work"/mutator.* | awk -v name="$1" -v plain="$(operations "$1" plain)" -v other="$(operations "$1" instrumented)" \
		-v all=$((over - began)) -v held=$((removed - inserted)) -v counted="$work/counted" -v judged="$work/judged" '
		/^  e .* = / { hits += $4; n++ }
		/^asked [0-9]+ times: / { asked += $2 - 1 }
		END {
			printf "%.0f\n", hits >>counted
			part = held / all
			ratio = plain ? other / plain : 1
			now = (ratio - (1 - part)) / part
			slow = now < 0.2 && plain >= 20
			print (plain >= 20) + 0 >>judged
			printf "  %-12s %9d of %9d operations, %3d %% of its speed for %d %% of the time, %d processes, %d entries counted%s\n",
				name, other, plain, now * 100, part * 100, n / 2, hits, asked ? ", asked " asked " times again" : ""
			exit slow
		}'
}

wanted=("$@")
least=1
if [ $# -eq 0 ]; then
	# All of them take a quarter of an hour: ALL=1. Each seed takes others, in another order.
	number=$(short 42 4)
	least=$(short 40 1)
	first=" $(short "${kinds[*]}" "") "
	[ -z "${ALL:-}" ] || number=${#stressors[@]}
	mapfile -t wanted < <(printf '%s\n' "${stressors[@]}" |
		awk -v seed="$SEED" -v first="$first" 'BEGIN { srand(seed) } { print !index(first, " " $0 " "), rand(), $0 }' |
		sort | head -"$number" | cut -d' ' -f2,3 | sort | cut -d' ' -f2)
fi
say "SEED=$SEED"
# We and the mutators go before the stressors, which may be many, some of a real-time priority, and
# would leave us little of two processors.
chrt --rr -p 99 $$ || say "no real-time priority here: this takes longer"
mkfifo "$work/stay"
done=0 absent=
for stressor in "${wanted[@]}"; do
	for chance in 1 2 3; do
		try "$stressor" "$chance"
		status=$?
		[ $status -eq 1 ] || break
		say "again: $stressor was slow, or cannot be judged"
	done
	[ $status -ne 1 ] || fail "$stressor is slower than 5 times, or fails without us"
	[ $status -ne 2 ] && done=$((done + 1)) || absent="$absent $stressor"
done
[ $done -gt 0 ] || skip "none of them runs here:$absent"
[ $done -ge "$least" ] || fail "only $done of $least run here; not:$absent"
[ "$(sum <"$work/counted")" -gt 0 ] || fail "nothing was counted in any of them"
# Of the others too few operations are told to say how fast they were.
judged=$(sum <"$work/judged")
[ $((4 * judged)) -ge $((3 * done)) ] || fail "of only $judged of $done the speed can be told"
pass "$done stressors verified all they did${absent:+; not here:$absent}"
