/* SPDX-License-Identifier: MIT */
/*
 * mishaps.c - a call that the mutator makes fails, and it goes on.
 *
 * A child process attaches, inserts, reads values, removes, flushes and detaches
 * with the libraries. Their calls go through this program (--wrap), which lets
 * the Nth of one kind fail, alone or with all that follow, in a way in which the
 * kernel or the C library can let it fail. Whatever fails: the target goes on
 * computing rightly; what was said to be in counts exactly; what was said
 * to be out is out, byte for byte; and what could not be taken out is taken out
 * by the next one.
 *
 * mishaps [CASES]: those whose names it fits. MISHAPS=n of each kind, 0: each one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/request.h"
#include "mutator/variable.h"
#include "tests/live/death_help.h"

#include "tests/live/mishaps.h"

enum { THREADS = 4, ROUNDS = 50, BAD = 9, HANGS_SECONDS = 60 * SLOWER };

static int input, output; /* of the target, in the child */
/* Descriptors that stay open for as long as the process lives: /proc/self/mountinfo, a helper's. */
static const size_t usual = 3;
static bool lasting; /* the calls go on failing */

/* -------------------------------------------------------------- the child */

static void __attribute__((format(printf, 1, 2), noreturn)) bad(const char *format, ...)
{
	va_list args;

	mishap_end();
	va_start(args, format);
	vsnprintf(account->text, sizeof(account->text), format, args);
	va_end(args);
	_exit(BAD);
}

static void expect_done(void)
{
	static char line[64];
	struct pollfd more = {.fd = output, .events = POLLIN};
	size_t used = 0;

	while (!used || line[used - 1] != '\n') {
		if (__real_poll(&more, 1, HARNESS_ANSWER_MS) != 1 ||
		    __real_read(output, line + used, 1) != 1 || ++used == sizeof(line))
			bad("the target does not answer");
	}
	if (strncmp(line, "done", 4) != 0)
		bad("the target says %.*s", (int)used, line);
}

static void go(unsigned rounds)
{
	char line[32];
	const int size = snprintf(line, sizeof(line), "go %u\n", rounds);

	if (__real_write(input, line, (size_t)size) != size)
		bad("the target takes no commands");
}

/* Descriptors of ours. */
static size_t count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

struct counted {
	struct instance *instance; /* NULL: not in */
	uint64_t before;
};

enum { MANY, STRANGE, LATENCY, WATCHED };

/* What was told about a failure has to be something. Returns what it was told of. */
static int told(int status, struct dinst_error *e)
{
	if (status >= 0)
		return status;
	if (!e->code || !e->text[0])
		bad("stage %s failed with %d, and says nothing", stages[account->stage], status);
	snprintf(account->text, sizeof(account->text), "%s", e->text);
	dinst_error_clear(e);
	return status;
}

static void insert(struct session *s, const char *metric, const char *focus, struct counted *to)
{
	const struct insert_options options = {0};
	struct insert_result result;
	struct dinst_error e = {0};
	int status = DINST_BUSY;

	for (int tries = 0; tries < 5 && status == DINST_BUSY; tries++)
		status = told(request_insert(s, metric, &focus, 1, &options, &result, &e), &e);
	if (status < 0)
		return;
	to->instance = result.instances[0];
	free(result.instances);
}

static void insert_kind(struct session *s, const char *focus, enum point_kind kind,
			struct counted *to)
{
	struct dinst_error e = {0};
	struct instance *i;

	if (told(insert_at_last(s, focus, kind, &i, &e), &e) >= 0)
		to->instance = i;
}

/* Told to have failed or not: nothing is expected of it any more. */
static void take_away(struct session *s, struct counted *from)
{
	struct flush_result flushed;
	struct dinst_error e = {0};

	if (from->instance)
		told(removal_remove(s, from->instance, &flushed, &e), &e);
	from->instance = NULL;
}

static bool read_count(const struct counted *c, uint64_t *count)
{
	struct variable_value value = {0};
	struct dinst_error e = {0};
	size_t points, pending;

	if (!c->instance || c->instance->refused_count)
		return false;
	instance_points(c->instance, &points, &pending);
	if (pending)
		return false;
	if (told(instance_read(c->instance, 0, &value, &e), &e) < 0)
		return false;
	*count = (uint64_t)value.value;
	variable_value_release(&value);
	return true;
}

static void expect_counts(struct counted *watched)
{
	uint64_t now;

	for (int i = 0; i < WATCHED; i++)
		if (!read_count(&watched[i], &watched[i].before))
			watched[i].before = UINT64_MAX;
	go(ROUNDS);
	expect_done();
	for (int i = 0; i < WATCHED; i++)
		if (watched[i].before != UINT64_MAX && read_count(&watched[i], &now) &&
		    now - watched[i].before != ROUNDS * THREADS)
			bad("number %d counted %llu in %d rounds of %d threads", i,
			    (unsigned long long)(now - watched[i].before), ROUNDS, THREADS);
}

static void work(struct session *s)
{
	struct counted watched[WATCHED] = {0}, exits = {0}, calls = {0};
	struct flush_result flushed;
	struct dinst_error e = {0};

	go(3000);
	stage(1);
	insert(s, "calls", "many", &watched[MANY]);
	insert_kind(s, all, POINT_EXIT, &exits);
	stage(2);
	insert(s, "latency", "many", &watched[LATENCY]);
	insert_kind(s, caller, POINT_CALL, &calls);
	stage(3);
	take_away(s, &exits);
	stage(4);
	told(removal_flush(s, &flushed, &e), &e);
	expect_done();
	expect_counts(watched);
	stage(5);
	insert(s, "calls", "strange", &watched[STRANGE]);
	take_away(s, &watched[MANY]);
	go(1000);
	told(removal_flush(s, &flushed, &e), &e);
	expect_done();
	expect_counts(watched);
}

/* As a mutator's whole life; exits with ENDED where it was told that everything is out. */
static void live(pid_t pid)
{
	struct dinst_error e = {0};
	struct detach_result detached = {0};
	const size_t descriptors = count_descriptors();
	size_t kept;
	struct session *s;
	int status = -1;

	alarm(HANGS_SECONDS);
	stage(0);
	mishap_begin();
	for (int tries = 0; tries < 2 && status < 0; tries++) {
		status = told(session_attach(pid, "unlucky", &s, &e), &e);
		if (status < 0 && lasting)
			mishap_end();
	}
	if (status < 0)
		bad("attaching failed twice: %s", account->text);
	work(s);
	stage(6);
	status = told(session_detach(s, 5, &detached, &e), &e);
	mishap_end();
	if (status < 0 || detached.left)
		status = session_detach(s, 20, &detached, &e);
	stage(7);
	session_free(s);
	kept = count_descriptors() - descriptors;
	if (usual < kept)
		bad("%zu descriptors are open, and were %zu", descriptors + kept, descriptors);
	if (status == DINST_BUSY || detached.left)
		_exit(GAVE_UP);
	if (status < 0)
		memcpy(account->text, e.text, sizeof(e.text));
	_exit(status < 0 ? FAILED : ENDED);
}

/* ------------------------------------------------------------- the parent */

/* One life with one mishap; false if it came to its end before that call. */
static bool one_life(struct harness *h, const struct mishap *m)
{
	int status = 0;
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	if (child < 0)
		fail_msg("fork: %s", strerror(errno));
	if (child == 0) {
		mishap_set(m);
		lasting = m->count > 1;
		input = h->input;
		output = h->output;
		live(h->pid);
	}
	if (waitpid(child, &status, 0) != child)
		fail_msg("waitpid: %s", strerror(errno));
	if (getenv("MISHAPS_TELL"))
		fprintf(stderr, "%s %lu+%lu (%s): %x in %s: %s\n", mishap_name(m->kind), m->at,
			m->count, strerror(m->error), (unsigned)status, stages[account->stage],
			account->text);
	if (waitpid(h->pid, NULL, WNOHANG) == h->pid)
		fail_msg("the target died of %s %lu (%s), in %s", mishap_name(m->kind), m->at,
			 strerror(m->error), stages[account->stage]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) == BAD)
		fail_msg("%s %lu+%lu (%s): status %x in %s: %s", mishap_name(m->kind), m->at,
			 m->count, strerror(m->error), (unsigned)status, stages[account->stage],
			 account->text);
	if (WEXITSTATUS(status) != ENDED)
		clean_up(h, m->at);
	verify(h, m->at);
	return mishap_calls(m->kind) >= m->at;
}

static unsigned long learn_calls(struct harness *h, enum mishap_kind kind)
{
	const struct mishap none = {.kind = kind, .at = ~0ul};

	assert_false(one_life(h, &none));
	return mishap_calls(kind);
}

/* So many of a kind's calls, spread over all of them: each, or by chance. */
static void sweep(struct harness *h, enum mishap_kind kind, unsigned long count)
{
	unsigned short seed[3] = {(unsigned short)harness_setting("DINST_SEED", SEED), 0, 0};
	const unsigned long calls = learn_calls(h, kind);
	const unsigned long wanted = harness_setting("MISHAPS", count);
	const unsigned long turns = wanted && wanted < calls ? wanted : calls;
	const unsigned long first = harness_setting("MISHAP_FIRST", 1);

	print_message("%s: %lu of %lu calls\n", mishap_name(kind), turns, calls);
	for (unsigned long n = first - 1; n < turns; n++) {
		struct mishap m = {.kind = kind, .at = n + 1, .count = 1};

		if (turns < calls)
			m.at = 1 + n * calls / turns +
			       (unsigned long)nrand48(seed) % (calls / turns);
		m.error = mishap_error(kind, n + (unsigned long)nrand48(seed));
		/* Nobody is interrupted for ever. */
		if (n % 4 == 3 && kind == MISHAP_WAIT)
			m.count = 3;
		else if (n % 4 == 3)
			m.count = n % 8 == 3 ? ~0ul / 2 : 2 + (unsigned long)nrand48(seed) % 30;
		one_life(h, &m);
	}
}

static void sweep_kinds(struct harness *h, const enum mishap_kind *kinds, size_t count,
			unsigned long turns)
{
	harness_limit(getenv("MISHAPS") ? 7200 : 600);
	harness_start(h, "calls", harness_number(THREADS), NULL);
	for (size_t k = 0; k < count; k++)
		sweep(h, kinds[k], getenv("DINST_SHORT") ? turns : 8 * turns);
	harness_end(h, 0);
}

#define SWEEP(turns, ...)                                                              \
	do {                                                                           \
		const enum mishap_kind kinds[] = {__VA_ARGS__};                        \
		sweep_kinds(*state, kinds, sizeof(kinds) / sizeof(kinds[0]), (turns)); \
	} while (0)

/*
 * fear I2, J3: no descriptor is left (EMFILE, ENFILE), a file cannot be read or written (ENOMEM, EIO, ENOSPC),
 * once or from then on, at any moment from attach to detach: told, never a wrong number, nothing left
 */
static void test_files(void **state)
{
	SWEEP(3, MISHAP_OPEN, MISHAP_READ, MISHAP_STORE);
}

/* fear I3, J3: the same of our own memory and of threads, processes and timers of ours */
static void test_memory(void **state)
{
	SWEEP(3, MISHAP_MEMORY, MISHAP_MAP, MISHAP_TASK);
}

/*
 * fear C7, J3: the same of reading and writing the target's memory, a part of what was asked for included, of
 * what interrupts us, and of descriptors of processes: also in the middle of a stop
 */
static void test_target(void **state)
{
	SWEEP(3, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY, MISHAP_WAIT, MISHAP_CALL);
}

/* ---------------------------------------------- what must not be taken for "no" */

/* From the Nth of these calls on all fail. */
static void fail_from(enum mishap_kind kind, unsigned long at, int error)
{
	const struct mishap m = {.kind = kind, .at = at, .count = ~0ul / 2, .error = error};

	mishap_set(&m);
	mishap_begin();
}

static struct target *open_target(struct harness *h)
{
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "calls", "1", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	return t;
}

/*
 * fear A8: whether a thread is in the strict mode of seccomp, where the processor's clock cannot be read,
 * cannot be seen for want of a descriptor: nothing that reads it goes in
 */
static void test_strict_unseen(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct request r = {0};
	bool may;

	harness_start(h, "calls", "2", NULL);
	r.session = session_begin(h);
	for (unsigned long at = 1; at <= 3; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		may = request_may_read_clock(&r, &e);
		mishap_end();
		assert_false(may);
		assert_int_equal(e.code, DINST_BUSY);
	}
	assert_true(request_may_read_clock(&r, &e));
	session_end((struct session *)r.session);
	harness_end(h, 0);
}

/*
 * fear G2: who is in the target's memory cannot be seen (kcmp refused, no descriptor left): it is taken to be, and
 * stands still along with it
 */
static void test_memory_unseen(void **state)
{
	struct harness *h = *state;
	bool same[5];

	harness_start(h, "calls", "1", NULL);
	mishap_no_compare = true;
	for (unsigned long at = 1; at <= 4; at++) {
		fail_from(MISHAP_OPEN, at, ENFILE);
		same[at] = task_same_memory(h->pid, h->pid);
		mishap_end();
	}
	same[0] = task_same_memory(h->pid, getpid());
	mishap_no_compare = false;
	assert_false(same[0]);
	for (unsigned long at = 1; at <= 4; at++)
		assert_true(same[at]);
	harness_end(h, 0);
}

/* fear J2: what a mutator has left cannot be looked for: that is said, and not that there is nothing */
static void test_leftovers_unseen(void **state)
{
	struct harness *h = *state;
	struct target *t = open_target(h);
	struct dinst_error e = {0};
	struct leftovers left;
	unsigned long reached = 0;
	int status;

	/* One that there has never been. */
	fail_from(MISHAP_OPEN, 2, EMFILE);
	status = leftovers_clean_heirs(getpid(), 1, 100, &left, &e);
	mishap_end();
	assert_int_equal(status, DINST_BUSY);
	assert_int_equal(e.code, DINST_BUSY);
	dinst_error_clear(&e);
	assert_int_equal(leftovers_clean(t, 1000, &left, &e), 0);
	for (unsigned long at = 1; at == reached + 1; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		status = leftovers_clean(t, 1000, &left, &e);
		mishap_end();
		reached += mishap_calls(MISHAP_OPEN) >= at;
		if (reached == at && status >= 0)
			fail_msg("nothing is left, was said at %lu", at);
		assert_true(status >= 0 || e.text[0]);
	}
	assert_true(reached > 5);
	target_close(t);
	verify(h, 0);
	harness_end(h, 0);
}

static size_t count_images(const struct module_list *l)
{
	size_t images = 0;

	for (size_t i = 0; i < module_count(l); i++)
		images += module_get(l, i)->image != NULL;
	return images;
}

/*
 * fear C2, F5: files of modules cannot be opened or read for want of descriptors or memory: that is the
 * answer, and not that they have no functions, or switch between no stacks
 */
static void test_modules_unseen(void **state)
{
	static const enum mishap_kind kinds[] = {MISHAP_OPEN, MISHAP_MAP};
	struct harness *h = *state;
	struct target *t = open_target(h);
	struct module_list *l;
	struct dinst_error e = {0};
	size_t images;

	assert_int_equal(module_list_read(t, &l, &e), 0);
	images = count_images(l);
	module_list_free(l);
	for (size_t k = 0; k < 2; k++)
		for (unsigned long at = 1, calls = at; at <= calls; at++) {
			struct mishap m = {kinds[k], at, 1, mishap_error(kinds[k], at)};
			int status;

			dinst_error_clear(&e);
			mishap_set(&m);
			mishap_begin();
			status = module_list_read(t, &l, &e);
			mishap_end();
			calls = mishap_calls(kinds[k]);
			if (status < 0)
				continue;
			if (count_images(l) != images)
				fail_msg("%s %lu: %zu of %zu modules", mishap_name(kinds[k]), at,
					 count_images(l), images);
			module_list_free(l);
		}
	target_close(t);
	harness_end(h, 0);
}

/* fear G2, H1: a target that cannot be asked is not taken for one that has ended, or provides no pages itself */
static void test_target_unseen(void **state)
{
	struct harness *h = *state;
	struct target *t = open_target(h), *again;
	struct dinst_error e = {0};
	bool alive, provides;
	int status;

	fail_from(MISHAP_WAIT, 1, ENOMEM);
	alive = target_alive(t);
	mishap_end();
	assert_true(alive);
	fail_from(MISHAP_OPEN, 1, EMFILE);
	provides = proc_provides_pages(h->pid);
	mishap_end();
	assert_true(provides);
	assert_false(proc_provides_pages(h->pid));
	for (unsigned long at = 1; at <= 3; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		status = target_open(h->pid, &again, &e);
		mishap_end();
		assert_int_equal(status, DINST_BUSY);
		assert_non_null(strstr(e.text, strerror(EMFILE)));
	}
	target_close(t);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_strict_unseen),  TEST(test_memory_unseen), TEST(test_leftovers_unseen),
		TEST(test_modules_unseen), TEST(test_target_unseen), TEST(test_files),
		TEST(test_memory),	   TEST(test_target),
	};
	int status;

	mishaps_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	status = cmocka_run_group_tests_name("live/mishaps", tests, NULL, NULL);
	return status;
}
