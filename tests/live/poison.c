/* SPDX-License-Identifier: MIT */
/*
 * poison.c - the guard itself: a thread that is put into code that was freed must
 * be found at the next stop, and end the mutator with a message; one that is not
 * put there must not.
 *
 * The mutator's part is in a process of its own, which is to die.
 */
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADS = 64, TRIES = 200 };

struct plant {
	taddr_t to;
	bool done;
};

/* In the middle of a system call the kernel would take two bytes off. */
static int put_there(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct plant *p = arg;

	for (size_t i = 0; i < stop_thread_count(stop) && !p->done; i++) {
		struct stop_thread *t = stop_thread(stop, i);

		if (arch_in_syscall(&t->regs))
			continue;
		arch_set_pc(&t->regs, p->to);
		t->changed = true;
		p->done = true;
	}
	return p->done ? stop_store_regs(stop, e) : 0;
}

/* Heads of the parts, while they are in. */
static size_t note_heads(const struct session *s, taddr_t *heads)
{
	size_t count = 0;

	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site->links && count < HEADS)
				heads[count++] = site->head->code;
	return count;
}

/* A place that was a head and is free now. */
static taddr_t find_freed(const struct session *s, const taddr_t *heads, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (heap_is_poison(s->places->heap, heads[i]))
			return heads[i];
	return 0;
}

/* Frees code, puts a thread there if told so, and goes on as if nothing were. */
static void mutate(struct harness *h, bool planted)
{
	const struct rlimit no_core = {0, 0};
	struct session *s = session_begin(h);
	struct plant plant = {0};
	struct dinst_error e = {0};
	taddr_t heads[HEADS];
	unsigned id;
	size_t count;

	if (planted)
		setrlimit(RLIMIT_CORE, &no_core);
	id = session_insert(s, "part_0*");
	count = note_heads(s, heads);
	/* Something stays, so that the heap does. */
	session_insert(s, "ticked");
	session_remove(s, id);
	session_flush_all(s);
	plant.to = find_freed(s, heads, count);
	if (!plant.to)
		_exit(2);
	for (int i = 0; planted && !plant.done && i < TRIES; i++) {
		if (target_stop(s->target, NULL, put_there, &plant, NULL, &e) < 0)
			_exit(3);
		usleep(1000); /* its threads may wait for each other yet */
	}
	if (planted && !plant.done)
		_exit(4);
	session_insert(s, "dive");
	session_end(s);
	_exit(0);
}

/* How the mutator ended; what it said is in `said`. */
static int run_mutator(struct harness *h, bool planted, char *said, size_t size)
{
	size_t used = 0;
	int status, fds[2];
	ssize_t got;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		/* cmocka catches what is to be seen here. */
		signal(SIGABRT, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		mutate(h, planted);
	}
	close(fds[1]);
	while (used + 1 < size && (got = read(fds[0], said + used, size - 1 - used)) > 0)
		used += (size_t)got;
	said[used] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/* fear J7: a thread in freed code is found at the next stop by whoever looks (DINST_POISON) */
static void test_planted(void **state)
{
	struct harness *h = *state;
	char said[2048];
	int status;

	harness_start(h, "fragments", "2", NULL);
	/* Without signals: whoever is in a handler at the next stop is not seen there. */
	harness_send(h, "go 1000000000\n");
	status = run_mutator(h, true, said, sizeof(said));
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
		fail_msg("the mutator ended with %x, not by abort(): %s", (unsigned)status, said);
	assert_non_null(strstr(said, "runs in freed code"));
	/* Its thread goes round in the poison for ever. */
	harness_kill(h);
}

/* The same without one: nothing is found. */
static void test_not_planted(void **state)
{
	struct harness *h = *state;
	char said[2048];
	int status;

	harness_start(h, "fragments", "2", NULL);
	harness_send(h, "run\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "running");
	status = run_mutator(h, false, said, sizeof(said));
	if (status)
		fail_msg("the mutator ended with %x: %s", (unsigned)status, said);
	assert_string_equal(said, "");
	harness_send(h, "stop\n");
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), "done"));
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_planted), CASE(test_not_planted)};

	return cmocka_run_group_tests_name("live/poison", tests, NULL, NULL);
}
