/* SPDX-License-Identifier: MIT */
/*
 * mishaps_lives.h - lives of mutators in which a call of theirs fails (mishaps.h).
 *
 * A child process attaches, does what a `struct scene` says, and detaches, with the libraries; the
 * Nth call of one kind fails, alone or with all that follow. What is true afterwards is asked here:
 * the target lives and answers rightly, what was told to be out is out, byte for byte, and what
 * could not be taken out is taken out by the next one, when calls work again.
 *
 *   1. a scene: work() in the child, with say(), insert(), take_away(), expect_counts();
 *   2. sweep_scene(h, &scene, kinds, count, turns) in the test.
 */
#ifndef DINST_TESTS_MISHAPS_LIVES_H
#define DINST_TESTS_MISHAPS_LIVES_H

#include "inject/proc.h"
#include "mutator/request.h"
#include "mutator/variable.h"
#include "tests/live/death_help.h"

#include "tests/live/mishaps.h"

enum { BAD = 9, HANGS_SECONDS = 60 * SLOWER, OTHERS_MOST = 8 };

/* Descriptors that stay open for as long as the process lives: /proc/self/mountinfo, a helper's. */
static const size_t usual = 3;

/* Processes beside the target that a life leads to, for who looks at them afterwards. */
struct others {
	pid_t pids[OTHERS_MOST];
	size_t count;
	bool private; /* an arena was made in private memory: each has it for itself */
	bool left;    /* what somebody else has left was told to stay */
};

struct scene {
	/* Each life has a target of its own; NULL: all have the one that is there. */
	void (*begin)(struct harness *h);
	/* In the parent, before each life; NULL: nothing. */
	void (*before)(struct harness *h);
	/* The child's whole life, which ends it; NULL: live(). */
	void (*life)(pid_t pid);
	/* In the child, between attaching and detaching. */
	void (*work)(struct session *s);
	/* In the parent, when everything is out: looks, and leads the target back to where it was. */
	void (*after)(struct harness *h);
	/* Makes the last snapshot void: the target is another program. */
	bool executes;
	/* Modules come and go: what is told to be in may wait for one. */
	bool reloads;
	/* Calls fail from where work() says so (mishap_begin()). */
	bool late;
};

static const struct scene *scene;
static struct others *others; /* shared */
static int input, output;     /* of the target, in the child */
static bool lasting;	      /* the calls go on failing */

/* -------------------------------------------------------------- the child */

static inline void __attribute__((format(printf, 1, 2), noreturn)) bad(const char *format, ...)
{
	va_list args;

	mishap_end();
	va_start(args, format);
	vsnprintf(account->text, sizeof(account->text), format, args);
	va_end(args);
	_exit(BAD);
}

/* A line of the target's, valid until the next one. */
static inline const char *hear(void)
{
	static char line[128];
	struct pollfd more = {.fd = output, .events = POLLIN};
	size_t used = 0;

	while (!used || line[used - 1] != '\n') {
		if (__real_poll(&more, 1, HARNESS_ANSWER_MS) != 1 ||
		    __real_read(output, line + used, 1) != 1 || ++used == sizeof(line))
			bad("the target does not answer");
	}
	line[used - 1] = '\0';
	return line;
}

static inline void expect_done(void)
{
	const char *line = hear();

	if (strcmp(line, "done") != 0)
		bad("the target says %s", line);
}

static inline void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	char line[64];
	va_list args;
	int size;

	va_start(args, format);
	size = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (__real_write(input, line, (size_t)size) != size)
		bad("the target takes no commands");
}

/* Descriptors of ours. */
static inline size_t count_descriptors(void)
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

/* What was told about a failure has to be something. Returns what it was told of. */
static inline int told(int status, struct dinst_error *e)
{
	if (status >= 0)
		return status;
	if (!e->code || !e->text[0])
		bad("stage %s failed with %d, and says nothing", stages[account->stage], status);
	snprintf(account->text, sizeof(account->text), "%s", e->text);
	dinst_error_clear(e);
	return status;
}

static inline void insert(struct session *s, const char *metric, const char *focus,
			  struct counted *to)
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

static inline void insert_kind(struct session *s, const char *focus, enum point_kind kind,
			       struct counted *to)
{
	struct dinst_error e = {0};
	struct instance *i;

	if (told(insert_at_last(s, focus, kind, &i, &e), &e) >= 0)
		to->instance = i;
}

/* Told to have failed or not: nothing is expected of it any more. */
static inline void take_away(struct session *s, struct counted *from)
{
	struct flush_result flushed;
	struct dinst_error e = {0};

	if (from->instance)
		told(removal_remove(s, from->instance, &flushed, &e), &e);
	from->instance = NULL;
}

static inline void flush(struct session *s)
{
	struct flush_result flushed;
	struct dinst_error e = {0};

	told(removal_flush(s, &flushed, &e), &e);
}

static inline bool read_count(const struct counted *c, uint64_t *count)
{
	struct variable_value value = {0};
	struct dinst_error e = {0};
	size_t points, pending;

	if (!c->instance || c->instance->refused_count || (scene->reloads && c->instance->waiting))
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

/* Before a child is forked, and after. */
static inline void note_private(const struct session *s)
{
	for (const struct place *p = s->places; p; p = p->next)
		others->private = others->private || p->arena->mode == ARENA_PRIVATE;
}

/* What is in and can be read counts exactly `events` from one command to its answer. */
static inline void expect_counts(struct counted *watched, size_t count, const char *command,
				 uint64_t events)
{
	uint64_t now;

	for (size_t i = 0; i < count; i++)
		if (!read_count(&watched[i], &watched[i].before))
			watched[i].before = UINT64_MAX;
	say("%s", command);
	expect_done();
	for (size_t i = 0; i < count; i++)
		if (watched[i].before != UINT64_MAX && read_count(&watched[i], &now) &&
		    now - watched[i].before != events)
			bad("number %zu counted %llu instead of %llu in %s", i,
			    (unsigned long long)(now - watched[i].before),
			    (unsigned long long)events, command);
}

/* Descriptors of ours that were left open, or others' that were closed, are no end of any life. */
static inline void expect_descriptors(size_t before)
{
	const size_t now = count_descriptors();

	if (usual < now - before)
		bad("%zu descriptors are open, and were %zu", now, before);
}

/* As a mutator's whole life; exits with ENDED where it was told that everything is out. */
static inline void live(pid_t pid)
{
	struct dinst_error e = {0};
	struct detach_result detached = {0};
	const size_t descriptors = count_descriptors();
	struct session *s;
	int status = -1;

	alarm(HANGS_SECONDS);
	stage(0);
	if (!scene->late)
		mishap_begin();
	for (int tries = 0; tries < 2 && status < 0; tries++) {
		status = told(session_attach(pid, "unlucky", &s, &e), &e);
		if (status < 0 && lasting)
			mishap_end();
	}
	if (status < 0)
		bad("attaching failed twice: %s", account->text);
	scene->work(s);
	stage(6);
	status = told(session_detach(s, 5, &detached, &e), &e);
	mishap_end();
	if (status < 0 || detached.left)
		status = session_detach(s, 20, &detached, &e);
	stage(7);
	session_free(s);
	expect_descriptors(descriptors);
	if (status == DINST_BUSY || detached.left)
		_exit(GAVE_UP);
	if (status < 0)
		memcpy(account->text, e.text, sizeof(e.text));
	_exit(status < 0 ? FAILED : ENDED);
}

/* ------------------------------------------------------------- the parent */

/* The code of a process that is beside the target is the file's, and nothing of ours is in it. */
static inline void expect_clean(pid_t pid)
{
	struct harness_snapshot *now = harness_snapshot_take(pid);
	char text[2048], command[64];

	if (!now)
		fail_msg("process %d is gone", (int)pid);
	if (harness_differences(now, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("process %d is not restored:\n%s", (int)pid, text);
	harness_snapshot_free(now);
	snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)pid);
	if (!system(command))
		fail_msg("process %d still has an arena", (int)pid);
	if (strcmp(harness_status(pid, pid, "TracerPid:"), "0") != 0)
		fail_msg("process %d is traced", (int)pid);
}

/* What a child has in private memory it has by itself, and whoever looks at it takes it out. */
static inline void clean_private(pid_t pid)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("process %d: %s", (int)pid, e.text);
	target_close(t);
	assert_int_equal(left.arenas_left, 0);
}

/* A mutator that is a zombie has left something: in the target, or who was its child. */
static inline void clean_heirs(pid_t maker, uint64_t start)
{
	struct dinst_error e = {0};
	struct leftovers left;

	if (leftovers_clean_heirs(maker, start, CLEAN_MS, &left, &e) < 0)
		fail_msg("cleaning up: %s", e.text);
	if (left.arenas_left)
		fail_msg("%zu arenas are left: %s", left.arenas_left, account->text);
}

static inline void judge(struct harness *h, const struct mishap *m, int status)
{
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
}

/* One life with one mishap; false if it came to its end before that call. */
static inline bool one_life(struct harness *h, const struct mishap *m)
{
	struct proc_stat stat;
	int status = 0;
	pid_t child;

	memset(account, 0, sizeof(*account));
	memset(others, 0, sizeof(*others));
	if (scene->begin)
		scene->begin(h);
	if (scene->before)
		scene->before(h);
	fflush(NULL);
	mishap_set(m);
	child = fork();
	if (child < 0)
		fail_msg("fork: %s", strerror(errno));
	if (child == 0) {
		lasting = m->count > 1;
		input = h->input;
		output = h->output;
		if (scene->life)
			scene->life(h->pid);
		live(h->pid);
	}
	assert_int_equal(proc_stat_read(child, &stat), 0);
	if (waitpid(child, &status, 0) != child)
		fail_msg("waitpid: %s", strerror(errno));
	judge(h, m, status);
	if (WEXITSTATUS(status) != ENDED || others->left)
		clean_up(h, m->at);
	if (WEXITSTATUS(status) != ENDED)
		clean_heirs(child, stat.start_time);
	if (scene->after)
		scene->after(h);
	if (!scene->executes)
		verify(h, m->at);
	if (scene->begin)
		harness_end(h, 0);
	return mishap_calls(m->kind) >= m->at;
}

static inline unsigned long learn_calls(struct harness *h, enum mishap_kind kind)
{
	const struct mishap none = {.kind = kind, .at = ~0ul};

	assert_false(one_life(h, &none));
	return mishap_calls(kind);
}

/* So many of a kind's calls, spread over all of them: each, or by chance. */
static inline void sweep(struct harness *h, enum mishap_kind kind, unsigned long count)
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

/* `turns` of each kind where time is short. */
static inline void sweep_scene(struct harness *h, const struct scene *what,
			       const enum mishap_kind *kinds, size_t count, unsigned long turns)
{
	const char *only = getenv("MISHAP_KIND");

	scene = what;
	harness_limit(getenv("MISHAPS") ? 7200 : 600);
	for (size_t k = 0; k < count; k++)
		if (!only || !strcmp(only, mishap_name(kinds[k])))
			sweep(h, kinds[k], getenv("DINST_SHORT") ? turns : 8 * turns);
}

#define SWEEP_SCENE(what, turns, ...)                                                          \
	do {                                                                                   \
		const enum mishap_kind kinds[] = {__VA_ARGS__};                                \
		sweep_scene(*state, (what), kinds, sizeof(kinds) / sizeof(kinds[0]), (turns)); \
	} while (0)

static inline void lives_open(void)
{
	mishaps_open();
	others = mmap(NULL, sizeof(*others), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
}

#endif
