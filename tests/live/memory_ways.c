/* SPDX-License-Identifier: MIT */
/*
 * memory_ways.c - the ways to a target's memory, one after the other taken away
 * from the mutator by a seccomp filter that answers as kernels do that forbid
 * them: writing to /proc/PID/mem over the protection of a page
 * (proc_mem.force_override), process_vm_readv, and both.
 *
 * A filter knows no pages. Where only some of them cannot be written, this program's own pwrite() (the
 * linker's --wrap) says so.
 */
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { TURNS = 16, PAGE = 4096 };

/* The pages that /proc/PID/mem does not write. */
static enum { NO_PAGES, READ_ONLY_PAGES, ONE_PAGE } refused;

static off_t one_page; /* its number */
static pid_t written_pid;
static unsigned refusals, parts, passed; /* writes that were refused, cut short, or let pass */

static bool is_writable(off_t address)
{
	char path[64], line[512];
	unsigned long first, end;
	bool writable = false;
	FILE *maps;
	char w;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)written_pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*c%c", &first, &end, &w) == 3 &&
		    (unsigned long)address >= first && (unsigned long)address < end)
			writable = w == 'w';
	if (maps)
		fclose(maps);
	return writable;
}

static bool is_refused(off_t address)
{
	return refused == ONE_PAGE ? address / PAGE == one_page : !is_writable(address);
}

static bool is_memory(int fd)
{
	char path[64], to[PATH_MAX];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, to, sizeof(to));
	return length > 4 && !memcmp(to + length - 4, "/mem", 4);
}

ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at);

/* As mem_rw() in the kernel's fs/proc/base.c: what comes before a page that it cannot write is written. */
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at)
{
	size_t may = 0;

	if (refused == NO_PAGES || !is_memory(fd))
		return __real_pwrite(fd, from, size, at);
	while (may < size && !is_refused(at + (off_t)may))
		may += PAGE - (size_t)(at + (off_t)may) % PAGE;
	if (!may) {
		refusals++;
		errno = EIO;
		return -1;
	}
	parts += may < size;
	passed++;
	return __real_pwrite(fd, from, may < size ? may : size, at);
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* From now on these calls of this process fail so. 0: no such call. */
static int forbid(long first, int first_error, long second, int second_error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)first_error),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)second_error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a process of its own, whose exit status says how it went. */
static void mutate(pid_t pid, bool private)
{
	static const char *const names[] = {"five", "straddle_in", "straddle_out", "crossing"};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id, busy = 0;

	if (session_attach(pid, "ways", &s, &e) < 0) {
		fprintf(stderr, "attach: %s\n", e.text);
		_exit(3);
	}
	s->private_arenas = private;
	for (int turn = 0; turn < TURNS; turn++) {
		struct flush_result result;
		int status =
			session_try_insert_kind(s, names[turn % 4],
						(turn + turn / 4) & 1 ? POINT_EXIT : POINT_ENTRY,
						&id, &e);

		/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
		if (status == DINST_BUSY && busy++ < 50 * TURNS) {
			dinst_error_clear(&e);
			usleep(20000);
			turn--;
			continue;
		}
		if (status < 0 || !session_instance(s, id)->link_count) {
			fprintf(stderr, "insert: %s\n", e.text);
			_exit(4);
		}
		if (removal_remove(s, session_instance(s, id), &result, &e) < 0)
			_exit(5);
	}
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left) {
		fprintf(stderr, "detach: %s\n", e.text);
		_exit(6);
	}
}

/* Nothing of all that is refused without a reason: in private memory, code is written as well. */
static void expect_refusals(bool private)
{
	if (refused == NO_PAGES)
		return;
	fprintf(stderr, "%u writes refused, %u in part, %u passed\n", refusals, parts, passed);
	if (!refusals || (private && !passed))
		_exit(7);
}

static void run(struct harness *h, long first, int first_error, long second, int second_error,
		bool private)
{
	int status = 0;
	pid_t mutator;

	harness_start(h, "windows", "2", NULL);
	ask(h, "start all", "started");
	fflush(NULL);
	mutator = fork();
	if (mutator == 0) {
		if (forbid(first, first_error, second, second_error))
			_exit(2);
		written_pid = h->pid;
		mutate(h->pid, private);
		expect_refusals(private);
		_exit(0);
	}
	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	assert_int_equal(status, 0);
	ask(h, "end", "ended");
	ask(h, "go 1000 all", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B3: /proc/PID/mem does not write over a page's protection: word by word through ptrace */
static void test_no_override(void **state)
{
	run(*state, SYS_pwrite64, EIO, -1, 0, false);
}

/* fear B3: no process_vm_readv (a kernel without it): read through /proc/PID/mem */
static void test_no_vm_read(void **state)
{
	run(*state, SYS_process_vm_readv, ENOSYS, -1, 0, false);
}

/* fear B3: neither of the two */
static void test_neither(void **state)
{
	run(*state, SYS_pwrite64, EIO, SYS_process_vm_readv, ENOSYS, false);
}

/* fear B3, B8: neither of the two, and private memory instead of a memfd */
static void test_neither_private(void **state)
{
	run(*state, SYS_pwrite64, EIO, SYS_process_vm_readv, ENOSYS, true);
}

/* fear B8: the mutator may not have a copy of the memfd's descriptor: private memory */
static void test_no_descriptor(void **state)
{
	run(*state, SYS_pidfd_getfd, EPERM, -1, 0, false);
}

static void run_refusing(struct harness *h, int pages, bool private)
{
	refused = pages;
	run(h, -1, 0, -1, 0, private);
	refused = NO_PAGES;
}

/* fear B3: /proc/PID/mem writes what the program may write itself, and nothing else (proc_mem.force_override=never) */
static void test_read_only(void **state)
{
	run_refusing(*state, READ_ONLY_PAGES, false);
}

/* fear B3, B8: the same, and private memory */
static void test_read_only_private(void **state)
{
	run_refusing(*state, READ_ONLY_PAGES, true);
}

/* Writes and looks whether it is there; `words`: whether that has to be word by word. */
static int write_and_look(struct stop *s, taddr_t address, const void *bytes, size_t size,
			  bool words, struct dinst_error *e)
{
	uint8_t now[64];

	if (stop_write(s, address, bytes, size, e))
		return DINST_FAILED;
	if (stop_wrote_words(s) != words)
		return dinst_fail(e, DINST_FAILED, "%zu bytes at %#llx: %sword by word", size,
				  (unsigned long long)address, words ? "not " : "");
	if (target_read(stop_target(s), address, now, size, e))
		return DINST_FAILED;
	return memcmp(now, bytes, size)
		       ? dinst_fail(e, DINST_FAILED, "%zu bytes at %#llx are not there", size,
				    (unsigned long long)address)
		       : 0;
}

/* All of these bytes change, and change back. */
static int change(struct stop *s, taddr_t address, size_t size, bool words, struct dinst_error *e)
{
	uint8_t old[64], new[64];
	int code = target_read(stop_target(s), address, old, size, e);

	for (size_t i = 0; !code && i < size; i++)
		new[i] = old[i] ^ 0xff;
	if (!code)
		code = write_and_look(s, address, new, size, words, e);
	return code ? code : write_and_look(s, address, old, size, words, e);
}

/* arg: an edge between two pages of code. */
static int change_around(struct stop *s, void *arg, struct dinst_error *e)
{
	static const size_t sizes[] = {2, 5, 8, 13, 24, 64};
	const taddr_t edge = *(const taddr_t *)arg;
	int code = 0;

	for (int page = 0; !code && page < 2; page++) {
		one_page = (off_t)edge / PAGE - page;
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t before = 1; !code && before < sizes[i]; before++)
				code = change(s, edge - before, sizes[i], true, e);
		if (!code)
			code = change(s, page ? edge : edge - 16, 16, false, e);
	}
	return code;
}

/* The end of the first page of the program's code. */
static taddr_t find_edge(pid_t pid)
{
	unsigned long first = 0, end = 0;
	char path[64], line[512];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps && end - first < 2 * PAGE && fgets(line, sizeof(line), maps))
		if (!strstr(line, " r-xp ") || !strstr(line, "/windows") ||
		    sscanf(line, "%lx-%lx", &first, &end) != 2)
			first = end = 0;
	if (maps)
		fclose(maps);
	assert_true(end - first >= 2 * PAGE);
	return first + PAGE;
}

/*
 * fear B3: a write ends at the edge of a page that cannot be written so: the rest of it, and nothing
 * else, goes word by word; and where the page before the edge is the one that cannot
 */
static void test_page_edge(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	taddr_t edge;

	harness_start(h, "windows", "2", NULL);
	edge = find_edge(h->pid);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	refused = ONE_PAGE;
	if (target_stop(t, NULL, change_around, &edge, NULL, &e))
		fail_msg("%s", e.text);
	refused = NO_PAGES;
	assert_true(parts > 0 && passed > parts);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_no_override),	      CASE(test_no_vm_read),	CASE(test_neither),
		CASE(test_neither_private),   CASE(test_no_descriptor), CASE(test_read_only),
		CASE(test_read_only_private), CASE(test_page_edge),
	};

	return cmocka_run_group_tests_name("live/memory_ways", tests, NULL, NULL);
}
