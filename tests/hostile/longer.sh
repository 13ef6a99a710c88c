#!/bin/bash
# SPDX-License-Identifier: MIT
#
# longer.sh - tests of the live suite that take seconds there, for as long and as
# often as it takes to believe them: some three minutes on an idle machine. Not part
# of `make test`, which has the live suite.
#
# fear A2: a minute of stops of 64 threads that send signals, and of 64 that run into breakpoints
# fear A7: 100 insertions, and 100 sessions, while threads are in calls that last 25 s
# fear B1: 1,000 attaches to a program whose threads are all in the loader and in malloc
# fear K1: a library of 540,000 functions (170 MB) is loaded: the first point counts within 3 s of CPU
#   time (0.9 s of them were needed) and 120 MiB of memory (102 MiB)
# fear J2: death at 200 random steps from attach to detach
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "root is needed"

# live PROGRAM CASES: at least one case of that name, and all of them pass.
live() {
	local log="$work/$1.$BASHPID"

	say "$1 $2"
	"$build/tests/live/$1" "$2" >"$log" 2>&1 || fail "$1 $2: $(grep -v '^\[' "$log" | tail -8)"
	grep -q '^\[       OK' "$log" || fail "$1 $2: there is no such test"
	grep -v '^\[' "$log" | tail -2 | sed 's/^/    /'
}

unset DINST_SHORT
# large_library: as many functions as the largest libraries have, in assembly.
large_library() {
	awk -v n=540000 'BEGIN {
		print ".text"
		for (i = 0; i < n; i++) {
			name = "work_in_a_large_library_" i
			printf ".p2align 4\n.globl %s\n.type %s,@function\n%s:\n.cfi_startproc\n", name, name, name
			print "push %rbx\n.cfi_adjust_cfa_offset 8\nmov %edi,%ebx"
			printf "cmp $%d,%%edi\njle 1f\nlea 3(%%rdi),%%edi\ncall %s\nadd %%eax,%%ebx\n", i + 100, name
			printf "1: lea %d(%%rbx),%%eax\n.fill 140,1,0x90\n", i % 100
			print "pop %rbx\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc"
			printf ".size %s,.-%s\n", name, name
		}
		print ".section .note.GNU-stack,\"\",@progbits"
	}' | ${CC:-gcc} -x assembler -shared -Wl,-Bsymbolic -o "$work/liblarge.so" -
}

large_library &
library=$!
LIFE_MS=60000 live life_threads test_ring_of_signals &
ring=$!
LIFE_MS=60000 live life_threads test_breakpoints &
breakpoints=$!
wait $ring && wait $breakpoints || exit 1
# They wait nearly all the time.
BLOCKING_MS=25000 live signals 'test_blocking_*' &
blocking=$!
LOADING_ATTACHES=1000 live loading test_often
DINST_SEED=${SEED:-20} DEATHS=200 live death test_hundred_deaths
wait $library || fail "no large library can be made"
wait $blocking || exit 1
LARGE_LIBRARY=$work/liblarge.so LARGE_FUNCTION=work_in_a_large_library_270000 live large test_library
pass
