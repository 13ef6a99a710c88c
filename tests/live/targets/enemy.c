/* SPDX-License-Identifier: MIT */
/* build: -I. -Iarch/x86_64 inject/journal_check.c */
/*
 * enemy.c - a program that does what it can to lead dinst astray.
 *
 *   enemy MODE    one of the table at the end: forged arenas and journals, unwind
 *                 tables that never end, stacks without end, names that write on terminals
 *
 * "go N" calls work() N times and answers "done". It never harms itself: it computes
 * rightly, whatever is done about it, and ends with 0.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "inject/journal_format.h"

static const size_t MIB = (size_t)1 << 20;

__attribute__((noinline)) long work(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n * 3 + 1;
}

/* ---------------------------------------------------------- forged arenas */

struct forged {
	uint8_t *code, *data, *view; /* `view`: the file's start, to be written */
	size_t code_size, data_size;
	struct journal_header *h;
	struct journal_slot *slots;
	size_t used;
};

/* `mapped`: how much of the file there really is. */
static struct forged forge(size_t code_size, size_t file_size)
{
	struct forged f = {.code_size = code_size, .data_size = 4 * MIB};
	int fd = memfd_create("dinst", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)(code_size + f.data_size)))
		exit(3);
	f.data = mmap(NULL, f.data_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)code_size);
	f.code = mmap(NULL, code_size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	/* Only the data half of a target is writable where it starts at 0: so with an offset. */
	f.view = mmap(NULL, code_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f.code == MAP_FAILED || f.data == MAP_FAILED || f.view == MAP_FAILED ||
	    ftruncate(fd, (off_t)file_size))
		exit(3);
	close(fd);
	f.h = (struct journal_header *)(void *)f.view;
	f.slots = (struct journal_slot *)(void *)(f.view + JOURNAL_HEADER_SIZE);
	if (!file_size)
		return f;
	f.h->version = JOURNAL_VERSION;
	f.h->header_size = JOURNAL_HEADER_SIZE;
	f.h->slot_size = sizeof(struct journal_slot);
	f.h->capacity = (uint32_t)journal_capacity(code_size);
	snprintf(f.h->session, sizeof(f.h->session), "forged");
	f.h->code = (uintptr_t)f.code;
	f.h->code_size = code_size;
	f.h->data = (uintptr_t)f.data;
	f.h->data_size = f.data_size;
	f.h->mode = ARENA_SHARED;
	f.h->cpus = 1;
	f.h->cpu_shift = 16;
	memcpy(f.h->magic, JOURNAL_MAGIC, sizeof(f.h->magic));
	f.h->checksum = journal_header_checksum(f.h);
	f.h->high = ~0ull; /* broken: all slots may be entries */
	return f;
}

static void entry(struct forged *f, uint64_t address, unsigned length, const void *patched,
		  const void *original)
{
	struct journal_slot *slot = &f->slots[f->used++];

	memset(slot, 0, sizeof(*slot));
	slot->address = address;
	slot->length = (uint8_t)length;
	memcpy(slot->patched, patched, length < ARCH_PATCH_MAX ? length : ARCH_PATCH_MAX);
	memcpy(slot->original, original, length < ARCH_PATCH_MAX ? length : ARCH_PATCH_MAX);
	slot->checksum = journal_slot_checksum(slot, f->h->checksum);
	slot->state = JOURNAL_LIVE;
}

/* Nobody keeps the view: who writes the start of the file would be a mutator. */
static void done_with(struct forged *f)
{
	munmap(f->view, f->code_size);
}

static uint64_t vdso(void)
{
	unsigned long long lo = 0;
	char line[256];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && !lo && fgets(line, sizeof(line), maps))
		if (strstr(line, "[vdso]"))
			lo = strtoull(line, NULL, 16);
	if (maps)
		fclose(maps);
	return lo;
}

/*
 * What is no text, with the bytes that are there for what was patched: only its place
 * keeps dinst from putting back what never was there.
 */
static struct untouched {
	uint64_t address;
	uint8_t bytes[ARCH_PATCH_MAX];
} untouched[2];
static size_t untouched_count;

static void leave_alone(struct forged *f, uint64_t address)
{
	static const uint8_t others[ARCH_PATCH_MAX] = {0x0f, 0x0b, 0x0f, 0x0b};
	struct untouched *u = &untouched[untouched_count];

	u->address = address;
	memcpy(u->bytes, (const void *)(uintptr_t)address, ARCH_PATCH_MAX);
	entry(f, address, ARCH_PATCH_MAX, u->bytes, others);
	untouched_count++;
}

static bool is_untouched(void)
{
	for (size_t i = 0; i < untouched_count; i++)
		if (memcmp((const void *)(uintptr_t)untouched[i].address, untouched[i].bytes,
			   ARCH_PATCH_MAX))
			return false;
	return true;
}

static void entries_everywhere(struct forged *f)
{
	static const uint8_t ours[ARCH_PATCH_MAX] = {0xe9, 1, 2, 3, 4};
	static const uint8_t theirs[ARCH_PATCH_MAX] = {0x0f, 0x0b, 0x0f, 0x0b};
	uint64_t here = (uintptr_t)&here, code = (uintptr_t)work;
	const uint64_t wild[] = {0,
				 1,
				 4096,
				 here,
				 (uintptr_t)f->code,
				 (uintptr_t)f->data,
				 (uintptr_t)f->code - 2,
				 vdso(),
				 vdso() + 8,
				 0xffffffffff600000,
				 0xffff800000000000,
				 0xffffffff81000000,
				 0x7ffffffff000 - 2,
				 0x7fffffffffff,
				 0x800000000000,
				 UINT64_MAX - 3,
				 UINT64_MAX,
				 code,
				 code + 1,
				 code + 2,
				 code + 3,
				 (uintptr_t)exit,
				 (uintptr_t)environ};

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		entry(f, wild[i], 5, ours, theirs);
		entry(f, wild[i], 16, ours, theirs);
		entry(f, wild[i], 255, ours, theirs); /* no such length */
		entry(f, wild[i], 0, ours, theirs);
		/* As it is already. */
		if (i >= 17 && i <= 20)
			entry(f, wild[i], 4, ours, (const void *)(uintptr_t)wild[i]);
	}
}

static void wild(void)
{
	struct forged f = forge(4 * MIB, 8 * MIB);

	entries_everywhere(&f);
	/* The kernel's code, which has no file. */
	leave_alone(&f, vdso() + 64);
	leave_alone(&f, vdso() + 0x600);
	/* The private part: memory of the program that is something else. */
	f.h->threads = (uintptr_t)f.data;
	f.h->threads_size = f.data_size;
	f.h->threads_check = ~(f.h->threads + f.h->threads_size);
	done_with(&f);
	f = forge(2 * MIB, 6 * MIB);
	f.h->threads = (uint64_t)-4096;
	f.h->threads_size = 8192;
	f.h->threads_check = ~(f.h->threads + f.h->threads_size);
	f.h->owner = UINT64_MAX;
	done_with(&f);
}

/* Known by its header alone. */
static void private_arena(void)
{
	struct forged like = forge(2 * MIB, 6 * MIB), f = like;

	f.code = f.view =
		mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (f.code == MAP_FAILED)
		exit(3);
	memcpy(f.code, like.view, JOURNAL_HEADER_SIZE);
	f.h = (struct journal_header *)(void *)f.code;
	f.slots = (struct journal_slot *)(void *)(f.code + JOURNAL_HEADER_SIZE);
	f.h->mode = ARENA_PRIVATE;
	f.h->code = (uintptr_t)f.code;
	f.h->data = 0x7ffffff00000; /* nothing is there */
	f.h->data_size = 0x100000000;
	f.h->cpu_shift = 30;
	f.h->checksum = journal_header_checksum(f.h);
	entries_everywhere(&f);
	mprotect(f.code, 2 * MIB, PROT_READ | PROT_EXEC);
	munmap(like.view, like.code_size);
}

/* Mapped, and nothing is behind it: whoever looks through a mapping of his own dies of SIGBUS. */
static void cut_off(void)
{
	struct forged f = forge(4 * MIB, 4096);

	done_with(&f);
	f = forge(4 * MIB, 0);
	done_with(&f);
	f = forge(4 * MIB, JOURNAL_HEADER_SIZE + 4096);
	for (int i = 0; i < 40; i++)
		entry(&f, (uintptr_t)work + (uintptr_t)i, 5, "\xe9\0\0\0\0",
		      "\x90\x90\x90\x90\x90");
	done_with(&f);
}

static struct forged flipped;
static bool flips = true;

/* It says one thing when it is checked and another when it is used. */
static void *flip(void *arg)
{
	uint64_t state = 88172645463325252ull;
	struct journal_header good = *flipped.h;

	while (__atomic_load_n(&flips, __ATOMIC_RELAXED)) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		struct journal_header bad = good;

		((uint8_t *)&bad)[state % sizeof(bad)] = (uint8_t)(state >> 32);
		if (state & 1)
			bad.checksum = journal_header_checksum(&bad);
		*flipped.h = bad;
		struct journal_slot *slot = &flipped.slots[(state >> 8) % 64];

		slot->address = (uintptr_t)work + (state >> 40) % 64;
		slot->length = (uint8_t)(state >> 50);
		if (state & 2)
			slot->checksum = journal_slot_checksum(slot, good.checksum);
		*flipped.h = good;
	}
	return arg;
}

static void flipping(void)
{
	pthread_t thread;

	flipped = forge(4 * MIB, 8 * MIB);
	entries_everywhere(&flipped);
	/* Its own view goes on, of other pages than the first: through the kernel's copy. */
	pthread_create(&thread, NULL, flip, NULL);
	pthread_detach(thread);
}

/* More arenas than there can be, and as many entries as there can be. */
static void crowd(void)
{
	struct forged f;

	for (int i = 0; i < 40; i++) {
		f = forge(MIB, 5 * MIB);
		done_with(&f);
	}
}

enum { SHORTS = 60000 };
static uint64_t *leads; /* to the holes */

/*
 * Short jumps, the holes that they lead to, and a stack full of addresses of those: as
 * if threads were to come back to every one of them.
 */
static void full(void)
{
	struct forged f = forge(64 * MIB, 68 * MIB);
	static const uint8_t jump[ARCH_PATCH_MAX] = {0xeb, 0x10};
	static const uint8_t hole[ARCH_PATCH_MAX] = {0xe9, 1, 2, 3, 4};
	static const uint8_t was[ARCH_PATCH_MAX] = {0x90, 0x90, 0x90, 0x90, 0x90};
	const uint64_t libc = (uintptr_t)malloc;

	for (int i = 0; i < SHORTS; i++) {
		/* It does not harm itself: nowhere is what it says was patched. */
		if (!memcmp((const void *)(uintptr_t)(libc + (uint64_t)i * 3), jump, 2))
			continue;
		entry(&f, libc + (uint64_t)i * 3, 2, jump, was);
		entry(&f, libc + (uint64_t)i * 3 + 18, 5, hole, was);
		leads[i] = libc + (uint64_t)i * 3 + 18;
	}
	done_with(&f);
}

/* ---------------------------------------------------------------- unwinding */

/* Functions that wait for ever; what their tables say of the frame is below. */
#define WAITS(name, cfi)                                                              \
	__asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" cfi \
		"1: mov $34, %eax\nsyscall\njmp 1b\n.cfi_endproc\n"                   \
		".size " #name ", . - " #name "\n");                                  \
	void name(void)

/* DW_CFA_def_cfa_expression: INT64_MIN / -1 */
WAITS(divides, ".cfi_escape 0x0f, 12, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x09, 0xff, 0x1b\n");
/* ... a jump to itself */
WAITS(loops, ".cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff\n");
/* the caller is the same place, one word on, for ever */
WAITS(returns_here, ".cfi_def_cfa rsp, 8\n.cfi_escape 0x16, 16, 2, 0x80, 0\n");
/* a state to be remembered, and another one */
WAITS(remembers, ".rept 300000\n.cfi_escape 0x0a\n.endr\n");
/* the stack pointer is near the end of all addresses */
WAITS(far_away, ".cfi_escape 0x0f, 9, 0x0e, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0\n");
/* an operation that there is not, registers that there are not */
WAITS(nonsense,
      ".cfi_escape 0x0f, 4, 0xff, 0x92, 0xff, 0x7f\n.cfi_escape 0x10, 0xff, 0x7f, 1, 0x30\n");

static void *wait_in(void *function)
{
	((void (*)(void))function)();
	return NULL;
}

static void unwinding(void)
{
	void (*const all[])(void) = {divides, loops, returns_here, remembers, far_away, nonsense};
	pthread_t thread;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		pthread_create(&thread, NULL, wait_in, (void *)all[i]);
	usleep(100000);
}

/* ------------------------------------------------------------------- stacks */

static void *sleep_there(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int stack_count = 64;

/* Each has its stack at the low end of a mapping of 32 MiB. */
static void stacks(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	for (int i = 0; i < stack_count; i++) {
		void *stack = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		pthread_attr_init(&attr);
		if (stack == MAP_FAILED || pthread_attr_setstack(&attr, stack, 64 * 1024) ||
		    pthread_create(&thread, &attr, sleep_there, NULL))
			exit(3);
	}
	usleep(100000);
}

static char *forged; /* where they go */

/* Signal frames, as the kernel has made this one, to the end of the mapping. */
static void forge_frames(int signal, siginfo_t *info, void *context)
{
	/* struct rt_sigframe: the way back, the context, the siginfo (arch/x86/include/asm/sigframe.h). */
	const char *frame = (char *)context - sizeof(void *);
	const size_t size = (size_t)((char *)(info + 1) - frame);

	(void)signal;
	for (size_t at = 0; at + size <= 16 * MIB; at += (size + 7) & ~(size_t)7)
		memcpy(forged + at, frame, size);
}

/* All have their stacks in one mapping, and all that is above them is full of signal frames. */
static void shared(void)
{
	enum { THREADS = 2000, STACK = 32 * 1024 };
	struct sigaction sa = {.sa_sigaction = forge_frames, .sa_flags = SA_SIGINFO};
	char *all = mmap(NULL, (size_t)THREADS * STACK + 16 * MIB, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pthread_attr_t attr;
	pthread_t thread;

	if (all == MAP_FAILED)
		exit(3);
	forged = all + (size_t)THREADS * STACK;
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	for (int i = 0; i < THREADS; i++) {
		pthread_attr_init(&attr);
		if (pthread_attr_setstack(&attr, all + (size_t)i * STACK, STACK) ||
		    pthread_create(&thread, &attr, sleep_there, NULL))
			exit(3);
	}
	usleep(100000);
}

/* ----------------------------------------------------------- names and maps */

static void names(void)
{
	int fd;

	prctl(PR_SET_NAME, "\033[31m\n\x9b"
			   "2J\xff");
	/* Something executable that is called so, too. */
	fd = memfd_create("\033]0;owned\a\n\x9b"
			  "31m",
			  MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 8192) ||
	    mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		exit(3);
	close(fd);
}

/* Many mappings; as many as there may be would only keep the harness busy. */
static void mappings(void)
{
	enum { PAGES = 12000 };
	char *all = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	if (all == MAP_FAILED)
		exit(3);
	for (int i = 0; i < PAGES; i += 2)
		mprotect(all + (size_t)i * 4096, 4096, PROT_READ | PROT_EXEC);
}

static void nothing(void)
{
}

static const struct {
	const char *name;
	void (*set_up)(void);
} modes[] = {
	{"nothing", nothing}, {"wild", wild},		{"private", private_arena},
	{"cut-off", cut_off}, {"flipping", flipping},	{"crowd", crowd},
	{"full", full},	      {"unwinding", unwinding}, {"stacks", stacks},
	{"names", names},     {"mappings", mappings},	{"shared", shared},
};

int main(int argc, char **argv)
{
	uint64_t on_the_stack[SHORTS];
	long sum = 0, want = 0;
	char line[64];

	memset(on_the_stack, 0, sizeof(on_the_stack));
	leads = on_the_stack;
	__asm__ volatile("" : : "r"(on_the_stack) : "memory");
	if (argc > 2)
		stack_count = atoi(argv[2]);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (argc > 1 && !strcmp(modes[i].name, argv[1]))
			modes[i].set_up();
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		long n = strtol(line + 3, NULL, 10);

		for (long i = 0; i < n; i++) {
			sum += work(i);
			want += i * 3 + 1;
		}
		printf("done\n");
		fflush(stdout);
	}
	__atomic_store_n(&flips, false, __ATOMIC_RELAXED);
	/* Nobody else's stack is used any more: the others wait for ever. */
	_exit(sum != want || !is_untouched());
}
