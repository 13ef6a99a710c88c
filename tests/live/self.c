/* SPDX-License-Identifier: MIT */
/*
 * self.c - the harness tests itself: what it promises to notice, it notices.
 * Without this, every other live test could pass because nobody looked.
 */
#include "tests/live/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t differences(struct harness *h, unsigned what, char *text, size_t size)
{
	size_t count = harness_differences(h->before, what, text, size);

	return count;
}

static void test_quiet_target(void **state)
{
	struct harness *h = *state;

	harness_start(h, "plain", "3", NULL);
	usleep(50000);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_notices_text(void **state)
{
	struct harness *h = *state;
	char path[64], text[1024], line[512];
	unsigned long lo = 0;
	uint8_t byte, other;
	FILE *maps;
	int fd;

	harness_start(h, "plain", "1", NULL);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)h->pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		if (strstr(line, "r-xp") != NULL && strstr(line, "/plain") != NULL)
			lo = strtoul(line, NULL, 16);
	fclose(maps);
	assert_true(lo != 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)h->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	/* The last byte of the segment's page: padding, nobody runs it. */
	assert_int_equal(pread(fd, &byte, 1, (off_t)(lo + 4095)), 1);
	other = (uint8_t)(byte ^ 0x55);
	assert_int_equal(pwrite(fd, &other, 1, (off_t)(lo + 4095)), 1);
	assert_int_equal(differences(h, HARNESS_ALL, text, sizeof(text)), 1);
	assert_non_null(strstr(text, "text at"));
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)(lo + 4095)), 1);
	close(fd);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_notices_stop(void **state)
{
	struct harness *h = *state;
	char text[1024];

	harness_start(h, "plain", "1", NULL);
	kill(h->pid, SIGSTOP);
	harness_until(differences(h, HARNESS_THREADS, text, sizeof(text)) >= 2);
	assert_non_null(strstr(text, "stopped"));
	kill(h->pid, SIGCONT);
	harness_verify(h);
	assert_int_equal(ptrace(PTRACE_SEIZE, h->pid, 0, 0), 0);
	assert_int_equal(differences(h, HARNESS_ALL, text, sizeof(text)), 1);
	assert_non_null(strstr(text, "traced"));
	ptrace(PTRACE_INTERRUPT, h->pid, 0, 0);
	waitpid(h->pid, NULL, __WALL);
	ptrace(PTRACE_DETACH, h->pid, 0, 0);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_output(void **state)
{
	struct harness *h = *state;
	int status;

	harness_start(h, "plain", "2", NULL);
	close(h->input);
	h->input = -1;
	assert_ptr_equal(strstr(harness_line(h, HARNESS_ANSWER_MS), "calls "), h->line);
	status = harness_wait(h, HARNESS_ANSWER_MS);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_quiet_target, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_notices_text, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_notices_stop, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_output, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/self", tests, NULL, NULL);
}
