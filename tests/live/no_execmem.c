/* SPDX-License-Identifier: MIT */
/*
 * no_execmem.c - a security module forbids the program to map memory executable,
 * in part or at all, as SELinux does in a domain without execmem. Privilege of ours
 * is not above it, as it is above a filter.
 *
 * No such module can be had here. What the program is made to do is changed on
 * its way (the Makefile wraps remote_run()): where it would map something that is
 * forbidden, it asks for another thing that its kernel refuses with EACCES.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote.h"
#include "tests/live/harness_session.h"

enum { THREADS = 3, ROUNDS = 2000, CALLS_MAX = 16 };

/* What may not be executable. */
static enum { NOTHING = 0, ANONYMOUS = 1, FILES = 2 } forbidden;
static unsigned denials;

int __real_remote_run(struct stop *s, const struct arch_remote_program *program, taddr_t scratch,
		      void *scratch_map, remote_between between, void *arg, long *results,
		      struct dinst_error *e);
int __wrap_remote_run(struct stop *s, const struct arch_remote_program *program, taddr_t scratch,
		      void *scratch_map, remote_between between, void *arg, long *results,
		      struct dinst_error *e);

/* Memory of the kernel's, which nobody may write to. */
static taddr_t kernel_data(pid_t pid)
{
	unsigned long long lo = 0, hi;
	char path[64], line[4096];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) && !strstr(line, "[vvar]"))
		;
	assert_int_equal(sscanf(line, "%llx-%llx", &lo, &hi), 2);
	fclose(maps);
	return lo;
}

static bool is_forbidden(const struct arch_remote_call *call)
{
	return call->number == SYS_mmap && call->args[2].value & PROT_EXEC &&
	       forbidden & (call->args[3].value & MAP_ANONYMOUS ? ANONYMOUS : FILES);
}

int __wrap_remote_run(struct stop *s, const struct arch_remote_program *program, taddr_t scratch,
		      void *scratch_map, remote_between between, void *arg, long *results,
		      struct dinst_error *e)
{
	struct arch_remote_program changed = *program;
	struct arch_remote_call calls[CALLS_MAX];

	assert_in_range(program->count, 1, CALLS_MAX);
	memcpy(calls, program->calls, program->count * sizeof(*calls));
	changed.calls = calls;
	for (size_t i = 0; i < program->count; i++) {
		if (!is_forbidden(&calls[i]))
			continue;
		memset(calls[i].args, 0, sizeof(calls[i].args));
		calls[i].number = SYS_mprotect;
		calls[i].args[0].value = kernel_data(target_pid(stop_target(s)));
		calls[i].args[1].value = 4096;
		calls[i].args[2].value = PROT_READ | PROT_WRITE;
		denials++;
	}
	return __real_remote_run(s, &changed, scratch, scratch_map, between, arg, results, e);
}

static struct session *begin(struct harness *h, unsigned what)
{
	denials = 0;
	forbidden = NOTHING;
	harness_start(h, "calls", harness_number(THREADS), NULL);
	forbidden = what;
	return session_begin(h);
}

static void run_counted(struct harness *h, unsigned what, enum arena_mode mode, unsigned denied)
{
	struct session *s = begin(h, what);
	unsigned id = session_insert(s, "many"), all = session_insert(s, "/Code/calls/*");
	const struct arena *a = s->places->arena;

	assert_int_equal(a->mode, mode);
	assert_int_equal(denials, denied);
	assert_true(!denied == !strstr(a->note, strerror(EACCES)));
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), (uint64_t)THREADS * ROUNDS);
	session_remove(s, all);
	session_flush_all(s);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), 2ull * THREADS * ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B8: anonymous memory may not be executable (SELinux's execmem): a memfd is, as ever */
static void test_anonymous(void **state)
{
	run_counted(*state, ANONYMOUS, ARENA_SHARED, 0);
}

/* Before Linux 6.3 a memfd is tried with MFD_EXEC, and then without it. */
static unsigned tries_of_memfd(void)
{
	const unsigned executable = 0x10; /* linux/memfd.h */
	const int fd = memfd_create("tried", executable);

	if (fd < 0)
		return 2;
	close(fd);
	return 1;
}

/* fear B8: no file may be mapped executable, a memfd neither: private memory, and it is noted why */
static void test_files(void **state)
{
	run_counted(*state, FILES, ARENA_PRIVATE, tries_of_memfd());
}

/*
 * fear B8: nothing may be mapped executable: refused with what the kernel said, what was mapped by
 * then is unmapped, the program goes on; when it may again the same session works
 */
static void test_everything(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, ANONYMOUS | FILES);
	struct dinst_error e = {0};
	unsigned id = 0;
	size_t count;
	int status;

	for (int i = 0; i < 3; i++) {
		do {
			dinst_error_clear(&e);
			status = session_try_insert(s, "many", false, &count, &id, &e);
		} while (status == DINST_BUSY);
		assert_int_equal(status, DINST_NOT_PERMITTED);
		assert_non_null(strstr(e.text, strerror(EACCES)));
		assert_non_null(strstr(e.text, "security module"));
		harness_verify(h);
		session_go(h, ROUNDS);
	}
	print_message("%s\n", e.text);
	assert_true(denials >= 6);
	forbidden = NOTHING;
	id = session_insert(s, "many");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), (uint64_t)THREADS * ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B8: forbidden when the program is instrumented already: more goes in, and all goes out */
static void test_later(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, NOTHING);
	unsigned id = session_insert(s, "many"), all;

	forbidden = ANONYMOUS | FILES;
	all = session_insert(s, "/Code/calls/*");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), (uint64_t)THREADS * ROUNDS);
	assert_true(session_value(s, all) > 5ull * THREADS * ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_anonymous),
		CASE(test_files),
		CASE(test_everything),
		CASE(test_later),
	};

	return cmocka_run_group_tests_name("live/no_execmem", tests, NULL, NULL);
}
