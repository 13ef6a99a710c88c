/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing.c - executes the code that pairs entries with exits, on stacks
 * of its own making, and compares it with what is known to be true: random
 * programs with calls, returns, tail calls, longjmp and coroutines; handlers at
 * every single instruction, which return, leave things behind or never return;
 * threads that claim records at once; a forked child.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/pairing.h"
#include "arch/x86_64/x86.h"

enum {
	SHIFT = 6,
	FUNCTIONS = 12, /* 1 .., that programs have */
	MANY = 110,	/* for threads: each counts by itself */
	CODE_SIZE = 1 << 18,
	COLD_AT = 1 << 17,
	STACK_BYTES = 1 << 20,
	STACKS = 4, /* the first is the thread's own */
	FRAMES = 600,
	TRAP_FLAG = 0x100,
	NOT_CODE = 0x06,
	PLACES = 512,
};

static uint8_t *code, *area;
static uint64_t (*counters)[2];	   /* entries, exits; by function */
static uint64_t seen[MANY + 1][2]; /* of those, what events counted that came to their end */
static size_t code_used, cold_used;
static taddr_t enter_code[MANY + 1], leave_code[MANY + 1];
static taddr_t enter_routine, leave_routine;
static uint64_t statistics[3];
static int32_t tid_offset;
static uint8_t *stacks[STACKS];

/* xorshift64*: the same numbers in every run. */
static uint64_t next_random(void)
{
	static uint64_t seed = 0x9e3779b97f4a7c15ull;

	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 0x2545f4914f6cdd1dull;
}

static struct pair_config *config(void)
{
	return (struct pair_config *)(void *)area;
}

static uint64_t *keys(void)
{
	return (uint64_t *)(void *)(area + pair_keys());
}

static uint32_t *owners(void)
{
	return (uint32_t *)(void *)(area + pair_owners(SHIFT));
}

static struct pair_record *records(void)
{
	return (struct pair_record *)(void *)(area + pair_records(SHIFT));
}

static uint64_t own_pointer(void)
{
	return (uint64_t)(uintptr_t)__builtin_thread_pointer();
}

static struct pair_record *own_record(void)
{
	for (unsigned i = 0; i < 1u << SHIFT; i++)
		if (keys()[i] == own_pointer())
			return &records()[i];
	return NULL;
}

/* As it was made; only what was used is cleared. */
static void clear_area(void)
{
	for (unsigned i = 0; i < 1u << SHIFT; i++)
		if (keys()[i] || owners()[i] || records()[i].tid)
			memset(&records()[i], 0, sizeof(records()[i]));
	memset(area + pair_keys(), 0, pair_records(SHIFT) - pair_keys());
	memset(statistics, 0, sizeof(statistics));
}

/* The thread's own stack is stacks[0]. */
static void claim_stack(uint8_t *stack, size_t size)
{
	config()->main_pointer = own_pointer();
	config()->main_lo = (uint64_t)(uintptr_t)stack << PAIR_ID_BITS;
	config()->main_size = (uint64_t)size << PAIR_ID_BITS;
}

/* ------------------------------------------------------------------- code */

/* Frames of all kinds: the snippets run with whatever registers they are given. */
static const uint8_t register_sets[][4] = {
	{RAX, RCX, RDX, RSI}, {R11, R10, R9, R8},  {R12, RBP, RDI, RBX},
	{RDX, R9, RAX, R12},  {R8, RDX, R12, RAX}, {RBP, R12, R11, RCX},
};

static taddr_t emit_snippet(struct arch_pairing *spec, bool leave)
{
	const struct arch_counter counter = {
		.mode = ARCH_COUNT_LOCKED,
		.counter_address = (taddr_t)(uintptr_t)&counters[spec->function][leave],
	};
	static const uint8_t jump_r14[] = {0x41, 0xff, 0xe6};
	const unsigned sets = sizeof(register_sets) / sizeof(register_sets[0]);
	struct arch_buf out = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = out.pc};
	struct arch_frame frame = {.red_zone = true};
	taddr_t entry;

	spec->count = &counter;
	arch_pairing_needs(spec, &frame);
	assert_true(frame.scratch == 4 && (frame.needs & ARCH_NEED_FLAGS));
	memcpy(frame.reg, register_sets[(spec->function + leave) % sets], 4);
	out.used = code_used;
	cold.used = cold_used;
	entry = arch_here(&out);
	if (leave)
		arch_emit_leave(spec, &frame, &out, &cold);
	else
		arch_emit_enter(spec, &frame, &out, &cold);
	assert_true(out.used - code_used <= ARCH_PAIRING_HOT + ARCH_COUNT_HOT);
	assert_true(cold.used - cold_used <= ARCH_PAIRING_COLD + ARCH_COUNT_COLD);
	x86_emit(&out, jump_r14, sizeof(jump_r14));
	assert_int_equal(out.status, ARCH_OK);
	assert_int_equal(cold.status, ARCH_OK);
	code_used = out.used;
	cold_used = cold.used;
	spec->count = NULL;
	return entry;
}

static int32_t find_tid(void)
{
	const pid_t tid = (pid_t)syscall(SYS_gettid);
	int32_t found = 0;

	for (int64_t at = arch_thread_block_lo; at < arch_thread_block_hi; at += 4) {
		pid_t word;

		memcpy(&word, (const uint8_t *)__builtin_thread_pointer() + at, 4);
		if (word == tid) {
			assert_int_equal(found, 0);
			found = (int32_t)at;
		}
	}
	return found;
}

static int setup(void **state)
{
	struct arch_pairing spec = {.shift = SHIFT};
	struct arch_buf out;
	size_t enter, leave;

	(void)state;
	assert_true(
		arch_thread_pointer_is_sane(own_pointer(), *(uint64_t *)(uintptr_t)own_pointer()));
	assert_false(arch_thread_pointer_is_sane(0, 0));
	tid_offset = spec.tid_offset = find_tid();
	code = mmap(NULL, CODE_SIZE + 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area = mmap(NULL, pair_area_size(SHIFT), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED || area == MAP_FAILED ||
	    madvise(area + pair_owners(SHIFT), pair_owners_size(SHIFT), MADV_WIPEONFORK))
		return -1;
	for (unsigned i = 0; i < STACKS; i++) {
		stacks[i] = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stacks[i] == MAP_FAILED)
			return -1;
	}
	config()->shift = SHIFT;
	config()->lost = (uint64_t)(uintptr_t)&statistics[0];
	config()->overflow = (uint64_t)(uintptr_t)&statistics[1];
	config()->orphans = (uint64_t)(uintptr_t)&statistics[2];
	/* Within reach of the code. */
	counters = (uint64_t(*)[2])(void *)(code + CODE_SIZE);
	memset(code, NOT_CODE, CODE_SIZE);
	spec.area = (taddr_t)(uintptr_t)area;
	out = (struct arch_buf){.bytes = code, .size = CODE_SIZE, .pc = (taddr_t)(uintptr_t)code};
	arch_emit_pairing_routines(&out, &spec, &enter, &leave);
	if (out.status != ARCH_OK || out.used > ARCH_PAIRING_ROUTINES)
		return -1;
	spec.enter = enter_routine = out.pc + enter;
	spec.leave = leave_routine = out.pc + leave;
	code_used = out.used;
	cold_used = COLD_AT;
	for (spec.function = 1; spec.function <= MANY; spec.function++) {
		enter_code[spec.function] = emit_snippet(&spec, false);
		leave_code[spec.function] = emit_snippet(&spec, true);
	}
	return 0;
}

/*
 * Runs a snippet with that stack pointer. With `trap` in the flags every
 * instruction of it raises SIGTRAP.
 */
void run_at(taddr_t pc, uint64_t sp, uint64_t trap);
__asm__(".text\n"
	"run_at:\n\t"
	"push %rbx\n\tpush %rbp\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
	"mov %rsp, %r15\n\tlea 1f(%rip), %r14\n\t"
	"mov %rsi, %rbx\n\tmov %rdi, %rax\n\t"
	"pushf\n\tor %rdx, (%rsp)\n\tpopf\n\t"
	"mov %rbx, %rsp\n\tjmp *%rax\n"
	"1:\tmov %r15, %rsp\n\t"
	"pushf\n\tandq $-257, (%rsp)\n\tpopf\n\t"
	"pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbp\n\tpop %rbx\n\t"
	"ret\n");

/* Runs the event; true if it was counted. */
static bool event(bool is_leave, unsigned function, uint64_t sp, uint64_t trap)
{
	const uint64_t counted = counters[function][is_leave], nested = seen[function][is_leave];
	uint64_t own;

	run_at((is_leave ? leave_code : enter_code)[function], sp, trap);
	own = counters[function][is_leave] - counted - (seen[function][is_leave] - nested);
	assert_true(own <= 1);
	seen[function][is_leave] += own;
	return own;
}

static bool enter(unsigned function, uint64_t sp)
{
	return event(false, function, sp, 0);
}

static bool leave(unsigned function, uint64_t sp)
{
	return event(true, function, sp, 0);
}

/* ------------------------------------------------- a program, and the truth */

struct frame {
	uint64_t sp;
	unsigned function;
	bool seen; /* its entry was an event */
};

struct fiber {
	struct frame frames[FRAMES];
	unsigned depth;
	uint64_t top;
};

struct program {
	struct fiber fibers[STACKS];
	unsigned current;
	bool inserted[FUNCTIONS + 1];
	uint64_t entries, exits;
};

static struct fiber *now(struct program *p)
{
	return &p->fibers[p->current];
}

static void program_init(struct program *p)
{
	memset(p, 0, sizeof(*p));
	for (unsigned i = 0; i < STACKS; i++)
		p->fibers[i].top = (uint64_t)(uintptr_t)stacks[i] + STACK_BYTES - 64;
}

static uint64_t lowest(const struct fiber *f)
{
	return f->depth ? f->frames[f->depth - 1].sp : f->top;
}

static void do_call(struct program *p, uint64_t sp, unsigned function)
{
	struct fiber *f = now(p);

	if (f->depth == FRAMES)
		return;
	f->frames[f->depth++] =
		(struct frame){.sp = sp, .function = function, .seen = p->inserted[function]};
	if (p->inserted[function]) {
		assert_true(enter(function, sp));
		p->entries++;
	}
}

static void do_return(struct program *p)
{
	struct fiber *f = now(p);
	const struct frame *frame = &f->frames[f->depth - 1];

	f->depth--;
	if (!p->inserted[frame->function])
		return;
	if (leave(frame->function, frame->sp) != frame->seen)
		fail_msg("the exit of %u at %#llx, depth %u of stack %u: seen %d", frame->function,
			 (unsigned long long)frame->sp, f->depth, p->current, frame->seen);
	p->exits += frame->seen;
}

/* Two requests for one function: both enter, both leave in the same order. */
static void do_double(struct program *p, uint64_t sp, unsigned function)
{
	for (unsigned i = 0; i < 2; i++)
		assert_true(enter(function + i, sp));
	p->entries += 2;
	if (next_random() % 4 == 0)
		return; /* left by longjmp */
	for (unsigned i = 0; i < 2; i++)
		assert_true(leave(function + i, sp));
	p->exits += 2;
}

static void do_anything(struct program *p, bool coroutines)
{
	struct fiber *f = now(p);
	unsigned what = next_random() % 100, function = 1 + next_random() % (FUNCTIONS - 2);
	uint64_t below = lowest(f) - 16 - next_random() % 4 * 16;

	if (what < 45 && f->depth < 300) {
		do_call(p, below, function);
	} else if (what < 80 && f->depth) {
		do_return(p);
	} else if (what < 88 && f->depth) {
		/* A tail call: the exit of one, the entry of the other, one place. */
		uint64_t sp = lowest(f);

		do_return(p);
		do_call(p, sp, function);
	} else if (what < 92 && f->depth) {
		f->depth -= next_random() % (f->depth < 20 ? f->depth : 20) + 1; /* longjmp */
	} else if (what < 95 && p->current == 0) {
		do_double(p, below, FUNCTIONS - 1);
	} else if (what < 96) {
		p->inserted[1 + next_random() % FUNCTIONS] = true;
	} else if (coroutines) {
		p->current = next_random() % STACKS;
	}
}

/* What the record holds of the thread's own stack is what is alive, and nothing that is above. */
static void check_home(const struct program *p)
{
	const struct pair_record *r = own_record();
	const struct fiber *f = &p->fibers[0];
	unsigned at = 0;

	if (!r)
		return;
	assert_int_equal(r->depth % sizeof(struct pair_entry), 0);
	for (unsigned i = 0; i < r->depth / sizeof(struct pair_entry); i++) {
		if (i)
			assert_true(r->home[i].tag >> PAIR_ID_BITS <= r->home[i - 1].tag >>
				    PAIR_ID_BITS);
		while (at < f->depth && !f->frames[at].seen)
			at++;
		if (at < f->depth &&
		    r->home[i].tag == pair_tag(f->frames[at].sp, f->frames[at].function))
			at++;
	}
	while (at < f->depth && !f->frames[at].seen)
		at++;
	assert_int_equal(at, f->depth);
}

static void run_program(bool coroutines, unsigned steps)
{
	static struct program p;

	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	program_init(&p);
	for (unsigned i = 0; i < steps; i++) {
		do_anything(&p, coroutines);
		if (i % 64 == 0)
			check_home(&p);
	}
	for (p.current = 0; p.current < STACKS; p.current++)
		while (now(&p)->depth)
			do_return(&p);
	check_home(&p);
	assert_true(p.exits > steps / 16);
	assert_int_equal(statistics[0], 0);
}

static void test_one_stack(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		run_program(false, 20000);
	assert_int_equal(statistics[1], 0);
}

/* Deep frames on three more stacks fill what there is for them: then they are counted as lost. */
static void test_coroutines(void **state)
{
	static struct program p;

	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		clear_area();
		claim_stack(stacks[0], STACK_BYTES);
		program_init(&p);
		memset(p.inserted, 1, sizeof(p.inserted));
		for (unsigned i = 0; i < 20000; i++) {
			if (p.current && now(&p)->depth >= 4)
				do_return(&p);
			else if (next_random() % 10 == 0)
				p.current = next_random() % STACKS;
			else if (now(&p)->depth && next_random() % 2)
				do_return(&p);
			else if (now(&p)->depth < 100)
				do_call(&p, lowest(now(&p)) - 48, 1 + next_random() % FUNCTIONS);
		}
		for (p.current = 0; p.current < STACKS; p.current++)
			while (now(&p)->depth)
				do_return(&p);
		assert_int_equal(p.entries, p.exits);
		assert_int_equal(statistics[0] + statistics[1] + statistics[2], 0);
	}
}

/* Jumps out of coroutines leave things behind; what is entered there again is right at once. */
static void test_coroutines_and_jumps(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[1] + 4096;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int i = 0; i < 1000; i++) {
		assert_true(enter(1, top));
		assert_true(enter(2, top - 64));
		if (i % 3 == 0)
			continue;
		assert_true(leave(2, top - 64));
		assert_false(leave(2, top - 64));
		assert_true(leave(1, top));
	}
	assert_int_equal(statistics[1], 0);
}

static void test_exits_without_entry(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + 65536;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	assert_false(leave(1, top));
	assert_true(enter(1, top));
	assert_false(leave(2, top));
	assert_false(leave(1, top + 16));
	assert_false(leave(1, top - 16));
	assert_true(leave(1, top));
	assert_false(leave(1, top));
	assert_false(leave(1, (uint64_t)(uintptr_t)stacks[1] + 4096));
	assert_int_equal(statistics[2], 6);
}

/* Deeper than there is room: what is not kept is counted, and pairs with nothing. */
static void test_overflow(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	const unsigned deep = PAIR_HOME + 200;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int turn = 0; turn < 3; turn++) {
		memset(statistics, 0, sizeof(statistics));
		for (unsigned i = 0; i < deep; i++)
			assert_true(enter(1 + i % FUNCTIONS, top - 32 * i));
		assert_int_equal(statistics[1], 200);
		for (unsigned i = deep; i-- > 0;)
			assert_int_equal(leave(1 + i % FUNCTIONS, top - 32 * i), i < PAIR_HOME);
		assert_int_equal(statistics[2], 200);
		assert_int_equal(own_record()->depth, 0);
	}
}

/* Without knowledge of the stack only what is entered again at the same place is dropped. */
static void test_unknown_stack(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;

	(void)state;
	clear_area();
	config()->main_size = 0;
	config()->main_pointer = own_pointer();
	for (int i = 0; i < 1000; i++) {
		assert_true(enter(1, top));
		assert_true(enter(2, top - 256));
		if (i & 1)
			continue;
		assert_true(leave(2, top - 256));
		assert_true(leave(1, top));
	}
	assert_int_equal(own_record()->depth, 0);
	assert_int_equal(statistics[1], 0);
}

/* A new thread in the memory of one that ended begins with nothing. */
static void test_reused_block(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	struct pair_record *r;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	assert_true(enter(1, top));
	assert_true(enter(2, (uint64_t)(uintptr_t)stacks[1] + 4096));
	r = own_record();
	r->words[0] = r->words[PAIR_WORDS - 1] = 5;
	assert_int_equal(r->tid, syscall(SYS_gettid));
	owners()[r - records()] ^= 1;
	assert_false(leave(1, top));
	assert_int_equal(r->depth, 0);
	assert_false(leave(2, (uint64_t)(uintptr_t)stacks[1] + 4096));
	assert_int_equal(r->words[0] + r->words[PAIR_WORDS - 1], 0);
	assert_int_equal(owners()[r - records()], syscall(SYS_gettid));
	assert_true(enter(1, top));
	assert_true(leave(1, top));
}

/* ------------------------------------------------------------------- fork */

static int child_events(uint64_t top, uint64_t other)
{
	const struct pair_record *r = own_record();

	/* It finds what was copied, takes it out, and does not count it: the parent does. */
	if (!enter(3, top - 64) || !leave(3, top - 64))
		return 1;
	if (r->depth != 2 * sizeof(struct pair_entry) || leave(2, top - 32) || r->depth != 16)
		return 2;
	if (leave(5, other) || r->other[0].tag || !enter(5, other) || !leave(5, other))
		return 3;
	if (!enter(2, top - 32) || !leave(2, top - 32) || leave(1, top) || r->depth)
		return 4;
	if (statistics[2] != 0)
		return 5;
	return enter(1, top) && leave(1, top) ? 0 : 6;
}

static void test_fork(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	/* The first place of all. */
	uint64_t other = (uint64_t)(uintptr_t)stacks[1] + 4096;
	int status = -1;
	pid_t pid;

	(void)state;
	while (((uint32_t)(other >> 3) * PAIR_HASH) >> 25)
		other += 16;
	for (int generation = 0; generation < 3; generation++) {
		clear_area();
		claim_stack(stacks[0], STACK_BYTES);
		assert_true(enter(1, top));
		assert_true(enter(2, top - 32));
		assert_true(enter(5, other));
		pid = fork();
		if (pid == 0)
			_exit(child_events(top, other));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_true(leave(5, other));
		assert_true(leave(2, top - 32));
		assert_true(leave(1, top));
	}
}

/* ------------------------------------- handlers at every single instruction */

/*
 * First the instructions are found out that an event executes, by the trap
 * flag; then each of them in turn is made to trap when it is reached first.
 */
static struct {
	unsigned function;
	uint64_t sp;
	size_t places[PLACES], count; /* offsets in `code`, of an event that was traced */
	bool tracing;
	uint8_t *planted, original;
	unsigned what; /* the handler does */
	bool leaves_all;
	sigjmp_buf out;
} trap;

static void note_place(size_t place)
{
	for (size_t i = 0; i < trap.count; i++)
		if (trap.places[i] == place)
			return;
	assert_true(trap.count < PLACES);
	trap.places[trap.count++] = place;
}

/* Events of a handler, at stack pointers below the interrupted one or on another stack. */
static void nested_events(uint64_t sp, unsigned what)
{
	const uint64_t other = (uint64_t)(uintptr_t)stacks[2] + 8192;
	const unsigned same = trap.function, another = 1 + same % FUNCTIONS;

	if (what & 1) {
		assert_true(enter(another, sp));
		assert_true(enter(same, sp - 48));
		if (what & 2)
			assert_true(leave(same, sp - 48));
		assert_true(leave(another, sp));
	}
	if (what & 4)
		enter(same, sp - 96); /* and never left */
	if (what & 8) {
		assert_true(enter(same, other));
		assert_true(enter(another, other - 32));
		assert_true(leave(another, other - 32));
		assert_true(leave(same, other));
	}
	if (what & 16)
		assert_false(leave(another, sp - 160));
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	const uint64_t pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	(void)signal;
	(void)info;
	if (trap.tracing && pc - (uint64_t)(uintptr_t)code < CODE_SIZE)
		note_place(pc - (uint64_t)(uintptr_t)code);
	if (trap.tracing)
		return;
	assert_ptr_equal(trap.planted, (uint8_t *)(uintptr_t)pc - 1);
	*trap.planted = trap.original;
	trap.planted = NULL;
	u->uc_mcontext.gregs[REG_RIP]--;
	if (here > trap.sp || trap.sp - here > STACK_BYTES / 2)
		here = trap.sp - 16384; /* the handler runs elsewhere */
	nested_events((here - 4096) & ~15ull, trap.what);
	if (trap.leaves_all)
		siglongjmp(trap.out, 1);
}

static void set_trap_handler(bool on_other_stack)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | (on_other_stack ? SA_ONSTACK : 0)};

	action.sa_sigaction = on_trap;
	sigaction(SIGTRAP, &action, NULL);
}

/* One event with a handler at that instruction; true if it came to its end. */
static bool interrupted(bool is_leave, unsigned function, uint64_t sp, size_t place, bool *counted)
{
	trap.function = function;
	trap.sp = sp;
	if (trap.tracing) {
		*counted = event(is_leave, function, sp, TRAP_FLAG);
		return true;
	}
	trap.planted = code + place;
	trap.original = *trap.planted;
	if (sigsetjmp(trap.out, 1))
		return false;
	*trap.planted = 0xcc;
	*counted = event(is_leave, function, sp, 0);
	assert_null(trap.planted);
	return true;
}

struct scene {
	const char *name;
	bool fresh;	/* no record yet */
	bool stale;	/* something dead is on top */
	bool elsewhere; /* not on the thread's own stack */
};

static const struct scene scenes[] = {
	{"usual", false, false, false},		{"stale", false, true, false},
	{"fresh", true, false, false},		{"elsewhere", false, false, true},
	{"fresh elsewhere", true, false, true},
};

/* An entry or an exit is interrupted; whatever a handler does, they find each other. */
static void one_interruption(const struct scene *scene, bool is_leave, size_t place)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	const uint64_t sp =
		scene->elsewhere ? (uint64_t)(uintptr_t)stacks[1] + STACK_BYTES / 2 : top - 256;
	bool counted = true, whole;

	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	if (!scene->fresh) {
		assert_true(enter(7, top));
		assert_true(enter(1, top - 128));
	}
	if (scene->stale)
		for (unsigned i = 0; i < 3; i++)
			assert_true(enter(8, sp - 64 * i));
	if (is_leave) {
		assert_true(enter(5, sp));
		if (scene->stale)
			assert_true(enter(9, sp - 512));
	}
	whole = interrupted(is_leave, 5, sp, place, &counted);
	assert_true(counted);
	if (!is_leave && whole) {
		/* Alive, whatever the handler left. */
		assert_true(enter(6, sp - 640));
		assert_true(leave(6, sp - 640));
		assert_true(leave(5, sp));
	}
	if (whole)
		assert_false(leave(5, sp));
	if (!scene->fresh) {
		assert_true(leave(1, top - 128));
		assert_true(leave(7, top));
		assert_int_equal(own_record()->depth, 0);
	}
	assert_int_equal(statistics[1], 0);
}

static void all_interruptions(bool is_leave, bool leaves_all, bool on_other_stack)
{
	size_t runs = 0;

	set_trap_handler(on_other_stack);
	trap.leaves_all = leaves_all;
	for (size_t s = 0; s < sizeof(scenes) / sizeof(scenes[0]); s++) {
		trap.count = 0;
		trap.tracing = true;
		one_interruption(&scenes[s], is_leave, 0);
		trap.tracing = false;
		assert_true(trap.count > 20);
		for (trap.what = 0; trap.what < 32; trap.what++)
			for (size_t i = 0; i < trap.count; i++, runs++)
				one_interruption(&scenes[s], is_leave, trap.places[i]);
	}
	signal(SIGTRAP, SIG_DFL);
	print_message("%zu interruptions\n", runs);
}

static void test_handlers_in_entries(void **state)
{
	(void)state;
	all_interruptions(false, false, false);
}

static void test_handlers_in_exits(void **state)
{
	(void)state;
	all_interruptions(true, false, false);
}

static void test_handlers_on_their_own_stack(void **state)
{
	stack_t alternate = {.ss_size = 1 << 18};

	(void)state;
	alternate.ss_sp = stacks[3] + STACK_BYTES / 2;
	assert_int_equal(sigaltstack(&alternate, NULL), 0);
	all_interruptions(false, false, true);
	all_interruptions(true, false, true);
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
}

static void test_handlers_that_do_not_return(void **state)
{
	(void)state;
	all_interruptions(false, true, false);
	all_interruptions(true, true, false);
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 12, CROWD = 100, ROUNDS = 3000 };

static pthread_barrier_t start;

/* Each works on a piece of a stack of its own and checks each answer. */
static void *worker(void *arg)
{
	const unsigned function = (unsigned)(uintptr_t)arg;
	uint64_t top = (uint64_t)(uintptr_t)stacks[0] + (function + 1) * 8192;
	uint64_t wrong = 0;

	pthread_barrier_wait(&start);
	for (unsigned i = 0; i < ROUNDS; i++) {
		wrong += !enter(function, top);
		wrong += !enter(function, top - 64);
		wrong += !leave(function, top - 64);
		wrong += leave(function, top - 64);
		wrong += !leave(function, top);
	}
	return (void *)(uintptr_t)wrong;
}

static void test_threads_claim_at_once(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		unsigned claimed = 0;

		clear_area();
		config()->main_pointer = 0;
		pthread_barrier_init(&start, NULL, THREADS);
		for (uintptr_t i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)),
					 0);
		for (unsigned i = 0; i < THREADS; i++) {
			void *wrong;

			pthread_join(threads[i], &wrong);
			assert_null(wrong);
		}
		for (unsigned i = 0; i < 1u << SHIFT; i++) {
			claimed += keys()[i] != 0;
			for (unsigned j = 0; j < i; j++)
				assert_true(!keys()[i] || keys()[i] != keys()[j]);
		}
		assert_int_equal(claimed, THREADS);
		assert_int_equal(statistics[0], 0);
		pthread_barrier_destroy(&start);
	}
}

static _Atomic unsigned with_record, without_record;

static void *one_of_many(void *arg)
{
	const unsigned function = (unsigned)(uintptr_t)arg;
	uint64_t top = (uint64_t)(uintptr_t)stacks[0] + (function + 1) * 4096;
	bool paired;

	if (!enter(function, top))
		return (void *)1;
	paired = leave(function, top);
	if (paired)
		with_record++;
	else
		without_record++;
	pthread_barrier_wait(&start);
	/* The same answer again: nobody takes away anybody's record. */
	return enter(function, top) && leave(function, top) == paired ? NULL : (void *)1;
}

/* More threads than records: some have none, and that is counted. */
static void test_more_threads_than_records(void **state)
{
	pthread_t threads[CROWD];

	(void)state;
	clear_area();
	with_record = without_record = 0;
	pthread_barrier_init(&start, NULL, CROWD);
	for (uintptr_t i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, (void *)(i + 1)),
				 0);
	for (unsigned i = 0; i < CROWD; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	assert_int_equal(with_record, 1 << SHIFT);
	assert_int_equal(without_record, CROWD - (1 << SHIFT));
	assert_int_equal(statistics[0], 2 * (CROWD - (1 << SHIFT)));
	pthread_barrier_destroy(&start);
}

/* ------------------------------------------------------------------- cost */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Entry and exit in a row, as often as said, on the stack that it is given. */
static taddr_t emit_loop(uint32_t turns, bool empty)
{
	struct arch_pairing spec = {.area = (taddr_t)(uintptr_t)area,
				    .shift = SHIFT,
				    .tid_offset = tid_offset,
				    .function = 1,
				    .enter = enter_routine,
				    .leave = leave_routine};
	static const uint8_t mov_edi[] = {0xbf}, next[] = {0xff, 0xcf, 0x0f, 0x85};
	static const uint8_t jump_r14[] = {0x41, 0xff, 0xe6};
	struct arch_buf out = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = out.pc};
	struct arch_frame frame = {.reg = {RAX, RCX, RDX, RSI}};
	taddr_t entry, again;

	out.used = code_used;
	cold.used = cold_used;
	entry = arch_here(&out);
	x86_emit(&out, mov_edi, sizeof(mov_edi));
	x86_emit32(&out, turns);
	again = arch_here(&out);
	if (!empty) {
		arch_emit_enter(&spec, &frame, &out, &cold);
		arch_emit_leave(&spec, &frame, &out, &cold);
	}
	x86_emit(&out, next, sizeof(next));
	x86_emit_relative(&out, again);
	x86_emit(&out, jump_r14, sizeof(jump_r14));
	assert_int_equal(out.status | cold.status, ARCH_OK);
	code_used = out.used;
	cold_used = cold.used;
	return entry;
}

/* Not a test of anything: what a pair costs without its frame and its count. */
static void test_cost(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	enum { TURNS = 4000000 };
	taddr_t loop = emit_loop(TURNS, false), empty = emit_loop(TURNS, true);
	double best = 1, begin;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int i = 0; i < 5; i++) {
		double all;

		begin = seconds();
		run_at(loop, top, 0);
		all = seconds() - begin;
		begin = seconds();
		run_at(empty, top, 0);
		all -= seconds() - begin;
		best = all < best ? all : best;
	}
	print_message("an entry and its exit: %.2f ns\n", best / TURNS * 1e9);
	assert_int_equal(own_record()->depth, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stack),
		cmocka_unit_test(test_coroutines),
		cmocka_unit_test(test_coroutines_and_jumps),
		cmocka_unit_test(test_exits_without_entry),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_unknown_stack),
		cmocka_unit_test(test_reused_block),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_handlers_in_entries),
		cmocka_unit_test(test_handlers_in_exits),
		cmocka_unit_test(test_handlers_on_their_own_stack),
		cmocka_unit_test(test_handlers_that_do_not_return),
		cmocka_unit_test(test_threads_claim_at_once),
		cmocka_unit_test(test_more_threads_than_records),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
