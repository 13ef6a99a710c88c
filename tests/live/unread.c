/* SPDX-License-Identifier: MIT */
/*
 * unread.c - what could not be looked at is not taken for an answer.
 *
 * One call after the other of those that look fails (mishaps.h), once and in ways in which the kernel can
 * let it fail. Whoever asked is then told the truth all the same, or that it cannot be told now; never "no".
 */
#include <sys/prctl.h>

#include "inject/proc.h"
#include "inject/target.h"
#include "tests/live/harness_session.h"
#include "tests/live/mishaps.h"

enum { CALLS_MOST = 5000 };

/*
 * Lets the first call of m->kind fail with m->error, then the second alone, and so on; begins with m->at
 * of 0. False when there are no more of them.
 */
static bool next_mishap(struct mishap *m)
{
	mishap_end();
	if (m->at && mishap_calls(m->kind) < m->at) {
		assert_true(m->at > 1); /* there was something to fail */
		return false;
	}
	m->at++;
	assert_true(m->at < CALLS_MOST);
	m->count = 1;
	mishap_set(m);
	mishap_begin();
	return true;
}

/* ------------------------------------------------- what there is to beware of */

/* A process that Valgrind seems to run, by what is mapped there. */
static pid_t start_translated(struct harness *h)
{
	char path[128];
	pid_t child;
	int fd;

	snprintf(path, sizeof(path), "%s/vgpreload_core-amd64-linux.so", h->directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_true(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child;
}

/*
 * fear A12, B3: whether a program runs under Valgrind, whether a uprobe was hit in it, whether it is there at all,
 * cannot be seen for want of a descriptor or memory: nobody attaches, and that is what is said
 */
static void test_obstacles(void **state)
{
	static const struct mishap kinds[] = {{.kind = MISHAP_OPEN, .error = EMFILE},
					      {.kind = MISHAP_READ, .error = ENOMEM},
					      {.kind = MISHAP_MEMORY, .error = ENOMEM}};
	const pid_t translated = start_translated(*state);
	struct dinst_error e = {0};
	struct target_check check;
	struct target *t = NULL;
	int status;

	assert_int_equal(target_open(translated, &t, &e), DINST_UNSUPPORTED);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			dinst_error_clear(&e);
			status = target_open(translated, &t, &e);
			mishap_end();
			if (status != DINST_BUSY && status != DINST_UNSUPPORTED &&
			    status != DINST_NO_MEMORY)
				fail_msg("%s %lu: %d, %s", mishap_name(m.kind), m.at, status,
					 e.text);
		}
	assert_false(target_warns_of_uprobes(translated, &check));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			const bool warns = target_warns_of_uprobes(translated, &check);

			mishap_end();
			if (mishap_calls(m.kind) >= m.at && !warns)
				fail_msg("%s %lu: %s", mishap_name(m.kind), m.at, check.why);
		}
	kill(translated, SIGKILL);
	assert_int_equal(waitpid(translated, NULL, 0), translated);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_obstacles),
	};

	mishaps_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/unread", tests, NULL, NULL);
}
