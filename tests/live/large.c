/* SPDX-License-Identifier: MIT */
/*
 * large.c - a program with a hundred megabytes of code, or what LARGE_LIBRARY and
 * LARGE_FUNCTION name: what it takes until the first point of it counts. Only what a loaded machine does not change is judged:
 * CPU time and memory of the mutator, which is a process of its own here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

/* On an idle machine it is less than half a second, and a third of that memory. */
enum { CPU_MS_MAX = 3000, MEMORY_KIB_MAX = 100 * 1024, LIBRARY_KIB_MAX = 120 * 1024 };

static struct told {
	long cpu_ms, memory_kib;
	size_t functions;
	char error[512];
} * told;

static void give_up(const struct dinst_error *e, const char *what)
{
	snprintf(told->error, sizeof(told->error), "%s: %.400s", what, e->text);
	_exit(1);
}

static long cpu_ms(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1000;
}

static size_t count_functions(struct session *s)
{
	const struct image_function *functions;
	size_t count = 0;

	for (size_t i = 0; i < module_count(s->modules); i++) {
		const struct module *m = module_get(s->modules, i);

		count += m->image ? image_functions(m->image, &functions) : 0;
	}
	return count;
}

/* Attaches, counts one function, goes. */
static void mutate(pid_t pid, const char *focus)
{
	struct detach_result detached;
	struct dinst_error e = {0};
	int status = DINST_BUSY;
	unsigned id = 0, tries = 0;
	struct session *s;
	size_t count;

	alarm(HARNESS_SECONDS);
	if (session_attach(pid, "large", &s, &e) < 0)
		give_up(&e, "attach");
	while (status == DINST_BUSY && tries++ < 50) {
		dinst_error_clear(&e);
		status = session_try_insert(s, focus, false, &count, &id, &e);
	}
	if (status < 0)
		give_up(&e, "insert");
	while (!instance_value(session_instance(s, id)))
		usleep(1000);
	told->cpu_ms = cpu_ms();
	/* Pages of files are everybody's, the program's own first of all. */
	told->memory_kib = strtol(harness_status(getpid(), getpid(), "RssAnon:"), NULL, 10);
	told->functions = count_functions(s);
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left)
		give_up(&e, "detach");
	_exit(0);
}

/* Nothing is known of the program beforehand. */
static void measure(struct harness *h, const char *const *argv, const char *focus, long memory_kib,
		    size_t least)
{
	int status = 0;
	pid_t mutator;

	setenv("XDG_CACHE_HOME", h->directory, 1);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true((void *)told != MAP_FAILED);
	harness_start_argv(h, argv, true);
	fflush(NULL);
	mutator = fork();
	if (!mutator)
		mutate(h->pid, focus);
	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	if (status)
		fail_msg("the mutator ended with %x: %s", (unsigned)status, told->error);
	print_message("%zu functions: %ld ms of CPU time, %ld KiB of memory\n", told->functions,
		      told->cpu_ms, told->memory_kib);
	assert_in_range(told->cpu_ms, 0, CPU_MS_MAX);
	assert_in_range(told->memory_kib, 1, memory_kib);
	assert_true(told->functions >= least);
	munmap(told, sizeof(*told));
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
}

/*
 * fear K1: node, a hundred megabytes, nothing known of it beforehand: attached to, and its first
 * point counts, within 3 s of CPU time (some 0.4 s without other load) and 100 MiB of memory
 */
static void test_first_point(void **state)
{
	struct harness *h = *state;
	const char *const argv[] = {"node", "-e",
				    "console.log('ready'); setInterval(() => {}, 5);"
				    "process.stdin.on('end', () => process.exit(0)).resume()",
				    NULL};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: sanitizers take more than what is measured\n");
	skip();
#endif
	if (system("command -v node >/dev/null 2>&1") != 0) {
		print_message("SKIP: nodejs is not installed\n");
		skip();
	}
	/* node::Environment::RunTimers(): in the program, or in Debian's library. */
	measure(h, argv, "/Code/*/_ZN4node11Environment9RunTimersEP10uv_timer_s", MEMORY_KIB_MAX,
		10000);
}

/*
 * fear K1: the same with a library of half a million functions, as the largest there are have
 * (hostile/longer.sh makes one): in no more time, and 120 MiB
 */
static void test_library(void **state)
{
	const char *const argv[] = {harness_path("tests/live/targets/large"),
				    getenv("LARGE_LIBRARY"), getenv("LARGE_FUNCTION"), NULL};
	char focus[256];

	snprintf(focus, sizeof(focus), "/Code/*/%s", argv[2]);
	measure(*state, argv, focus, LIBRARY_KIB_MAX, 500000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_first_point, harness_setup, harness_teardown),
	};
	const struct CMUnitTest library[] = {
		cmocka_unit_test_setup_teardown(test_library, harness_setup, harness_teardown),
	};

	if (getenv("LARGE_LIBRARY"))
		return cmocka_run_group_tests_name("live/large", library, NULL, NULL);
	return cmocka_run_group_tests_name("live/large", tests, NULL, NULL);
}
