/* SPDX-License-Identifier: MIT */
/*
 * harness_balance.c - see harness_balance.h.
 */
#include "tests/live/harness_balance.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES = 512, QUIET_MS = 20 * 1000 };

struct pair {
	struct module *module;
	uint32_t function;
	const struct instance *entry, *exit;
	bool whole;
	bool shared; /* another function jumps into its middle: it is left more often than entered */
	uint64_t entries, exits;
	long before, now;
};

struct balance {
	struct session *session;
	struct pair *pairs;
	size_t count;
	size_t *first; /* of each module that was named: index of its first pair */
	struct module **modules;
	size_t module_count;
	bool begun;
};

/* Instances keep a pointer to their metric. */
static const struct raw_metric entries = {
	.name = "entries", .unit = "", .constraints = "/Code", .kind = POINT_ENTRY};
static const struct raw_metric exits = {
	.name = "exits", .unit = "", .constraints = "/Code", .kind = POINT_EXIT};

static const struct image_function *function_of(const struct pair *p)
{
	const struct image_function *functions;

	image_functions(p->module->image, &functions);
	return &functions[p->function];
}

static struct pair *pair_of(struct balance *b, const struct module *m, uint32_t function)
{
	for (size_t i = 0; i < b->module_count; i++) {
		if (b->modules[i] != m)
			continue;
		for (size_t k = b->first[i]; k < b->count && b->pairs[k].module == m; k++)
			if (b->pairs[k].function == function)
				return &b->pairs[k];
	}
	return NULL;
}

/* ------------------------------------------------------------- inserting */

static struct instance **insert_each(struct session *s, const struct raw_metric *m,
				     const char *focus, size_t expected)
{
	struct insert_result r;
	struct dinst_error e = {0};
	unsigned tries = 0;
	int status;

	while ((status = request_insert_raw(s, m, &focus, 1, true, &r, &e)) == DINST_BUSY &&
	       ++tries < 50) {
		dinst_error_clear(&e);
		usleep(20000);
	}
	if (status < 0)
		fail_msg("%s: %s", focus, e.text);
	assert_int_equal(r.count, expected);
	return r.instances;
}

/* Every exit of its plan has a window, and nothing of it was refused or must wait. */
static bool is_whole(struct session *s, const struct pair *p)
{
	size_t points, pending[2];
	const struct function_plan *plan;
	struct dinst_error e = {0};
	bool entered = false;

	if (session_plan(s, p->module, p->function, &plan, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0; i < plan->point_count; i++) {
		if (plan->points[i].window < 0 && plan->points[i].kind <= POINT_EXIT)
			return false;
		entered |= plan->points[i].kind == POINT_ENTRY;
	}
	instance_points(p->entry, &points, &pending[0]);
	instance_points(p->exit, &points, &pending[1]);
	return entered && !p->entry->refused_count && !p->exit->refused_count && !pending[0] &&
	       !pending[1];
}

/* Functions that another one leaves into, elsewhere than at their first instruction. */
static void mark_shared(struct balance *b, const struct pair *p)
{
	const struct function_plan *plan;
	struct dinst_error e = {0};

	if (session_plan(b->session, p->module, p->function, &plan, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0; i < plan->point_count; i++) {
		vaddr_t to = plan->points[i].callee;
		long f = to && plan->points[i].kind == POINT_EXIT
				 ? image_function_at(p->module->image, to)
				 : -1;
		struct pair *other = f >= 0 && (uint32_t)f != p->function
					     ? pair_of(b, p->module, (uint32_t)f)
					     : NULL;

		if (other && function_of(other)->address != to)
			other->shared = true;
	}
}

static void add_module(struct balance *b, const char *name)
{
	struct instance **in, **out;
	struct function_ref *found;
	struct dinst_error e = {0};
	char focus[256];
	size_t count;
	struct module *m = module_named(b->session->modules, name);

	if (!m || !m->image)
		fail_msg("no module %s", name);
	/* only then it is known what is a function and what a part of one */
	if (image_references(m->image, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	snprintf(focus, sizeof(focus), "/Code/%s/*", name);
	if (find_resource(b->session->modules, focus, &found, &count, &e) < 0)
		fail_msg("%s: %s", focus, e.text);
	in = insert_each(b->session, &entries, focus, count);
	out = insert_each(b->session, &exits, focus, count);
	b->pairs = realloc(b->pairs, (b->count + count) * sizeof(*b->pairs));
	assert_non_null(b->pairs);
	b->first[b->module_count] = b->count;
	b->modules[b->module_count++] = found[0].module;
	for (size_t i = 0; i < count; i++) {
		struct pair *p = &b->pairs[b->count++];

		*p = (struct pair){.module = found[i].module,
				   .function = found[i].index,
				   .entry = in[i],
				   .exit = out[i]};
		assert_string_equal(in[i]->focus, out[i]->focus);
	}
	free(in);
	free(out);
	free(found);
}

/* --------------------------------------------------------------- looking */

/*
 * The activations of one stack. Its outermost frame is none: nobody called it
 * (a new thread begins in the middle of clone()).
 */
static void count_frames(struct balance *b, const taddr_t *pcs, size_t count)
{
	for (size_t i = 0; i + 1 < count; i++) {
		/* a return address may stand behind the end of its function */
		taddr_t pc = i ? pcs[i] - 1 : pcs[i];
		const struct module *m = module_at(b->session->modules, pc);
		const struct image_function *functions;
		struct pair *p;
		long f;

		if (!m || !m->image)
			continue;
		f = image_function_at(m->image, pc - m->bias);
		if (f < 0)
			continue;
		image_functions(m->image, &functions);
		p = pair_of(b, m, functions[f].parent);
		if (p)
			p->now++;
	}
}

static bool is_vdso(const struct balance *b, taddr_t pc)
{
	const struct module *m = module_at(b->session->modules, pc);

	return m && m->name[0] == '[';
}

struct look {
	struct balance *balance;
	struct snapshot *shot;
	pid_t tids[256];
	size_t count;
};

static int look_in_stop(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct look *l = arg;

	for (size_t i = 0; i < l->balance->count; i++) {
		struct pair *p = &l->balance->pairs[i];

		p->entries = instance_value(p->entry);
		p->exits = instance_value(p->exit);
	}
	l->count = stop_thread_count(stop);
	assert_true(l->count <= sizeof(l->tids) / sizeof(l->tids[0]));
	for (size_t i = 0; i < l->count; i++) {
		const struct stop_thread *t = stop_thread(stop, i);

		/* It may stand at an entry that it has not counted: a server's timer, say. */
		if (!arch_in_syscall(&t->regs))
			return dinst_fail(e, DINST_BUSY, "thread %d runs", (int)t->tid);
		l->tids[i] = t->tid;
	}
	return snapshot_take(stop, &l->shot, e);
}

static void look(struct balance *b)
{
	struct look l = {.balance = b};
	struct dinst_error e = {0};
	taddr_t pcs[FRAMES];
	unsigned tries = 0;
	int status;

	while ((status = target_stop(b->session->target, NULL, look_in_stop, &l, NULL, &e)) ==
		       DINST_BUSY &&
	       ++tries < 50) {
		dinst_error_clear(&e);
		usleep(20000);
	}
	if (status < 0)
		fail_msg("stop: %s", e.text);
	for (size_t i = 0; i < b->count; i++)
		b->pairs[i].now = 0;
	for (size_t i = 0; i < l.count; i++) {
		bool complete;
		size_t n = snapshot_backtrace(l.shot, l.tids[i], site_home, b->session, pcs, FRAMES,
					      &complete);

		if (!complete)
			fail_msg("the stack of thread %d is not known to its end: %zu frames, "
				 "the last at %#llx",
				 (int)l.tids[i], n, n ? (unsigned long long)pcs[n - 1] : 0);
		assert_false(is_vdso(b, pcs[0]));
		count_frames(b, pcs, n);
	}
	snapshot_free(l.shot);
}

static uint64_t total(const struct balance *b)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < b->count; i++)
		sum += instance_value(b->pairs[i].entry) + instance_value(b->pairs[i].exit);
	return sum;
}

static bool somebody_runs(pid_t pid)
{
	char path[64];
	const struct dirent *d;
	bool runs = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((d = readdir(dir)))
		if (d->d_name[0] != '.' &&
		    harness_status(pid, (pid_t)atoi(d->d_name), "State:")[0] != 'S')
			runs = true;
	closedir(dir);
	return runs;
}

/* Twice the same sum with nobody running in between, or nearly: a server has its timers. */
static void wait_until_quiet(const struct balance *b)
{
	for (unsigned ms = 0; ms < QUIET_MS; ms += 50) {
		uint64_t before = total(b);

		usleep(50000);
		if (!somebody_runs(b->session->pid) && total(b) == before &&
		    !somebody_runs(b->session->pid))
			return;
	}
	fail_msg("the target does not come to rest");
}

void balance_look(struct balance *b)
{
	wait_until_quiet(b);
	look(b);
}

struct balance *balance_begin(struct session *s, const char *const *modules, size_t count)
{
	struct balance *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->session = s;
	b->first = calloc(count, sizeof(*b->first));
	b->modules = calloc(count, sizeof(*b->modules));
	assert_true(b->first && b->modules);
	for (size_t i = 0; i < count; i++)
		add_module(b, modules[i]);
	for (size_t i = 0; i < b->count; i++)
		b->pairs[i].whole = is_whole(s, &b->pairs[i]);
	for (size_t i = 0; i < b->count; i++)
		mark_shared(b, &b->pairs[i]);
	/* What ran while it was being inserted, a timer of a server perhaps, is not looked at. */
	balance_look(b);
	for (size_t i = 0; i < b->count; i++) {
		struct pair *p = &b->pairs[i];

		p->before = p->now - (long)(p->entries - p->exits);
	}
	return b;
}

void balance_free(struct balance *b)
{
	free(b->pairs);
	free(b->first);
	free(b->modules);
	free(b);
}

/* --------------------------------------------------------------- judging */

static struct balance_row row_of(const struct pair *p)
{
	return (struct balance_row){.module = p->module->name,
				    .function = function_of(p)->name,
				    .entries = p->entries,
				    .exits = p->exits,
				    .alive = p->now - p->before,
				    .whole = p->whole};
}

struct balance_row balance_of(const struct balance *b, const char *function)
{
	for (size_t i = 0; i < b->count; i++) {
		struct balance_row row = row_of(&b->pairs[i]);

		if (strcmp(row.function, function) != 0)
			continue;
		if (!row.whole)
			fail_msg("%s: not everything of it is patched", function);
		return row;
	}
	fail_msg("no function %s", function);
	return (struct balance_row){0};
}

static bool is_listed(const char *const *names, const char *name)
{
	for (; names && *names; names++)
		if (fnmatch(*names, name, 0) == 0)
			return true;
	return false;
}

struct balance_result balance_check(const struct balance *b, const char *const *thrown)
{
	struct balance_result r = {.functions = b->count};

	for (size_t i = 0; i < b->count; i++) {
		struct balance_row row = row_of(&b->pairs[i]);
		long difference = (long)(row.entries - row.exits) - row.alive;

		if (!row.whole || !b->pairs[i].exit->link_count)
			continue;
		r.shared += b->pairs[i].shared;
		if (b->pairs[i].shared && difference < 0)
			continue;
		r.whole++;
		r.active += row.entries || row.exits;
		if (difference == 0 || (difference > 0 && is_listed(thrown, row.function)))
			continue;
		r.unequal++;
		print_error("%s:%s: entered %llu times, left %llu times, alive %+ld\n", row.module,
			    row.function, (unsigned long long)row.entries,
			    (unsigned long long)row.exits, row.alive);
	}
	return r;
}
