/* SPDX-License-Identifier: MIT */
/*
 * harness_torture.c - see harness_torture.h.
 */
#include "tests/live/harness_torture.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/asm/driver.h"
#include "tests/live/harness_thread.h"

#define METRIC(kind_, name_) \
	[kind_] = {.name = name_, .unit = "", .constraints = "/Code", .kind = kind_}

const struct raw_metric *torture_metric(unsigned metric)
{
	static const struct raw_metric metrics[TORTURE_METRICS] = {
		METRIC(POINT_ENTRY, "entries"),
		METRIC(POINT_EXIT, "exits"),
		METRIC(POINT_CALL, "calls"),
		METRIC(POINT_AFTER, "returns"),
		METRIC(POINT_BLOCK, "blocks"),
		METRIC(POINT_EDGE, "edges"),
		METRIC(POINT_LOOP_ENTRY, "loops"),
		METRIC(POINT_LOOP_ROUND, "rounds"),
		METRIC(POINT_LOOP_EXIT, "left loops"),
		METRIC(POINT_INSTRUCTION, "instructions"),
		METRIC(POINT_LOAD, "loads"),
		METRIC(POINT_STORE, "stores"),
		[TORTURE_LOADED] = {"loaded", "", "/Code", POINT_LOAD, SNIPPET_ADDRESS},
		[TORTURE_STORED] = {"stored", "", "/Code", POINT_STORE, SNIPPET_ADDRESS},
		[TORTURE_PAIRED] = {"activations", "", "/Code", POINT_ENTRY, SNIPPET_ENTER},
	};

	return &metrics[metric];
}

uint64_t torture_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

unsigned long torture_setting(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 0) : otherwise;
}

unsigned torture_pick(struct torture *t, unsigned below)
{
	t->seed = t->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(t->seed >> 33) % below;
}

/* ------------------------------------------------------- the target's own */

static void *peek(const struct torture *t, taddr_t address, size_t size)
{
	void *copy = malloc(size);

	assert_non_null(copy);
	thread_peek(t->h->pid, address, copy, size);
	return copy;
}

static void learn_truth(struct torture *t)
{
	unsigned long long n[6];

	harness_send(t->h, "truth\n");
	if (sscanf(harness_line(t->h, HARNESS_ANSWER_MS), "truth %llx %llx %llx %llx %llx %llx",
		   &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]) != 6)
		fail_msg("no truth: %s", t->h->line);
	t->low = n[0];
	t->size = n[1];
	for (int i = 0; i < 2; i++) {
		t->counts[i] = peek(t, n[2 + 2 * i], t->size * sizeof(uint32_t));
		t->edges[i] = peek(t, n[3 + 2 * i], TRACE_EDGES * sizeof(struct trace_edge));
	}
}

/* True if one of the globs in `list` (with commas between them) matches. */
static bool in_list(const char *list, const char *name)
{
	char glob[64];

	for (const char *p = list; p && *p; p += strspn(p, ",")) {
		size_t n = strcspn(p, ",");

		snprintf(glob, sizeof(glob), "%.*s", (int)n, p);
		if (!fnmatch(glob, name, 0))
			return true;
		p += n;
	}
	return false;
}

static void learn_functions(struct torture *t, const char *program)
{
	const struct image_function *functions;
	size_t count = image_functions(t->module->image, &functions);
	const char *only = getenv("TORTURE_ONLY"), *skip = getenv("TORTURE_SKIP");

	t->functions = calloc(count, sizeof(*t->functions));
	assert_non_null(t->functions);
	for (uint32_t i = 0; i < count; i++) {
		struct torture_function *f = &t->functions[t->function_count];

		if (strncmp(functions[i].name, "t_", 2) || functions[i].flags & FUNCTION_COLD ||
		    in_list(skip, functions[i].name) || (only && !in_list(only, functions[i].name)))
			continue;
		f->index = i;
		f->name = functions[i].name;
		assert_true(asprintf(&f->focus, "/Code/%s/%s", program, f->name) > 0);
		t->function_count++;
	}
	assert_true(t->function_count > 0);
}

void torture_ask(struct torture *t, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(t->h, text);
	assert_string_equal(harness_line(t->h, HARNESS_ANSWER_MS), answer);
}

void torture_rest(struct torture *t, uint64_t *rounds, uint64_t *slow)
{
	unsigned long long n[5];

	harness_send(t->h, "pause\n");
	if (sscanf(harness_line(t->h, HARNESS_ANSWER_MS), "paused %llu %llu %llu %llu %llu", &n[0],
		   &n[1], &n[2], &n[3], &n[4]) != 5)
		fail_msg("%s", t->h->line);
	*rounds = n[0] - t->rounds;
	*slow = n[1] - t->slow;
	t->rounds = n[0];
	t->slow = n[1];
	t->ends = n[2];
	t->signals = n[3];
	t->inside = n[4];
}

void torture_begin(struct torture *t, void **state, const char *program, const char *threads,
		   const char *how)
{
	uint64_t rounds, slow;

	*t = (struct torture){.h = *state};
	t->seed = torture_setting("TORTURE_SEED", (unsigned long)torture_now_ms());
	print_message("%s: seed %lu\n", program, (unsigned long)t->seed);
	harness_start(t->h, program, threads, how, NULL);
	learn_truth(t);
	t->s = session_begin(t->h);
	t->module = module_named(t->s->modules, program);
	assert_non_null(t->module);
	learn_functions(t, program);
	torture_rest(t, &rounds, &slow);
}

void torture_end(struct torture *t)
{
	if (t->s)
		session_end(t->s);
	torture_ask(t, "run 2", "done");
	harness_verify(t->h);
	harness_end(t->h, 0);
	for (int i = 0; i < 2; i++) {
		free(t->counts[i]);
		free(t->edges[i]);
	}
	for (size_t i = 0; i < t->function_count; i++)
		free(t->functions[i].focus);
	free(t->functions);
}

/* -------------------------------------------------------------- insertion */

static bool insert_foci(struct torture *t, const char *const *foci, size_t count, unsigned metric,
			bool each, unsigned *id)
{
	const struct raw_metric *m = torture_metric(metric);
	struct insert_result result = {0};
	struct dinst_error e = {0};
	int status;

	for (int tries = 0;; tries++) {
		dinst_error_clear(&e);
		status = request_insert_raw(t->s, m, foci, count, each, &result, &e);
		if (status != DINST_BUSY || tries > 100)
			break;
		usleep(10000);
	}
	if (status == DINST_REFUSED || status == DINST_NO_FUNCTION)
		return false;
	/* What the target itself says is more to the point than that it is gone. */
	if (status == DINST_GONE)
		fail_msg("inserting %s: %s", m->name, harness_line(t->h, 2000));
	if (status < 0)
		fail_msg("inserting %s at %s ...: %s (%s)", m->name, foci[0], e.text,
			 dinst_code_name(e.code));
	if (id)
		*id = result.instances[0]->id;
	free(result.instances);
	return true;
}

bool torture_insert(struct torture *t, const struct torture_function *const *functions,
		    size_t count, unsigned metric, bool each, unsigned *id)
{
	const char **foci;
	bool any;

	if (!functions)
		count = t->function_count;
	foci = calloc(count, sizeof(*foci));
	assert_non_null(foci);
	for (size_t i = 0; i < count; i++)
		foci[i] = functions ? functions[i]->focus : t->functions[i].focus;
	any = insert_foci(t, foci, count, metric, each, id);
	free(foci);
	return any;
}

void torture_remove_all(struct torture *t)
{
	while (t->s->instances)
		session_remove(t->s, t->s->instances->id);
	session_flush_all(t->s);
}

const struct instance *torture_instance(const struct torture *t, const char *focus, unsigned metric)
{
	for (const struct instance *i = t->s->instances; i; i = i->next)
		if (i->raw == torture_metric(metric) && !strcmp(i->focus, focus))
			return i;
	return NULL;
}

/* ------------------------------------------------------------ what is true */

/* An instruction of the target by its bytes in the file. */
static const uint8_t *code_at(const struct torture *t, taddr_t pc)
{
	size_t size;
	const uint8_t *code = image_code(t->module->image, pc - t->module->bias, &size);

	assert_non_null(code);
	return code;
}

static const uint8_t *skip_prefixes(const uint8_t *code)
{
	while (*code == 0x66 || *code == 0x67 || *code == 0x3e || *code == 0x2e || *code == 0x64 ||
	       *code == 0xf2 || *code == 0xf3 || (*code & 0xf0) == 0x40)
		code++;
	return code;
}

static bool is_return(const uint8_t *code)
{
	code = skip_prefixes(code);
	return *code == 0xc3 || *code == 0xc2;
}

static bool is_call(const uint8_t *code)
{
	code = skip_prefixes(code);
	return *code == 0xe8 || (*code == 0xff && (code[1] >> 3 & 7) == 2);
}

static bool is_endbr(const uint8_t *code)
{
	return !memcmp(code, "\xf3\x0f\x1e\xfa", 4);
}

/* The function that an address belongs to, the whole of it if it is a part; -1 if none. */
static long whole(const struct torture *t, taddr_t pc)
{
	const struct image_function *functions;
	long index = image_function_at(t->module->image, pc - t->module->bias);

	image_functions(t->module->image, &functions);
	return index < 0 ? index : (long)functions[index].parent;
}

struct passage {
	uint64_t at;	   /* times that the instruction ran */
	uint64_t entered;  /* ... control came to it from another function, by a call or a return */
	uint64_t returned; /* ... by a return */
	uint64_t left;	   /* times that a jump at it led out of its function */
	uint64_t to;	   /* times that `callee` came next */
};

static struct passage passage_at(const struct torture *t, int type, taddr_t pc, taddr_t callee)
{
	struct passage r = {0};
	long own = whole(t, pc);
	bool call = is_call(code_at(t, pc));

	r.at = t->counts[type][pc - t->low];
	r.returned = r.at;
	for (const struct trace_edge *e = t->edges[type]; e < t->edges[type] + TRACE_EDGES; e++) {
		if (!e->from)
			continue;
		if (e->to == pc) {
			const uint8_t *from = code_at(t, e->from);

			if (whole(t, e->from) != own || is_call(from) || is_return(from))
				r.entered += e->count;
			if (!is_return(from) && !is_call(from))
				r.returned -= e->count;
		}
		if (e->from == pc) {
			if (!call && (!e->to || whole(t, e->to) != own))
				r.left += e->count;
			if (e->to == callee)
				r.to += e->count;
		}
	}
	if (is_return(code_at(t, pc)))
		r.left = r.at;
	return r;
}

uint64_t torture_expect_at(const struct torture *t, int type, const struct point *p)
{
	taddr_t pc = p->address + t->module->bias;
	struct passage r;

	if (pc < t->low || pc >= t->low + t->size)
		return 0;
	r = passage_at(t, type, pc, p->callee + t->module->bias);
	switch (p->kind) {
	case POINT_ENTRY:
		/* Whoever calls it behind its endbr64 has called it. */
		return r.entered +
		       (is_endbr(code_at(t, pc)) ? passage_at(t, type, pc + 4, 0).entered : 0);
	case POINT_EXIT:
		return r.left;
	case POINT_AFTER:
		return r.returned;
	case POINT_EDGE:
		return r.to;
	default:
		return r.at;
	}
}

/* A call of what follows it, which is no function: it only asks where it is. */
static bool is_get_pc(const struct torture *t, taddr_t pc)
{
	const struct image_function *functions;
	vaddr_t next = pc - t->module->bias + 5;
	long index = image_function_at(t->module->image, next);

	image_functions(t->module->image, &functions);
	return !memcmp(code_at(t, pc), "\xe8\0\0\0", 5) &&
	       (index < 0 || functions[index].address != next);
}

/* All that ran in a function, found or not, of the kinds that can be told by the bytes. */
static void expect_all(const struct torture *t, const struct torture_function *f,
		       enum point_kind kind, struct torture_truth *x)
{
	for (int type = 0; type < 2; type++)
		for (size_t i = 0; i < t->size; i++) {
			taddr_t pc = t->low + i;

			if (!t->counts[type][i] || whole(t, pc) != (long)f->index)
				continue;
			if (kind == POINT_INSTRUCTION ||
			    (kind == POINT_CALL && is_call(code_at(t, pc)) && !is_get_pc(t, pc)))
				x->all[type] += t->counts[type][i];
			else if (kind == POINT_EXIT)
				x->all[type] += passage_at(t, type, pc, 0).left;
		}
}

static void say_point(const struct function_plan *plan, const struct torture_function *f,
		      const struct point *p)
{
	const struct window *w = p->window < 0 ? NULL : &plan->windows[p->window];

	if (!w)
		print_message("  refused: %s of %s at %#llx: %s\n", point_kind_name(p->kind),
			      f->name, (unsigned long long)p->address, refusal_name(p->refusal));
	else
		print_message(
			"  %s of %s at %#llx: %s, window %#llx + %u (%u), hole %#llx, host %#llx\n",
			point_kind_name(p->kind), f->name, (unsigned long long)p->address,
			tactic_name(p->tactic), (unsigned long long)w->start, w->length, w->padding,
			(unsigned long long)w->hole,
			w->host < 0 ? 0ull : (unsigned long long)plan->windows[w->host].start);
}

static uint64_t runs_of(const struct torture *t, const struct torture_function *f, int type)
{
	const struct image_function *functions;

	image_functions(t->module->image, &functions);
	return t->counts[type][functions[f->index].address + t->module->bias - t->low];
}

void torture_expect(const struct torture *t, const struct torture_function *f, enum point_kind kind,
		    struct torture_truth *x)
{
	const struct function_plan *plan;
	struct dinst_error e = {0};

	*x = (struct torture_truth){0};
	if (session_plan_for(t->s, t->module, f->index, kind, &plan, &e) < 0)
		fail_msg("plan of %s: %s", f->name, e.text);
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		x->undecoded |= p->refusal == REFUSAL_UNDECODED;
		if (p->kind != kind || p->part)
			continue;
		for (int type = 0; type < 2; type++) {
			uint64_t n = torture_expect_at(t, type, p);

			x->planned[type] += n;
			x->counted[type] += p->window >= 0 ? n : 0;
		}
		x->points++;
		x->refused += p->window < 0;
		if (getenv("TORTURE_VERBOSE"))
			say_point(plan, f, p);
	}
	x->exact = kind < POINT_LOOP_ENTRY || kind > POINT_LOOP_EXIT;
	/* How often their instructions ran depends on the scheduler. */
	if (!strcmp(f->name, "t_g_rseq") || !strcmp(f->name, "t_g_nanosleep"))
		x->exact = false;
	/* A trace ends every transaction, else most come to their last instruction. */
	if (!strcmp(f->name, "t_e_xbegin_next") &&
	    (kind == POINT_BLOCK || kind == POINT_EDGE || kind == POINT_INSTRUCTION))
		for (int type = 0; type < 2; type++)
			x->more[type] = runs_of(t, f, type);
	expect_all(t, f, kind, x);
}
