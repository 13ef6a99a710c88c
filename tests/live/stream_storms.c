/* SPDX-License-Identifier: MIT */
/*
 * stream_storms.c - events of threads that are interrupted, give way in a record, jump out of it, or
 * end in it; whose they are; streams that come and go, and mutators that are killed, while threads write.
 */
#include "tests/live/stream_help.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/control.h"
#include "inject/tasks.h"

/* -------------------------------------------------------------- interruptions */

/* How many handlers there were, by thread. */
static long handled(const char *line)
{
	long a, b;

	if (sscanf(line, "handled %ld %ld", &a, &b) != 2)
		fail_msg("%s", line);
	return a + b;
}

static void test_signals(void **state)
{
	enum { N = 60000, ROUNDS = 30 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept = 0, calls = 0, seen = 0;

	/* A round may be over before a handler has come, or its events are dropped. */
	for (unsigned round = 0; round < ROUNDS && !seen; round++) {
		collect(h, s, "signals 60000\n", false, &all);
		calls += 2 * N + handled(harness_line(h, HARNESS_ANSWER_MS));
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		take(s, &all);
		kept += check_order(&all, false);
		print_message("%ld kept, %lu dropped of %ld\n", kept, all.dropped, calls);
		assert_int_equal(session_value(s, id), calls);
		assert_int_equal(kept + (long)all.dropped, calls);
		assert_int_equal(all.damaged, 0);
		seen = told[1001].count + told[1002].count;
		release(&all);
	}
	assert_true(seen > 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Rings that somebody has taken and does not give back. */
static unsigned taken_rings(const struct session *s)
{
	unsigned count = 0;

	for (unsigned n = 0; n < s->stream->ring_count; n++)
		count += s->stream->rings[n].ring->lock != 0;
	return count;
}

/* A thread that jumps out of a record leaves its ring taken until somebody notices. */
static void jump(struct harness *h, struct session *s)
{
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept, calls;
	unsigned left;

	collect(h, s, "jumps 60000\n", false, &all);
	handled(harness_line(h, HARNESS_ANSWER_MS));
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	left = taken_rings(s);
	for (unsigned tries = 0; taken_rings(s) && tries < 2400; tries++) {
		usleep(100000);
		take(s, &all);
	}
	assert_int_equal(taken_rings(s), 0);
	kept = check_order(&all, false);
	calls = (long)session_value(s, id);
	print_message("%ld kept, %lu dropped of %ld, %u rings were left\n", kept, all.dropped,
		      calls, left);
	assert_int_equal(all.damaged, 0);
	/* A few may have been interrupted between being counted and having a ring. */
	assert_true(kept + (long)all.dropped <= calls);
	assert_true(kept + (long)all.dropped >= calls - calls / 100 - 10);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_jumps(void **state)
{
	struct harness *h = *state;

	jump(h, begin(h));
}

/* Threads that end in a record: their rings come back without a stop. */
static void end_in_records(struct harness *h, struct session *s)
{
	unsigned id = insert(s, "entries");
	struct events all = {0};
	long kept, calls;
	unsigned left;

	collect(h, s, "exits 150\n", false, &all);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	take(s, &all);
	left = taken_rings(s);
	for (unsigned tries = 0; taken_rings(s) && tries < 2400; tries++) {
		usleep(50000);
		take(s, &all);
	}
	assert_int_equal(taken_rings(s), 0);
	assert_true(s->stream->stopped_ns == 0);
	release(&all);
	/* There is room as before. */
	take(s, &all);
	release(&all);
	kept = (long)session_value(s, id);
	session_go(h, 100);
	take(s, &all);
	calls = (long)session_value(s, id) - kept;
	assert_int_equal(calls, 100);
	assert_int_equal(check_order(&all, false), 100);
	print_message("%ld calls, %u rings were left\n", kept, left);
	release(&all);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_exits(void **state)
{
	struct harness *h = *state;

	end_in_records(h, begin(h));
}

/* The target is the first process of a container: its threads have ids of their own. */
static struct session *begin_in_container(struct harness *h)
{
	const int container = harness_container_begin();

	harness_start(h, "stream", NULL);
	harness_container_end(container);
	return begin_with(h);
}

/* Whose ring it is, is told by ids of the container's own */
static void test_jumps_in_container(void **state)
{
	struct harness *h = *state;

	jump(h, begin_in_container(h));
}

static void test_exits_in_container(void **state)
{
	struct harness *h = *state;

	end_in_records(h, begin_in_container(h));
}

/* So many times it is looked whose rings are taken. */
static void look_on(struct session *s, unsigned times)
{
	struct events all = {0};

	for (unsigned n = 0; n < times; n++) {
		usleep(10000);
		take_part(s, &all);
	}
	release(&all);
}

/*
 * fear I1: who has taken a ring lives in a namespace below the target's, and calls itself as another
 * process here: it keeps the ring for as long as it is there, and no longer
 */
static void test_holder_below(void **state)
{
	struct harness *h = *state;
	struct arch_ring *ring;
	struct session *s;

	if (geteuid() != 0) {
		print_message("SKIP below: makes a namespace, which root may\n");
		skip();
	}
	s = begin(h);
	insert(s, "entries");
	session_go(h, 100);
	tell(h, "below\n");
	/* What a stop would tell, of one that is not really there, is not asked. */
	s->stream->stopped_ns = clock_ns();
	s->stream->stop_pause_ns = UINT64_MAX;
	ring = s->stream->rings[0].ring;
	look_on(s, 10);
	assert_int_equal(ring->lock, 0);
	ring->lock = 1;
	look_on(s, 100);
	assert_int_equal(ring->lock, 1);
	tell(h, "ended\n");
	for (unsigned tries = 0; ring->lock && tries < 600; tries++)
		look_on(s, 10);
	assert_int_equal(ring->lock, 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------- parked */

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* The ring that the parked task has taken; NULL: none. */
static const struct arch_ring *taken_ring(const struct session *s)
{
	for (unsigned n = 0; s->stream && n < s->stream->ring_count; n++)
		if (__atomic_load_n(&s->stream->rings[n].ring->lock, __ATOMIC_ACQUIRE))
			return s->stream->rings[n].ring;
	return NULL;
}

/* `unknown`: the library that switches has come since the modules were last looked at. */
static void run_parked(struct harness *h, bool unknown)
{
	enum { STEPS_MOST = 200, LOOKS = 150 };
	static const char calls[] =
		"metric calls { name \"calls\"; units events; style EventCounter;\n"
		"	base is stream { foreach f in functions\n"
		"		append preInsn f.entry (* record(calls, $arg[0]); *) } }\n"
		"list functions is procedure { items { \"parked_function\" }; }\n";
	const struct arch_ring *ring = NULL;
	struct insert_result inserted;
	struct dinst_error e = {0};
	struct session *s;
	char command[1024];

	setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	harness_start(h, "parked", "fiber", NULL);
	unsetenv("GLIBC_TUNABLES");
	s = session_begin(h);
	assert_int_equal(session_load_mdl(s, "test.mdl", calls, strlen(calls), &e), 0);
	if (request_insert(s, "calls", NULL, 0, NULL, &inserted, &e) < 0)
		fail_msg("%s", e.text);
	if (unknown) {
		s->target->parks = false;
		snprintf(command, sizeof(command), "load %s\n",
			 harness_path("tests/live/targets/libswitches.so"));
		ask(h, command, "loaded");
	}
	for (long step = 1; !ring && step < STEPS_MOST; step++) {
		snprintf(command, sizeof(command), "step %ld\n", step);
		harness_send(h, command);
		if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "parked") != 0)
			break;
		stream_collect(s);
		ring = taken_ring(s);
		if (!ring)
			ask(h, "resume\n", "resumed");
	}
	assert_non_null(ring);
	for (int i = 0; i < LOOKS; i++) {
		stream_collect(s);
		assert_ptr_equal(taken_ring(s), ring);
		usleep(20000);
	}
	ask(h, "resume\n", "resumed");
	assert_null(taken_ring(s));
	session_remove(s, inserted.instances[0]->id);
	free(inserted.instances);
	session_end(s);
	ask(h, "go 100\n", "done");
	harness_end(h, 0);
}

/* fear H5: a task that gave way in the middle of an event goes on with it: its ring is not another's meanwhile */
static void test_parked(void **state)
{
	run_parked(*state, false);
}

/* fear H5: the same where the library that switches is not known yet */
static void test_parked_unknown(void **state)
{
	run_parked(*state, true);
}

/* ------------------------------------------------------------- whose they are */

/* Takes events: true if they are told to be of thread `tid` of process `pid`; those of any other one fail the test. */
static bool is_told(struct session *s, pid_t tid, pid_t pid)
{
	struct stream_taken taken;
	struct dinst_error e = {0};
	json_t *threads, *row;
	bool told = false;
	size_t n;

	stream_collect(s);
	assert_true(stream_take(s, NULL, 0, 1 << 20, &taken, &threads, &e) >= 0);
	json_array_foreach(threads, n, row)
	{
		const json_int_t of = json_integer_value(json_object_get(row, "pid"));

		assert_true(!of || of == pid);
		told |= json_integer_value(json_object_get(row, "tid")) == tid && of == pid;
	}
	json_decref(threads);
	json_decref(taken.places);
	free(taken.data);
	return told;
}

/*
 * fear I1: a child lives in a namespace below the target's, and its id there is ours of somebody else: its
 * events have the id by which we know it
 */
static void test_below(void **state)
{
	struct harness *h = *state;
	struct proc_ids children = {0};
	struct session *s;

	if (geteuid() != 0) {
		print_message("SKIP below: makes a namespace, which root may\n");
		skip();
	}
	s = begin(h);
	insert(s, "entries");
	tell(h, "below\n");
	assert_int_equal(proc_children(h->pid, h->pid, &children), 0);
	assert_int_equal(children.count, 1);
	assert_int_equal(task_own_id(children.ids[0], children.ids[0]), 1);
	tell(h, "more 5\n");
	/* Who was not found at once is found as soon as it may be looked for again. */
	for (unsigned n = 0; !is_told(s, children.ids[0], children.ids[0]); n++) {
		assert_true(n < 600);
		usleep(10000);
		tell(h, "more 5\n");
	}
	proc_ids_release(&children);
	tell(h, "ended\n");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* The target has another thread than its first one: as we know it. */
static pid_t second_thread(const struct harness *h)
{
	size_t count;
	pid_t *tids = task_list(h->pid, &count), found = 0;

	assert_int_equal(count, 2);
	found = tids[0] == h->pid ? tids[1] : tids[0];
	free(tids);
	return found;
}

/* A thread whose events are known ends, and another one begins: true if it calls itself the same. */
static bool begin_again(struct harness *h, struct session *s)
{
	pid_t tid, own;

	tell(h, "again 1\n");
	tid = second_thread(h);
	own = task_own_id(tid, tid);
	harness_until(is_told(s, tid, h->pid));
	tell(h, "stop\n");
	while (task_own_id(tid, tid))
		usleep(1000);
	/* A thread may not be seen any more, and have its id a moment longer. */
	usleep(20000);
	tell(h, "again 2\n");
	tid = second_thread(h);
	return task_own_id(tid, tid) == own;
}

/*
 * fear I1: a container gives the id of a thread that has ended out again: the events of the new one are its own.
 * It is not looked for while that would take too much of our time.
 */
static void test_again_in_container(void **state)
{
	enum { TRIES = 10 };
	struct harness *h = *state;
	struct session *s = begin_in_container(h);
	pid_t tid;

	insert(s, "entries");
	for (unsigned n = 1; !begin_again(h, s); n++) {
		tell(h, "stop\n");
		if (n == TRIES) {
			print_message("SKIP again: the kernel gives ids out as it likes\n");
			skip();
		}
	}
	tid = second_thread(h);
	s->stream->sought = (struct stream_search){.ended_ns = clock_ns(), .took_ns = 1ull << 50};
	for (unsigned n = 0; n < 150; n++) {
		assert_false(is_told(s, tid, h->pid));
		usleep(10000);
	}
	s->stream->sought.took_ns = 0;
	harness_until(is_told(s, tid, h->pid));
	tell(h, "stop\n");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------- in and out */

/* From when there is something on; for a second, where sanitizers need minutes for all of it. */
static void take_under_load(struct session *s, struct events *all)
{
	enum { PARTS = 100 };
	uint64_t end;

	for (unsigned tries = 0; !all->size && tries < 60000; tries++) {
		usleep(1000);
		take_part(s, all);
	}
	end = clock_ns() + 1000000000;
	for (unsigned n = 0; n < PARTS && take_part(s, all) && clock_ns() < end; n++)
		continue;
	assert_true(all->size > 0);
	assert_int_equal(all->damaged, 0);
}

/* While threads write: what is taken out and put in again is whole each time. */
static void test_removed_under_load(void **state)
{
	enum { ROUNDS = 12 };
	struct harness *h = *state;
	struct session *s = begin(h);

	tell(h, "run 4\n");
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned id = insert(s, round % 2 ? "steps" : "texts");
		struct events all = {0};

		take_under_load(s, &all);
		session_remove(s, id);
		if (round % 3 == 0)
			session_flush_all(s);
		release(&all);
	}
	session_flush_all(s);
	session_end(s);
	tell(h, "stop\n");
	harness_verify(h);
	harness_end(h, 0);
}

static void test_detached_under_load(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct events all = {0};

	insert(s, "texts");
	insert(s, "steps");
	tell(h, "run 4\n");
	take_under_load(s, &all);
	session_end(s);
	tell(h, "stop\n");
	release(&all);
	harness_verify(h);
	harness_end(h, 0);
}

/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
static int put_in(struct session *s, const char *metric)
{
	struct insert_result result;
	struct dinst_error e = {0};
	int status = DINST_BUSY;

	for (int tries = 0; tries < 50 && status == DINST_BUSY; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, metric, NULL, 0, NULL, &result, &e);
	}
	return status;
}

/* A mutator of its own, which is killed while threads write what it collects. */
static void be_mutator(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	if (session_attach(h->pid, "short", &s, &e) < 0 ||
	    session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0 || put_in(s, "texts") < 0 ||
	    put_in(s, "steps") < 0)
		_exit(1);
	for (;;) {
		stream_collect(s);
		usleep(500);
	}
}

static void test_deaths(void **state)
{
	enum { ROUNDS = 6, CLEAN_MS = 60000 };
	struct harness *h = *state;
	size_t arenas = 0;

	harness_start(h, "stream", NULL);
	tell(h, "run 4\n");
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct dinst_error e = {0};
		struct leftovers left;
		struct target *t;
		int status;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			be_mutator(h);
		usleep(100000 + round * 137000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
			fail_msg("round %u: %s", round, e.text);
		target_close(t);
		assert_int_equal(left.arenas_left, 0);
		arenas += left.arenas;
	}
	assert_true(arenas > 0);
	tell(h, "stop\n");
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_signals),
		CASE(test_jumps),
		CASE(test_exits),
		CASE(test_jumps_in_container),
		CASE(test_exits_in_container),
		CASE(test_holder_below),
		CASE(test_parked),
		CASE(test_parked_unknown),
		CASE(test_below),
		CASE(test_again_in_container),
		CASE(test_removed_under_load),
		CASE(test_detached_under_load),
		CASE(test_deaths),
	};

	setenv("DINST_POISON", "1", 1);
	if (!harness_has_clock(true))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
