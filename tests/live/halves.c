/* SPDX-License-Identifier: MIT */
/*
 * halves.c - one half of an arena without the other: what a fork keeps that
 * comes between two system calls of a program that a dead mutator left running.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/arena_unmap.h"
#include "inject/maps.h"
#include "tests/live/harness_session.h"

enum half { CODE = 1, DATA = 2 };

struct job {
	const struct arena *arena;
	enum half half;
};

static int unmap_half(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct job *job = arg;
	const struct arena *a = job->arena;

	return arena_munmap(s, job->half == CODE ? a->code : 0, a->code_size,
			    job->half == DATA ? a->data : 0, a->data_size, e);
}

/* What a program of ours does in between, and no more. */
static void take(pid_t pid, const struct arena *a, enum half half)
{
	struct job job = {a, half};
	struct dinst_error e = {0};
	struct target *t;

	if (target_open(pid, &t, &e) < 0 || target_stop(t, NULL, unmap_half, &job, NULL, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
}

/* Which halves of arenas a process has. */
static unsigned halves_of(pid_t pid)
{
	struct dinst_error e = {0};
	unsigned halves = 0;
	struct maps m;

	if (maps_read(pid, &m, &e))
		fail_msg("%s", e.text);
	for (size_t i = 0; i < m.count; i++)
		if (strstr(m.entries[i].name, "memfd:dinst"))
			halves |= m.entries[i].protection & PROT_EXEC ? CODE : DATA;
	maps_release(&m);
	return halves;
}

static struct session *begin(struct harness *h)
{
	struct session *s;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	session_insert(s, "hit");
	return s;
}

/* Our side goes as if we had been killed; the windows are the original already. */
static void die(struct session *s)
{
	while (s->instances)
		session_remove(s, s->instances->id);
	session_flush_all(s);
}

static void clean(struct harness *h)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 10000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(left.arenas_left, 0);
}

static pid_t linger(struct harness *h)
{
	const char *line;

	harness_send(h, "linger\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_memory_equal(line, "child ", 6);
	return (pid_t)strtol(line + 6, NULL, 10);
}

static void end(struct harness *h, pid_t child)
{
	if (child) {
		harness_send(h, "unlinger\n");
		assert_memory_equal(harness_line(h, HARNESS_ANSWER_MS), "ended", 5);
	}
	harness_verify(h);
	harness_end(h, 0);
}

/* fear J2, J3: a mutator died between the system calls that take an arena out: code goes first */
static void test_in_target(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	die(s);
	take(h->pid, s->places->arena, CODE);
	session_free(s);
	assert_int_equal(halves_of(h->pid), DATA);
	clean(h);
	assert_int_equal(halves_of(h->pid), 0);
	end(h, 0);
}

/*
 * fear G1, J2: another thread forked just then; the program went on in the parent, which has
 * nothing any more, and the child keeps a half that only its parent leads to
 */
static void test_in_child(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	pid_t child;

	die(s);
	take(h->pid, s->places->arena, CODE);
	child = linger(h);
	take(h->pid, s->places->arena, DATA);
	session_free(s);
	assert_int_equal(halves_of(h->pid), 0);
	assert_int_equal(halves_of(child), DATA);
	clean(h);
	assert_int_equal(halves_of(child), 0);
	end(h, child);
}

/* fear G8, J3: a child that has the data only is of the family: detaching takes them out of it */
static void test_detach(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	pid_t child;

	child = linger(h);
	while (s->instances)
		session_remove(s, s->instances->id);
	session_flush_all(s);
	take(child, s->places->arena, CODE);
	assert_int_equal(halves_of(child), DATA);
	session_end(s);
	assert_int_equal(halves_of(child), 0);
	end(h, child);
}

/*
 * fear A1, J3: detaching failed between the two, and is tried again: our program in the half that has
 * gone cannot be executed, and its fault is none of the target's
 */
static void test_detach_again(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	while (s->instances)
		session_remove(s, s->instances->id);
	session_flush_all(s);
	assert_true(s->page_count > 0);
	take(h->pid, s->places->arena, CODE);
	session_end(s);
	assert_int_equal(halves_of(h->pid), 0);
	end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_in_target),
		CASE(test_in_child),
		CASE(test_detach),
		CASE(test_detach_again),
	};

	return cmocka_run_group_tests_name("live/halves", tests, NULL, NULL);
}
