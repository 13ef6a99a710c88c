/* SPDX-License-Identifier: MIT */
/*
 * arch_remote.c - remote programs: executed in this process with nobody
 * looking, they must leave every register as it was and go on where the thread
 * was; calls after a failed one are skipped unless asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"

enum { CODE_SIZE = 8192, HOME_AT = 4096, STUB_ROOM = 400, LENGTH = 16384 };

/* Where the programs map something; nothing else is there. */
#define FIRST  0x300000000000ull
#define SECOND 0x300010000000ull

static uint8_t *code;

static int setup(void **state)
{
	(void)state;
	code = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return code == MAP_FAILED ? -1 : 0;
}

static taddr_t home(void)
{
	return (taddr_t)(uintptr_t)code + HOME_AT;
}

#define CONSTANT(v)                           \
	{                                     \
		ARCH_ARG_CONST, (uint64_t)(v) \
	}
#define RESULT(n)                    \
	{                            \
		ARCH_ARG_RESULT, (n) \
	}
#define DATA(n)                    \
	{                          \
		ARCH_ARG_DATA, (n) \
	}

static const struct arch_remote_call usual[4] = {
	{SYS_memfd_create, {DATA(0), CONSTANT(MFD_CLOEXEC)}, false},
	{SYS_mmap,
	 {CONSTANT(FIRST), CONSTANT(LENGTH), CONSTANT(PROT_READ | PROT_WRITE),
	  CONSTANT(MAP_SHARED | MAP_FIXED_NOREPLACE), RESULT(0), CONSTANT(LENGTH)},
	 false},
	{SYS_mmap,
	 {CONSTANT(SECOND), CONSTANT(LENGTH), CONSTANT(PROT_READ | PROT_EXEC),
	  CONSTANT(MAP_SHARED | MAP_FIXED_NOREPLACE), RESULT(0), CONSTANT(0)},
	 false},
	{SYS_close, {RESULT(0)}, true},
};

static struct arch_regs random_registers(void)
{
	struct arch_regs r;

	run_fill(&r, sizeof(r));
	r.user.rsp = run_stack_pointer(r.user.rsp);
	r.user.rip = home();
	r.user.orig_rax = -1ul;
	r.user.eflags = (run_random() & RUN_FLAGS) | 0x202;
	return r;
}

static void check_register(const char *name, uint64_t is, uint64_t was)
{
	if (is != was)
		fail_msg("%s is %#llx, was %#llx", name, (unsigned long long)is,
			 (unsigned long long)was);
}

/* Emits and executes; everything must be as `r` says, at pc, with rax. */
static void run_program(const struct arch_remote_call *calls, size_t count, struct arch_regs *r,
			taddr_t pc, uint64_t rax)
{
	static struct run_state in, out;
	static const char name[] = "dinst";
	struct arch_remote_program program = {calls, count, (const uint8_t *)name, sizeof(name)};
	struct arch_buf buf = {
		.bytes = code, .size = ARCH_REMOTE_MAX, .pc = (taddr_t)(uintptr_t)code};
	struct arch_regs begun = *r;
	const struct user_regs_struct *u = &begun.user;

	memset(code, RUN_END, CODE_SIZE);
	arch_emit_remote(&program, r, &buf);
	assert_int_equal(buf.status, ARCH_OK);
	assert_true(buf.used <= STUB_ROOM);
	arch_begin_remote(&begun, buf.pc);
	assert_false(arch_in_syscall(&begun));
	run_init();
	run_random_extended(&in);
	const uint64_t values[16] = {u->rax, u->rcx, u->rdx, u->rbx, u->rsp, u->rbp,
				     u->rsi, u->rdi, u->r8,  u->r9,  u->r10, u->r11,
				     u->r12, u->r13, u->r14, u->r15};
	memcpy(in.r, values, sizeof(values));
	in.flags = u->eflags;
	in.pc = u->rip;
	run_code(&in, &out);
	check_register("pc", out.pc, pc);
	check_register("rax", out.r[RAX], rax);
	for (unsigned i = 1; i < 16; i++)
		check_register("a register", out.r[i], in.r[i]);
	check_register("flags", out.flags & RUN_FLAGS, in.flags & RUN_FLAGS);
	assert_memory_equal(in.extended, out.extended, 464);
}

/*
 * The tail's only access to memory is to the address behind its jump: where the processor checks alignment (EFLAGS.AC)
 * it must be a multiple of 8, wherever the program stands and whatever the registers are.
 */
static void check_jump(const struct arch_regs *r, const struct arch_buf *buf, size_t data_size)
{
	static const uint8_t notrack_jump[] = {0x3e, 0xff, 0x25};
	const uint8_t *literal = buf->bytes + buf->used - data_size - 8;
	bool found = false;
	uint64_t to;

	for (uint32_t distance = 0; distance < 8; distance++)
		found |= !memcmp(literal - distance - 7, notrack_jump, sizeof(notrack_jump)) &&
			 !memcmp(literal - distance - 4, &distance, sizeof(distance));
	assert_true(found);
	memcpy(&to, literal, sizeof(to));
	assert_int_equal(to, r->user.rip);
	assert_int_equal((buf->pc + (taddr_t)(literal - buf->bytes)) % 8, 0);
}

static void test_alignment(void **state)
{
	const struct arch_remote_program program = {usual, 4, (const uint8_t *)"dinst", 6};

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		struct arch_regs r = random_registers();
		struct arch_buf buf = {
			.bytes = code, .size = ARCH_REMOTE_MAX, .pc = home() + run_random() % 64};

		arch_emit_remote(&program, &r, &buf);
		assert_int_equal(buf.status, ARCH_OK);
		check_jump(&r, &buf, 6);
	}
}

/* True if something is mapped there; unmaps it. */
static bool was_mapped(uint64_t address)
{
	unsigned char pages[LENGTH / 4096];

	if (mincore((void *)address, LENGTH, pages) != 0)
		return false;
	munmap((void *)address, LENGTH);
	return true;
}

static int lowest_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

static void test_success(void **state)
{
	int fd = lowest_descriptor();

	(void)state;
	for (unsigned i = 0; i < 500; i++) {
		struct arch_regs r = random_registers();

		run_program(usual, 4, &r, home(), r.user.rax);
		assert_true(was_mapped(FIRST));
		assert_true(was_mapped(SECOND));
		assert_int_equal(lowest_descriptor(), fd);
	}
}

static void test_small_registers(void **state)
{
	struct arch_regs r = random_registers();

	(void)state;
	memset(&r, 0, sizeof(r));
	r.user.rip = home();
	r.user.rcx = UINT32_MAX;
	r.user.r11 = (uint64_t)INT64_MIN;
	r.user.rdi = (uint64_t)-1;
	r.user.r12 = (uint64_t)INT32_MIN;
	r.user.orig_rax = -1ul;
	r.user.eflags = RUN_FLAGS;
	run_program(usual, 4, &r, home(), 0);
	assert_true(was_mapped(FIRST));
	assert_true(was_mapped(SECOND));
}

static void test_first_fails(void **state)
{
	struct arch_remote_call calls[4];
	struct arch_regs r = random_registers();
	int fd = lowest_descriptor();

	(void)state;
	memcpy(calls, usual, sizeof(calls));
	calls[0].args[1].value = 0x80000000; /* no such flag */
	run_program(calls, 4, &r, home(), r.user.rax);
	assert_false(was_mapped(FIRST));
	assert_false(was_mapped(SECOND));
	assert_int_equal(lowest_descriptor(), fd);
}

static void test_middle_fails(void **state)
{
	struct arch_remote_call calls[4];
	struct arch_regs r = random_registers();
	int fd = lowest_descriptor();

	(void)state;
	memcpy(calls, usual, sizeof(calls));
	calls[1].args[1].value = 0; /* EINVAL */
	run_program(calls, 4, &r, home(), r.user.rax);
	assert_false(was_mapped(FIRST));
	assert_false(was_mapped(SECOND));
	assert_int_equal(lowest_descriptor(), fd); /* closed all the same */
}

/* After an `always` call, what is not `always` still depends on the failed one. */
static void test_always_between(void **state)
{
	struct arch_remote_call calls[4];
	struct arch_regs r = random_registers();

	(void)state;
	calls[0] = usual[0];
	calls[1] = usual[1];
	calls[1].args[1].value = 0;
	calls[2] = usual[3];
	calls[3] = (struct arch_remote_call){
		SYS_mmap,
		{CONSTANT(SECOND), CONSTANT(LENGTH), CONSTANT(PROT_READ),
		 CONSTANT(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE), CONSTANT(-1),
		 CONSTANT(0)},
		false};
	run_program(calls, 4, &r, home(), r.user.rax);
	assert_false(was_mapped(SECOND));
	calls[1] = usual[1];
	r = random_registers();
	run_program(calls, 4, &r, home(), r.user.rax);
	assert_true(was_mapped(FIRST));
	assert_true(was_mapped(SECOND));
}

/* What the kernel would have done with an interrupted call. */
static void test_interrupted(void **state)
{
	static const struct {
		long orig_rax, rax;
		int64_t back;
		long rax_after;
	} cases[] = {
		{SYS_read, -512, -2, SYS_read},
		{SYS_read, -513, -2, SYS_read},
		{SYS_epoll_wait, -514, -2, SYS_epoll_wait},
		{SYS_nanosleep, -516, -2, SYS_restart_syscall},
		{SYS_epoll_wait, -EINTR, -2, SYS_epoll_wait},
		{SYS_close, -EINTR, 0, -EINTR},
		{SYS_read, -EAGAIN, 0, -EAGAIN},
		{SYS_read, 17, 0, 17},
		{SYS_read, -515, 0, -515},
		{-1, -512, 0, -512},
		{-1, -EINTR, 0, -EINTR},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static const struct arch_remote_call getpid_call = {SYS_getpid, {{0}}, false};
		struct arch_regs r = random_registers();

		r.user.orig_rax = (uint64_t)cases[i].orig_rax;
		r.user.rax = (uint64_t)cases[i].rax;
		run_program(&getpid_call, 1, &r, home() + (uint64_t)cases[i].back,
			    (uint64_t)cases[i].rax_after);
	}
}

static void test_refusals(void **state)
{
	struct arch_remote_program program = {usual, 4, NULL, 0};
	struct arch_regs r = random_registers();
	uint8_t bytes[64];
	struct arch_buf buf = {.bytes = bytes, .size = sizeof(bytes)};
	struct arch_remote_call many[5] = {{0}};

	(void)state;
	arch_emit_remote(&program, &r, &buf);
	assert_int_equal(buf.status, ARCH_NO_ROOM);
	buf.status = ARCH_OK;
	program.calls = many;
	program.count = 5;
	arch_emit_remote(&program, &r, &buf);
	assert_int_equal(buf.status, ARCH_REFUSED);
}

/* What the kernel makes of an interrupted call, and nothing else, is taken for that. */
static void check_restart(const struct arch_regs *interrupted)
{
	static const struct {
		long result, number;
		bool restarts;
	} cases[] = {{-512, SYS_epoll_wait, true},
		     {-513, SYS_epoll_wait, true},
		     {-514, SYS_epoll_wait, true},
		     {-515, SYS_epoll_wait, false},
		     {-516, SYS_restart_syscall, true},
		     {-517, 0, false},
		     {-511, 0, false},
		     {-EINTR, 0, false},
		     {0, 0, false},
		     {SYS_epoll_wait, 0, false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arch_regs stopped = *interrupted, now;

		stopped.user.rax = (uint64_t)cases[i].result;
		assert_int_equal(arch_will_restart(&stopped), cases[i].restarts);
		now = stopped;
		now.user.rip -= 2;
		now.user.rax = (uint64_t)cases[i].number;
		assert_int_equal(arch_is_before_restart(&now, &stopped, true), cases[i].restarts);
		/* A call of 32-bit programs goes on by another number. */
		assert_int_equal(arch_is_before_restart(&now, &stopped, false),
				 cases[i].restarts && cases[i].result != -516);
		now.user.rax = cases[i].result == -516 ? 0 : now.user.rax;
		assert_int_equal(arch_is_before_restart(&now, &stopped, false), cases[i].restarts);
		now = stopped;
		arch_go_before_restart(&now);
		assert_int_equal(memcmp(&now, &stopped, sizeof(now)) != 0, cases[i].restarts);
		if (!cases[i].restarts)
			continue;
		assert_true(arch_is_before_restart(&now, &stopped, true));
		assert_false(arch_in_syscall(&now));
		assert_false(arch_is_before_restart(&stopped, &stopped, true));
		now.user.orig_rax = (uint64_t)-1;
		now.user.eflags |= 1 << 16;
		assert_true(arch_is_before_restart(&now, &stopped, true));
		for (size_t n = 0; n < sizeof(now.user) / sizeof(uint64_t); n++) {
			struct arch_regs other = now;

			if (n == offsetof(struct user_regs_struct, orig_rax) / sizeof(uint64_t))
				continue;
			((uint64_t *)&other.user)[n]++;
			assert_false(arch_is_before_restart(&other, &stopped, true));
		}
	}
}

static void test_registers(void **state)
{
	struct arch_regs r = random_registers();
	uint64_t value = 1;
	long arguments[6];

	(void)state;
	assert_int_equal(arch_pc(&r), r.user.rip);
	assert_int_equal(arch_sp(&r), r.user.rsp);
	assert_int_equal(arch_thread_pointer(&r), r.user.fs_base);
	arch_set_pc(&r, 4711);
	assert_int_equal(arch_pc(&r), 4711);
	assert_int_equal(arch_syscall_number(&r), -1);
	for (unsigned i = 0; i < 6; i++) {
		arch_set_syscall_argument(&r, i, 100 + (long)i);
		arguments[i] = arch_syscall_argument(&r, i);
		assert_int_equal(arguments[i], 100 + (long)i);
	}
	assert_int_equal(r.user.rdi, 100);
	assert_int_equal(r.user.r10, 103);
	assert_int_equal(r.user.r9, 105);
	r.user.rax = (uint64_t)-EINTR;
	arch_restart_interrupted(&r); /* in no call: left alone */
	assert_int_equal((long)r.user.rax, -EINTR);
	r.user.orig_rax = SYS_epoll_wait;
	arch_restart_interrupted(&r);
	assert_int_equal(arch_syscall_result(&r), -514);
	assert_int_equal(arch_syscall_number(&r), SYS_epoll_wait);
	r.user.rax = (uint64_t)-516;
	arch_restart_interrupted(&r);
	assert_int_equal(arch_syscall_result(&r), -514);
	r.user.rax = (uint64_t)-EAGAIN;
	arch_restart_interrupted(&r);
	assert_int_equal(arch_syscall_result(&r), -513);
	r.user.rax = (uint64_t)-512;
	arch_restart_interrupted(&r);
	assert_int_equal(arch_syscall_result(&r), -512);
	check_restart(&r);
	arch_set_syscall_number(&r, SYS_getpid);
	assert_int_equal(r.user.orig_rax, SYS_getpid);
	assert_int_equal(arch_syscall_number(&r), SYS_getpid);
	arch_leave_syscall(&r);
	assert_false(arch_in_syscall(&r));
	assert_false(arch_will_restart(&r));
	assert_true(arch_dwarf_register(&r, 16, &value) && value == r.user.rip);
	assert_true(arch_dwarf_register(&r, 1, &value) && value == r.user.rdx);
	assert_true(arch_dwarf_register(&r, 7, &value) && value == r.user.rsp);
	assert_false(arch_dwarf_register(&r, 17, &value));
}

/* A real signal frame of this process. */
static taddr_t frame_pc, frame_sp, real_pc, real_sp;
static bool frame_ok, code_ok;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	const uint8_t *frame = (const uint8_t *)u - 8; /* the return address lies before it */
	const uint8_t *return_code;

	(void)signal;
	(void)info;
	memcpy(&return_code, frame, 8);
	code_ok = arch_is_sigreturn(return_code, ARCH_SIGRETURN_CODE) &&
		  !arch_is_sigreturn(return_code, 4) && !arch_is_sigreturn(return_code + 1, 16);
	frame_ok = arch_signal_frame(frame, ARCH_SIGNAL_FRAME, &frame_pc, &frame_sp) == ARCH_OK &&
		   arch_signal_frame(frame, 100, &frame_pc, &frame_sp) == ARCH_TRUNCATED;
	real_pc = (taddr_t)u->uc_mcontext.gregs[REG_RIP];
	real_sp = (taddr_t)u->uc_mcontext.gregs[REG_RSP];
}

static void test_signal_frame(void **state)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO};

	(void)state;
	action.sa_sigaction = on_signal;
	sigaction(SIGUSR2, &action, NULL);
	raise(SIGUSR2);
	assert_true(code_ok);
	assert_true(frame_ok);
	assert_int_equal(frame_pc, real_pc);
	assert_int_equal(frame_sp, real_sp);
}

/* Code of 64 bits, also of a paravirtualised guest of Xen's, and code of 32 bits; as registers, and as the kernel saves them. */
static void test_code_segments(void **state)
{
	static const struct {
		uint16_t cs;
		bool native;
	} cases[] = {{0x33, true}, {0xe033, true}, {0x23, false}, {0xe023, false}, {0, false}};
	uint64_t saved[ARCH_SAVED_WORDS] = {0x400000, 0x246, 0};
	struct arch_regs r = random_registers();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		r.user.cs = cases[i].cs;
		assert_int_equal(arch_is_native(&r), cases[i].native);
		/* gs and fs, which 64-bit code does not use, and ss follow. */
		saved[2] = UINT64_C(0x2b) << 48 | cases[i].cs;
		assert_int_equal(arch_may_be_saved_pc(saved), cases[i].native);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_success),	       cmocka_unit_test(test_small_registers),
		cmocka_unit_test(test_first_fails),    cmocka_unit_test(test_middle_fails),
		cmocka_unit_test(test_always_between), cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_refusals),       cmocka_unit_test(test_registers),
		cmocka_unit_test(test_signal_frame),   cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_code_segments),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, setup, NULL);
}
