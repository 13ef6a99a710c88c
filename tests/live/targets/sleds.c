/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -mno-red-zone */
/*
 * sleds.c - a program that writes into its own code while threads run through it, as the runtime of
 * XRay does (clang -fxray-instrument; compiler-rt, lib/xray/xray_x86_64.cpp): sleds at entries and
 * returns, listed in the section xray_instr_map, become calls and jumps and are put back.
 *
 * sleds THREADS: prints "ready". Commands:
 *   start    the threads call `added` again and again; "started" once each of them does
 *   end      they stop; "ended CALLS"
 *   on, off  writes all sleds; "done"
 * Exits with 1 if a result was wrong, or if what the sleds call was not called.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS_MAX = 16, ENTER = 0, LEAVE = 1, PAGE = 4096 };

/* struct XRaySledEntry, version 2. */
struct sled {
	int64_t at, function; /* from where they stand */
	uint8_t kind, always, version, padding[13];
};

extern struct sled __start_xray_instr_map[], __stop_xray_instr_map[];

static atomic_int running, over, working, resting, wrong;
static atomic_ulong called;
atomic_ulong sleds_entered, sleds_left;

#define SLED_MAP(label, kind)                           \
	".pushsection xray_instr_map,\"a\",@progbits\n" \
	"91:	.quad " label " - 91b\n"                \
	"92:	.quad added - 92b\n"                       \
	"	.byte " kind ", 1, 2\n"                 \
	"	.zero 13\n"                                   \
	".popsection\n"

/* Its argument and 12, by way of registers that are saved: the return is among one-byte instructions. */
__asm__(".text\n"
	".globl added, at_entry, at_exit\n"
	".balign 256\n"
	".type added,@function\n"
	"added:\n"
	".cfi_startproc\n"
	"sled_in:\n"
	"	.byte 0xeb, 9\n"
	"	.byte 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0\n"
	"	push %rbx\n"
	"	push %rbp\n"
	"	push %r12\n"
	"	mov %rdi,%rbx\n"
	"	mov $5,%ebp\n"
	"	mov $7,%r12d\n"
	"	add %rbp,%rbx\n"
	"	add %r12,%rbx\n"
	"	mov %rbx,%rax\n"
	"	pop %r12\n"
	"	pop %rbp\n"
	"	pop %rbx\n"
	".balign 2\n"
	"sled_out:\n"
	"	ret\n"
	"	.byte 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0\n"
	".cfi_endproc\n"
	".size added,.-added\n"
	/* What a sled leads to. */
	".type at_entry,@function\n"
	"at_entry:\n"
	"	lock incq sleds_entered(%rip)\n"
	"	ret\n"
	".size at_entry,.-at_entry\n"
	".type at_exit,@function\n"
	"at_exit:\n"
	"	lock incq sleds_left(%rip)\n"
	"	ret\n"
	".size at_exit,.-at_exit\n" SLED_MAP("sled_in", "0") SLED_MAP("sled_out", "1"));

uint64_t added(uint64_t number);
void at_entry(void), at_exit(void);

static uint8_t *place_of(const struct sled *s)
{
	return (uint8_t *)((uintptr_t)&s->at + (uintptr_t)s->at);
}

/* mov $1,%r10d; call at_entry or jmp at_exit: the first two bytes last, or alone. */
static void write_sled(const struct sled *s, int on)
{
	static const uint8_t entry[] = {0xeb, 9, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0};
	static const uint8_t leave[] = {0xc3, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0};
	const uint8_t *off = s->kind == ENTER ? entry : leave;
	uint8_t *at = place_of(s);
	const int64_t to = (int64_t)(uintptr_t)(s->kind == ENTER ? at_entry : at_exit);
	const int32_t distance = (int32_t)(to - (int64_t)(uintptr_t)(at + 11));
	const uint32_t id = 1;
	uint16_t first = 0xba41;

	if (!on)
		memcpy(&first, off, sizeof(first));
	else {
		memcpy(at + 2, &id, sizeof(id));
		at[6] = s->kind == ENTER ? 0xe8 : 0xe9;
		memcpy(at + 7, &distance, sizeof(distance));
	}
	__atomic_store_n((uint16_t *)(void *)at, first, __ATOMIC_RELEASE);
}

/* As they were linked, for the test that compares: nobody comes here any more. */
static void tidy(const struct sled *s)
{
	static const uint8_t rest[] = {0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0};

	memcpy(place_of(s) + 2, rest, sizeof(rest));
}

static void write_sleds(int on)
{
	uint8_t *text = (uint8_t *)((uintptr_t)added / PAGE * PAGE);

	mprotect(text, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	for (const struct sled *s = __start_xray_instr_map; s < __stop_xray_instr_map; s++)
		write_sled(s, on);
	for (const struct sled *s = __start_xray_instr_map; !on && s < __stop_xray_instr_map; s++)
		if (!atomic_load(&running))
			tidy(s);
	mprotect(text, PAGE, PROT_READ | PROT_EXEC);
}

static void *work(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		unsigned long calls = 0;

		if (!atomic_load(&running))
			continue;
		atomic_fetch_add(&working, 1);
		do {
			if (added(calls) != calls + 12)
				atomic_store(&wrong, 1);
			calls++;
		} while (atomic_load_explicit(&running, memory_order_relaxed));
		atomic_fetch_add(&called, calls);
		atomic_fetch_add(&resting, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const int threads = argc > 1 ? atoi(argv[1]) : 2;
	pthread_t ids[THREADS_MAX];
	char line[64];

	if (threads < 1 || threads > THREADS_MAX)
		return 2;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, work, NULL))
			return 2;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "start\n")) {
			atomic_store(&resting, 0);
			atomic_store(&working, 0);
			atomic_store(&called, 0);
			atomic_store(&running, 1);
			/* One that has had no processor until "end" would never be seen to rest. */
			while (atomic_load(&working) < threads)
				usleep(1000);
			printf("started\n");
		} else if (!strcmp(line, "end\n")) {
			atomic_store(&running, 0);
			while (atomic_load(&resting) < threads)
				usleep(1000);
			printf("ended %lu\n", atomic_load(&called));
		} else {
			write_sleds(!strcmp(line, "on\n"));
			printf("done\n");
		}
		fflush(stdout);
	}
	atomic_store(&over, 1);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return atomic_load(&wrong) || !atomic_load(&sleds_entered) || !atomic_load(&sleds_left);
}
