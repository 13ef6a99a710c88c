/* SPDX-License-Identifier: MIT */
/*
 * hazards.c - what the kernel does to a target where the remedy is left out.
 *
 * Each case named raw_* does the naive thing by hand and expects the harm; it
 * fails on a kernel where the remedy is not needed any more. The case with the
 * remedy is here, or where this table says.
 *
 *   hazard                                    without            with
 *   rseq_cs that leads nowhere at detach      arena_rseq         arena_rseq
 *   victim inside a restartable sequence      raw_sequence       remote_run, remote_death
 *   stub finishing alone in a system call     raw_stub_*         remote_death, test_stub_*
 *   stop makes epoll_wait return EINTR        raw_interrupt      signals, stop_calls
 *   code half made writable by the target     raw_unsealed       arena_create
 *   RLIMIT_FSIZE kills at ftruncate           raw_file_limit     arena_create
 *   fork child in what its parent removes     raw_child          fork
 *   vfork parent that does not stop           test_vfork_parent  (refused in time)
 *   window across two pages                   windows (refused)  windows
 *   bytes that another tool has changed       test_foreign       (refused)
 *   death between any two steps               death              death
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

/* linux/fcntl.h, which does not go together with fcntl.h. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Of an answer to what cannot be had. */
enum { REFUSED_MS = 3000 };

static const uint8_t syscall_insn[] = {0x0f, 0x05};

static uint64_t page_of(struct harness *h)
{
	harness_send(h, "page\n");
	return strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16);
}

/* ------------------------------------------------------ restartable sequences */

/* The address of a system call instruction in the target's libc. */
static uint64_t find_syscall(pid_t pid)
{
	char path[64], line[512];
	uint64_t lo = 0, hi = 0;
	uint8_t *code, *at;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "libc.so") && strstr(line, "r-xp"))
			sscanf(line, "%lx-%lx", &lo, &hi);
	fclose(maps);
	assert_true(hi > lo);
	code = malloc(hi - lo);
	assert_non_null(code);
	thread_peek(pid, lo, code, hi - lo);
	at = memmem(code, hi - lo, syscall_insn, sizeof(syscall_insn));
	assert_non_null(at);
	lo += (uint64_t)(at - code);
	free(code);
	return lo;
}

static void wait_stopped(pid_t tid)
{
	int status;

	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		fail_msg("thread %d ended (status %x)", (int)tid, (unsigned)status);
}

/* The program has the address of its rseq_cs in rdx. */
static bool is_in_sequence(pid_t pid, const struct user_regs_struct *r)
{
	struct {
		uint32_t version, flags;
		uint64_t start, length, abort;
	} sequence = {0};
	uint64_t at = 0;

	thread_peek(pid, r->rdx, &at, sizeof(at));
	if (!at)
		return false;
	thread_peek(pid, at, &sequence, sizeof(sequence));
	return r->rip - sequence.start < sequence.length;
}

/* A system call made by a thread in a sequence swallows the sequence's abort. */
/* fear B6: what happens without the remedy: a call made in a sequence swallows its abort */
static void raw_sequence(void **state)
{
	struct harness *h = *state;
	struct user_regs_struct saved, r;
	uint64_t call;
	bool inside;

	harness_start(h, "remote-registers", "sequence", NULL);
	call = find_syscall(h->pid);
	do {
		thread_seize(h->pid);
		thread_get(h->pid, &saved);
		inside = is_in_sequence(h->pid, &saved);
		r = saved;
		r.rip = call;
		r.rax = SYS_getpid;
		r.orig_rax = (unsigned long long)-1;
		thread_set(h->pid, &r);
		for (int stop = 0; stop < 2; stop++) {
			ptrace(PTRACE_SYSCALL, h->pid, NULL, NULL);
			wait_stopped(h->pid);
		}
		thread_get(h->pid, &r);
		assert_int_equal(r.rax, h->pid);
		thread_set(h->pid, &saved);
		thread_let_go(h->pid);
		/* It was between two sequences, perhaps: then it must have gone on. */
		if (!inside)
			usleep(1000);
	} while (!inside);
	/* It ends as soon as it has noticed. */
	harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'Z');
	harness_end(h, 1);
}

/* -------------------------------------------------- stubs that finish alone */

static uint8_t *put_register(uint8_t *p, uint8_t rex, uint8_t opcode, uint64_t value)
{
	*p++ = rex;
	*p++ = opcode;
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

/* A system call, then the interrupted registers from immediates, then the way back. */
static size_t emit_stub(uint8_t *code, const struct user_regs_struct *r, bool restart)
{
	uint64_t rax = r->rax, rip = r->rip;
	uint8_t *p = code;

	if (restart && (long)r->orig_rax >= 0) {
		long result = (long)r->rax;

		if (result <= -512 && result >= -514) {
			rax = r->orig_rax;
			rip -= 2;
		} else if (result == -516) {
			rax = SYS_restart_syscall;
			rip -= 2;
		}
	}
	memcpy(p, syscall_insn, sizeof(syscall_insn));
	p += sizeof(syscall_insn);
	p = put_register(p, 0x48, 0xb8, rax);
	p = put_register(p, 0x48, 0xb9, r->rcx);
	p = put_register(p, 0x49, 0xbb, r->r11);
	p = put_register(p, 0x48, 0xbf, r->rdi);
	p = put_register(p, 0x48, 0xbe, r->rsi);
	memcpy(p, (const uint8_t[]){0xff, 0x25, 0, 0, 0, 0}, 6);
	p += 6;
	memcpy(p, &rip, sizeof(rip));
	p += sizeof(rip);
	return (size_t)(p - code);
}

/* In a process of its own: makes the target run the stub, and dies before it has. */
static void stub_and_die(pid_t pid, uint64_t page, bool restart)
{
	struct user_regs_struct r;
	uint8_t code[128];
	size_t size;

	thread_seize(pid);
	thread_get(pid, &r);
	size = emit_stub(code, &r, restart);
	thread_poke(pid, page, code, size);
	r.rip = page;
	r.rax = SYS_getpid;
	r.orig_rax = (unsigned long long)-1;
	thread_set(pid, &r);
	kill(getpid(), SIGKILL);
}

/* What the interrupted call returned in the end. */
static void run_stub(struct harness *h, const char *command, long call, bool restart, long *result,
		     int *error, double *ms)
{
	uint64_t page;
	pid_t tracer;

	harness_start(h, "hazards", NULL);
	page = page_of(h);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sleeping");
	thread_wait_syscall(h->pid, h->pid, call);
	fflush(NULL);
	tracer = fork();
	if (tracer == 0)
		stub_and_die(h->pid, page, restart);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	assert_int_equal(
		sscanf(harness_line(h, HARNESS_ANSWER_MS), "%ld %d %lf", result, error, ms), 3);
	harness_end(h, 0);
}

/* fear A7: what happens without the remedy: errno 516 */
static void raw_stub_nanosleep(void **state)
{
	long result;
	int error;
	double ms;

	run_stub(*state, "nap 60000\n", SYS_clock_nanosleep, false, &result, &error, &ms);
	/* An errno that user space never sees, and long before its time. */
	assert_int_equal(result, -1);
	assert_int_equal(error, 516);
	assert_true(ms < 50000);
}

/* fear A6: what happens without the remedy: errno 512 */
static void raw_stub_read(void **state)
{
	long result;
	int error;
	double ms;

	run_stub(*state, "read 2000\n", SYS_read, false, &result, &error, &ms);
	assert_int_equal(result, -1);
	assert_int_equal(error, 512);
}

/* fear A7, J2: the tracer dies in a remote call: the sleep goes on to its end */
static void test_stub_nanosleep(void **state)
{
	long result;
	int error;
	double ms;

	run_stub(*state, "nap 2000\n", SYS_clock_nanosleep, true, &result, &error, &ms);
	assert_int_equal(result, 0);
	assert_true(ms > 1999 && ms < 2400);
}

/* fear A6, J2: the tracer dies in a remote call: read(2) goes on */
static void test_stub_read(void **state)
{
	long result;
	int error;
	double ms;

	run_stub(*state, "read 2000\n", SYS_read, true, &result, &error, &ms);
	assert_int_equal(result, 1);
	assert_true(ms > 1990);
}

/* ------------------------------------------------------- interrupted calls */

static void wait_with(struct harness *h, struct session *s, long *result, int *error)
{
	double ms;

	/* Interrupted it is over at once; a machine that is busy must come to that in time. */
	harness_send(h, s ? "wait 1000\n" : "wait 60000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sleeping");
	thread_wait_syscall(h->pid, h->pid, SYS_epoll_wait);
	if (s) {
		session_remove(s, session_insert(s, "tree"));
		session_flush_all(s);
	} else {
		thread_seize(h->pid);
		thread_let_go(h->pid);
	}
	assert_int_equal(
		sscanf(harness_line(h, HARNESS_ANSWER_MS), "%ld %d %lf", result, error, &ms), 3);
}

static void raw_interrupt(void **state)
{
	struct harness *h = *state;
	struct session *s;
	long result;
	int error;

	harness_start(h, "hazards", NULL);
	wait_with(h, NULL, &result, &error);
	assert_int_equal(result, -1);
	assert_int_equal(error, EINTR);
	/* The very same with ours. */
	s = session_begin(h);
	wait_with(h, s, &result, &error);
	assert_int_equal(result, 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------ memory */

static void raw_unsealed(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *ours, *code;

	(void)state;
	assert_true(fd >= 0 && ftruncate(fd, 8192) == 0);
	ours = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_true(ours != MAP_FAILED && code != MAP_FAILED);
	assert_int_equal(mprotect(code, 4096, PROT_READ | PROT_WRITE), 0);
	munmap(code, 4096);
	/* The seal forbids it to whoever maps it from then on, and not to us. */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_true(code != MAP_FAILED);
	assert_int_equal(mprotect(code, 4096, PROT_READ | PROT_WRITE), -1);
	*(volatile char *)ours = 1;
	assert_int_equal(*(volatile char *)code, 1);
	munmap(code, 4096);
	munmap(ours, 4096);
	close(fd);
}

static void raw_file_limit(void **state)
{
	int status = 0;
	pid_t child;

	(void)state;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		struct rlimit none = {0, 0}, small = {4096, 4096};
		int fd = memfd_create("test", MFD_CLOEXEC);

		signal(SIGXFSZ, SIG_DFL);
		setrlimit(RLIMIT_CORE, &none);
		setrlimit(RLIMIT_FSIZE, &small);
		_exit(ftruncate(fd, 1 << 20) ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
}

/* ---------------------------------------------------------------- families */

static pid_t linger(struct harness *h)
{
	pid_t child = 0;

	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &child), 1);
	return child;
}

/* A window that leads where nothing is any more, as in a child that was forgotten: it dies. */
static void raw_child(void **state)
{
	struct harness *h = *state;
	struct session *s;
	uint8_t window[16], now[16];
	uint64_t address;
	unsigned id;
	pid_t child;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	address = session_address(s, "hit");
	id = session_insert(s, "hit");
	thread_peek(h->pid, address, window, sizeof(window));
	child = linger(h);
	session_remove(s, id);
	session_flush_all(s);
	/* The remedy: the child's window is the original, too, before anything is freed. */
	thread_peek(child, address, now, sizeof(now));
	assert_memory_not_equal(window, now, sizeof(now));
	session_end(s);
	/* Without it: the jump is there and what it leads to is not. */
	thread_poke(child, address, window, sizeof(window));
	harness_until(harness_status(child, child, "State:")[0] == 'Z');
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended -11");
	harness_verify(h);
	harness_end(h, 0);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* It cannot be stopped: told so in time, with nothing done to it, and later it works. */
/*
 * fear A6, G2, K2: a parent in vfork does not stop: refused in time, nothing changed, later it
 * works
 */
static void test_vfork_parent(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned id = 0, kept;
	struct session *s;
	uint64_t start;
	size_t count;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	kept = session_insert(s, "hit");
	harness_send(h, "held\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "held");
	harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'D');
	start = now_ms();
	assert_int_equal(session_try_insert(s, "hits", false, &count, &id, &e), DINST_BUSY);
	/* It would wait for ever. */
	assert_true(now_ms() - start < REFUSED_MS);
	assert_non_null(strstr(e.text, harness_number(h->pid)));
	assert_string_equal(harness_status(h->pid, h->pid, "TracerPid:"), "0");
	harness_send(h, "on\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	id = session_insert(s, "hits");
	harness_send(h, "fork 2 100\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, kept), 300);
	assert_int_equal(session_value(s, id), 3);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ----------------------------------------------------- what others changed */

static uint64_t denied; /* nothing is written to this page; 0: all is */

int __real_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);
int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);

int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e)
{
	if (denied && address / 4096 == denied / 4096)
		return dinst_fail(e, DINST_FAILED, "denied by the test");
	return __real_stop_write(s, address, from, size, e);
}

/* fear B3: the kernel does not write to code for us, as to reserved huge pages: refused with that reason, for as long as it is so */
static void test_unwritable(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	uint8_t before[8], after[8];
	struct session *s;
	unsigned id = 0;
	size_t count;

	harness_start(h, "hazards", NULL);
	s = session_begin(h);
	/* The first insertion writes to the program's code for its system calls, too. */
	session_remove(s, session_insert(s, "tree"));
	denied = session_address(s, "leaf");
	thread_peek(h->pid, denied, before, sizeof(before));
	if (session_try_insert(s, "leaf", false, &count, &id, &e) != DINST_REFUSED ||
	    !strstr(e.text, refusal_name(REFUSAL_UNWRITABLE)))
		fail_msg("it says: %s", e.text);
	thread_peek(h->pid, denied, after, sizeof(after));
	assert_memory_equal(before, after, sizeof(after));
	denied = 0;
	id = session_insert(s, "leaf");
	harness_send(h, "tree 9\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, id), 10);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Bytes that are not the file's are another tool's: refused, and left alone. */
/*
 * fear J4: a breakpoint of somebody else is left alone, and the function refused as long as it is
 * there
 */
static void test_foreign(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	uint8_t original, breakpoint = 0xcc, now;
	struct session *s;
	unsigned id = 0;
	uint64_t address;
	size_t count;

	harness_start(h, "hazards", NULL);
	s = session_begin(h);
	address = session_address(s, "leaf");
	thread_peek(h->pid, address, &original, 1);
	thread_poke(h->pid, address, &breakpoint, 1);
	assert_int_equal(session_try_insert(s, "leaf", false, &count, &id, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, refusal_name(REFUSAL_FOREIGN)));
	thread_peek(h->pid, address, &now, 1);
	assert_int_equal(now, breakpoint);
	/* When it is gone the function can be had. */
	thread_poke(h->pid, address, &original, 1);
	id = session_insert(s, "leaf");
	harness_send(h, "tree 9\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, id), 10);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear J4: a hook that another tool writes over ours is not taken back by detach, and what it
 * may lead to stays; when the other tool has put back what it found, a repair takes out ours
 */
static void test_hooked_between(void **state)
{
	uint8_t original[5], ours[5], hook[5] = {0xcc, 0xcc, 0xcc, 0xcc, 0xcc}, now[5];
	struct harness *h = *state;
	struct detach_result detached = {0};
	struct dinst_error e = {0};
	struct leftovers left;
	struct session *s;
	struct target *t;
	uint64_t address;

	harness_start(h, "hazards", NULL);
	s = session_begin(h);
	address = session_address(s, "leaf");
	thread_peek(h->pid, address, original, 5);
	session_insert(s, "leaf");
	thread_peek(h->pid, address, ours, 5);
	assert_memory_not_equal(ours, original, 5);
	thread_poke(h->pid, address, hook, 5);
	session_detach(s, 1, &detached, &e);
	assert_true(detached.left > 0);
	session_free(s);
	thread_peek(h->pid, address, now, 5);
	assert_memory_equal(now, hook, 5);
	/* Its own arena is still there for what it leads to. */
	thread_poke(h->pid, address, ours, 5);
	harness_send(h, "tree 9\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	dinst_error_clear(&e);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(left.arenas_left, 0);
	thread_peek(h->pid, address, now, 5);
	assert_memory_equal(now, original, 5);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(raw_sequence),	   CASE(raw_stub_nanosleep), CASE(raw_stub_read),
		CASE(test_stub_nanosleep), CASE(test_stub_read),     CASE(raw_interrupt),
		CASE(raw_unsealed),	   CASE(raw_file_limit),     CASE(raw_child),
		CASE(test_vfork_parent),   CASE(test_foreign),	     CASE(test_unwritable),
		CASE(test_hooked_between),
	};

	return cmocka_run_group_tests_name("live/hazards", tests, NULL, NULL);
}
