/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * text-huge.c - a program that puts its own text on huge pages while it runs,
 * as servers do that have much of it: the bytes are copied away, the mapping is
 * replaced by anonymous memory for huge pages, the bytes are copied back.
 *
 * text-huge HOW: later, small (ordinary pages, but moved all the same), huge, hugetlb (pages
 * that the administrator has reserved). Prints "ready", or that there are none. Commands:
 *   map HOW   moves the text, as above; "mapped", or that there are none; HOW may be nothing: unmaps it
 *   pages     "huge N KiB": how much of the text's mapping is on huge pages
 *   go N      calls two functions in it, if it is there, and one behind it, N times each; "done"
 * Exits with 1 if a result was wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { HUGE = 2 << 20 };

/* Two aligned MiB of text: functions at its begin and end, and nothing between. */
extern char huge_begin[], huge_end[];
extern long huge_first(long n), huge_last(long n), behind_huge(long n);
__asm__(".section .text.huge,\"ax\",@progbits\n"
	".p2align 21\n"
	".globl huge_begin, huge_end, huge_first, huge_last\n"
	"huge_begin:\n"
	".type huge_first,@function\n"
	"huge_first:\n"
	".cfi_startproc\n"
	"	lea 5(%rdi,%rdi,2),%rax\n"
	"	add $1,%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size huge_first,.-huge_first\n"
	".skip (2 << 20) - 64 - (. - huge_begin), 0xcc\n"
	".type huge_last,@function\n"
	"huge_last:\n"
	".cfi_startproc\n"
	"	lea (%rdi,%rdi,4),%rax\n"
	"	sub $3,%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size huge_last,.-huge_last\n"
	".p2align 6, 0xcc\n"
	"huge_end:\n"
	".globl behind_huge\n"
	".type behind_huge,@function\n"
	"behind_huge:\n"
	".cfi_startproc\n"
	"	lea 7(%rdi,%rdi,8),%rax\n"
	"	add $2,%rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size behind_huge,.-behind_huge\n"
	".text\n");

static int wrong, unmapped;

/* False if there is no such page. */
static int map_anew(const char *how)
{
	const int reserved = !strcmp(how, "hugetlb");
	char *text = huge_begin;
	void *copy, *probe;

	if (!strcmp(how, "later"))
		return 1;
	if (!strcmp(how, "nothing")) {
		unmapped = 1;
		return !munmap(text, HUGE);
	}
	if (reserved) {
		probe = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
		if (probe == MAP_FAILED)
			return 0;
		munmap(probe, HUGE);
	}
	copy = malloc(HUGE);
	if (huge_end - huge_begin != HUGE || (uintptr_t)text % HUGE)
		exit(3);
	memcpy(copy, text, HUGE);
	if (mmap(text, HUGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (reserved ? MAP_HUGETLB : 0), -1,
		 0) == MAP_FAILED)
		exit(3);
	/* Some kernels give them to whoever has room for one. */
	if (!reserved)
		madvise(text, HUGE, !strcmp(how, "huge") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memcpy(text, copy, HUGE);
	if (!strcmp(how, "huge"))
		madvise(text, HUGE, MADV_COLLAPSE);
	if (mprotect(text, HUGE, PROT_READ | PROT_EXEC))
		exit(3);
	free(copy);
	return 1;
}

static unsigned long huge_kib(void)
{
	unsigned long lo, hi, kib = 0, found = 0;
	FILE *file = fopen("/proc/self/smaps", "re");
	int inside = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
			inside = (uintptr_t)huge_begin >= lo && (uintptr_t)huge_begin < hi;
		else if (inside && (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1 ||
				    sscanf(line, "Private_Hugetlb: %lu kB", &kib) == 1))
			found += kib;
	}
	if (file)
		fclose(file);
	return found;
}

static void go(long n)
{
	for (long i = 0; i < n; i++)
		if ((!unmapped && (huge_first(i) != 3 * i + 6 || huge_last(i) != 5 * i - 3)) ||
		    behind_huge(i) != 9 * i + 9)
			wrong = 1;
}

int main(int argc, char **argv)
{
	char line[64];

	puts(map_anew(argc > 1 ? argv[1] : "later") ? "ready" : "no huge page is reserved");
	go(10);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "go ", 3)) {
			go(atol(line + 3));
			puts("done");
		} else if (!strncmp(line, "map ", 4)) {
			puts(map_anew(line + 4) ? "mapped" : "no huge page is reserved");
		} else if (!strcmp(line, "pages")) {
			printf("huge %lu KiB\n", huge_kib());
		}
		fflush(stdout);
	}
	return wrong;
}
