/* SPDX-License-Identifier: MIT */
/*
 * request.c - from what a user asks for to instances.
 *
 * A request makes one instance for each plan that the metric and its foci come
 * to (evaluate.h), or for raw metrics one per focus, or with `each` one per
 * function. All instances of a request go in together, and if anything fails
 * nothing of the request stays. Points that cannot be instrumented are listed
 * with the instance and do not fail it, unless there is no other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"

/* -------------------------------------------------------------- requests */

struct instance *request_add_instance(struct request *r, const char *metric, const char *unit,
				      const char *focus, struct dinst_error *e)
{
	struct instance *i;

	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		struct instance **instances = realloc(r->instances, room * sizeof(*instances));

		if (!instances) {
			dinst_fail(e, DINST_NO_MEMORY, "out of memory");
			return NULL;
		}
		r->instances = instances;
		r->room = room;
	}
	i = instance_new(r->session, metric, unit, focus, e);
	if (i)
		r->instances[r->count++] = i;
	return i;
}

static int begin(struct session *s, struct insert_result *result, struct dinst_error *e)
{
	int status = session_check(s, e);

	*result = (struct insert_result){0};
	session_look_at_shadows(s);
	return status < 0 ? status : session_update_modules(s, e);
}

/* Instances without a single point are no use: the request says why and keeps the others. */
static int check_points(const struct request *r, struct dinst_error *e)
{
	const struct instance *last = NULL;

	for (size_t n = 0; n < r->count; n++) {
		if (r->instances[n]->link_count || r->instances[n]->waiting ||
		    r->instances[n]->source)
			return 0;
		last = r->instances[n];
	}
	if (last && last->refused_count)
		return dinst_fail(e, DINST_REFUSED, "%s: %s (%s)%s", last->refused[0].where,
				  last->refused[0].why ? last->refused[0].why
						       : refusal_text(last->refused[0].refusal),
				  refusal_name(last->refused[0].refusal),
				  r->count > 1 || last->refused_count > 1 ? ", and all others"
									  : "");
	if (last && last->left_out_count)
		return dinst_fail(e, DINST_REFUSED, "%s: %s%s", last->left_out[0].where,
				  last->left_out[0].why,
				  last->left_out_count > 1 ? ", and all others" : "");
	return dinst_fail(e, DINST_NO_FUNCTION, "nothing to measure: no function matches");
}

static void give_numbers(struct request *r)
{
	uint64_t switches;
	bool timed = false;

	for (size_t n = 0; n < r->count; n++) {
		instances_number(r->session, r->instances[n]);
		r->instances[n]->since_ns = clock_ns();
		timed = timed || instance_source(r->instances[n])->switch_ps;
	}
	switches = timed ? session_switches(r->session, true) : r->session->switches;
	for (size_t n = 0; n < r->count; n++)
		r->instances[n]->since_switches = r->instances[n]->seen_switches = switches;
}

/* The end of a request of which everything is prepared, or `status` says why not. */
static int finish(struct request *r, int status, struct insert_result *result,
		  struct dinst_error *e)
{
	for (size_t n = 0; status >= 0 && n < r->count; n++)
		status = request_hook(r, r->instances[n], e);
	if (status >= 0)
		status = request_write(r, NULL, e);
	if (status >= 0)
		status = check_points(r, e);
	if (status >= 0)
		status = request_commit(r, e);
	/* Some may have turned out to be somebody else's. */
	if (status >= 0)
		status = check_points(r, e);
	if (status < 0) {
		request_undo(r, NULL);
		free(r->instances);
	} else {
		request_adopt(r);
		give_numbers(r);
		result->instances = r->instances;
		result->count = r->count;
		result->stop_ns = r->stop_ns;
	}
	request_release(r);
	return status;
}

/* ----------------------------------------------------------- raw metrics */

static int check_focus(const struct raw_metric *m, const char *focus, struct dinst_error *e)
{
	if (focus[0] != '/' || !strcmp(focus, "/Code") || !strncmp(focus, "/Code/", 6))
		return 0;
	return dinst_fail(e, DINST_USAGE,
			  "%s cannot be constrained by %s: it takes a focus below %s, for example "
			  "/Code/libc.so.6/malloc",
			  m->name, focus, m->constraints);
}

static void name_of(const struct function_ref *f, char *text, size_t size)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	snprintf(text, size, "/Code/%s/%s", f->module->name, functions[f->index].name);
}

int request_find(const struct session *s, const char *focus, struct function_ref **functions,
		 size_t *count, struct dinst_error *e)
{
	return focus[0] == '/' ? find_resource(s->modules, focus, functions, count, e)
			       : find_functions(s->modules, focus, functions, count, e);
}

/*
 * A shared object that is not mapped may still come (dlopen, or a program that
 * has only just been started); any other unknown name is a mistake.
 */
static bool may_come(const char *focus)
{
	const char *module = focus + strlen("/Code/");
	size_t size;

	if (strncmp(focus, "/Code/", strlen("/Code/")))
		return false;
	size = strcspn(module, "/");
	return memmem(module, size, ".so", 3) && !memchr(module, '*', size);
}

static int prepare_raw(struct request *r, const struct raw_metric *m, const char *focus, bool each,
		       struct dinst_error *e)
{
	struct function_ref *functions = NULL;
	struct instance *i = NULL;
	size_t count = 0;
	int status = check_focus(m, focus, e);

	if (status < 0)
		return status;
	status = request_find(r->session, focus, &functions, &count, e);
	if (status == DINST_NO_MODULE && may_come(focus)) {
		dinst_error_clear(e);
		i = request_add_instance(r, m->name, m->unit, focus, e);
		if (!i)
			return DINST_NO_MEMORY;
		i->raw = m;
		i->waiting = r->session->maybe_pending = true;
		return 0;
	}
	for (size_t n = 0; status >= 0 && n < count; n++) {
		struct function_work w = {.function = functions[n], .raw = m};
		char name[1024];

		if (n % 1024 == 0 && count > 1024)
			session_progress(r->session, "preparing functions", n, count);
		if (each)
			name_of(&functions[n], name, sizeof(name));
		if (each || !i)
			i = request_add_instance(r, m->name, m->unit, each ? name : focus, e);
		if (i)
			i->raw = m;
		status = i ? request_function(r, i, &w, e) : DINST_NO_MEMORY;
	}
	free(functions);
	return status;
}

static void forget_crowded(struct session *s)
{
	for (struct place *p = s->places; p; p = p->next)
		p->crowded = false;
}

/* True where one more place has turned out to be crowded; *known: how many have. */
static bool is_begun_anew(struct session *s, int status, unsigned *known, struct dinst_error *e)
{
	unsigned count = 0;

	for (const struct place *p = s->places; p; p = p->next)
		count += p->crowded;
	if (status == DINST_NO_MEMORY && count > *known) {
		*known = count;
		dinst_error_clear(e);
		return true;
	}
	forget_crowded(s);
	return false;
}

static int insert_raw_once(struct session *s, const struct raw_metric *metric,
			   const char *const *foci, size_t focus_count, bool each,
			   struct insert_result *result, struct dinst_error *e)
{
	struct request r = {.session = s};
	int status = begin(s, result, e);

	if (status < 0)
		return status;
	s->holding = true;
	for (size_t n = 0; status >= 0 && n < focus_count; n++)
		status = prepare_raw(&r, metric, foci[n], each, e);
	if (status >= 0 && !focus_count)
		status = prepare_raw(&r, metric, "/Code", each, e);
	return finish(&r, status, result, e);
}

int request_insert_raw(struct session *s, const struct raw_metric *metric, const char *const *foci,
		       size_t focus_count, bool each, struct insert_result *result,
		       struct dinst_error *e)
{
	unsigned crowded = 0;
	int status;

	forget_crowded(s);
	do
		status = insert_raw_once(s, metric, foci, focus_count, each, result, e);
	while (is_begun_anew(s, status, &crowded, e));
	return status;
}

/* ------------------------------------------------------------------- MDL */

/* What it was worth when this one began; where it cannot be read it counts from the start. */
static int keep_bases(struct instance *i, struct dinst_error *e)
{
	struct instance *source = i->source;
	const unsigned elements = source->variable_count ? source->variables[0]->elements : 0;

	/* A level is what is there now, whoever asks. */
	if (!elements || source->plan->metric->style == MDL_SAMPLED_FUNCTION ||
	    source->variables[0]->form == VARIABLE_LEVEL ||
	    source->variables[0]->form == VARIABLE_FLAG)
		return 0;
	i->bases = calloc(elements, sizeof(*i->bases));
	if (!i->bases)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	i->base_count = elements;
	if (source->variables[0]->form == VARIABLE_DISTRIBUTION) {
		int status = 0;

		for (unsigned n = 0; n < elements && status >= 0; n++)
			status =
				variable_read(i->session, source->variables[0], n, &i->bases[n], e);
		return status;
	}
	return instance_read_bases(i, e);
}

/* Likewise how often its code was reached, and keys had no place. */
static void keep_counts(struct instance *i)
{
	uint64_t hits;

	instance_hits(i, &hits);
	i->base_hits = hits;
	i->base_full = i->source->table ? variable_full(i->source->table) : 0;
}

/* One plan: an instance of its own, or one more name for what is there. */
static int prepare_plan(struct request *r, struct plan_set *set, const struct mdl_plan *plan,
			struct dinst_error *e)
{
	struct instance *same = plan->waits_for ? NULL : request_find_same(r, plan);
	struct instance *i =
		request_add_instance(r, plan->metric->id, plan->metric->units, plan->focus, e);

	if (!i)
		return DINST_NO_MEMORY;
	if (plan->waits_for) {
		i->waiting = r->session->maybe_pending = true;
		return 0;
	}
	if (!same)
		return request_plan(r, i, set, plan, e);
	same->references++;
	i->source = same;
	keep_counts(i);
	return keep_bases(i, e);
}

static struct plan_set *evaluate(struct session *s, const char *metric, const char *const *words,
				 size_t word_count, bool each, struct dinst_error *e)
{
	struct plan_set *set = calloc(1, sizeof(*set));

	if (!set) {
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	set->references = 1;
	mdl_reader_enter(s->library, &set->reader);
	if (mdl_evaluate(s, s->library, metric, words, word_count, each, &set->plans, &set->count,
			 e) >= 0)
		return set;
	mdl_reader_leave(&set->reader);
	free(set);
	return NULL;
}

static void release(struct plan_set *set)
{
	if (--set->references)
		return;
	mdl_plans_free(set->plans, set->count);
	mdl_reader_leave(&set->reader);
	free(set);
}

static int insert_try(struct session *s, const char *metric, const char *const *words,
		      size_t word_count, const struct insert_options *options,
		      struct insert_result *result, struct dinst_error *e)
{
	struct request r = {.session = s, .options = options};
	struct plan_set *set;
	int status;

	status = begin(s, result, e);
	if (status < 0)
		return status;
	set = evaluate(s, metric, words, word_count, options && options->each, e);
	if (!set)
		return e->code ? e->code : DINST_FAILED;
	s->holding = true;
	for (size_t n = 0; status >= 0 && n < set->count; n++)
		status = prepare_plan(&r, set, &set->plans[n], e);
	status = finish(&r, status, result, e);
	release(set);
	return status;
}

static int insert_once(struct session *s, const char *metric, const char *const *words,
		       size_t word_count, const struct insert_options *options,
		       struct insert_result *result, struct dinst_error *e)
{
	unsigned crowded = 0;
	int status;

	forget_crowded(s);
	do
		status = insert_try(s, metric, words, word_count, options, result, e);
	while (is_begun_anew(s, status, &crowded, e));
	return status;
}

int request_insert(struct session *s, const char *metric, const char *const *words,
		   size_t word_count, const struct insert_options *options,
		   struct insert_result *result, struct dinst_error *e)
{
	struct dinst_error own = {0}, ignored = {0};
	const bool queued = s->queue_length;
	struct flush_result flush;
	int status;

	e = e ? e : &own;
	s->half_patched = false;
	status = insert_once(s, metric, words, word_count, options, result, e);
	/*
	 * What a child runs through may be nobody's any more: the windows are taken out, there too, or were
	 * when this one failed.
	 */
	if (status != DINST_REFUSED || !s->half_patched || (!queued && !s->queue_length) ||
	    removal_flush(s, &flush, &ignored) < 0)
		return status;
	dinst_error_clear(e);
	return insert_once(s, metric, words, word_count, options, result, e);
}

/* ----------------------------------------------------- what has waited */

enum { WORDS_MAX = 16 };

/* The words of a focus, which `text` is cut into. */
static size_t split(char *text, const char **words)
{
	size_t count = 0;

	for (char *at = text; at && count < WORDS_MAX;) {
		char *next = strstr(at, " /");

		words[count++] = at;
		if (next)
			*next++ = '\0';
		at = next;
	}
	return count;
}

static int begin_plan(struct request *r, struct instance *i, struct dinst_error *e)
{
	const char *words[WORDS_MAX];
	char *text = strdup(i->focus);
	struct plan_set *set;
	int status;

	if (!text)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	set = evaluate(r->session, i->metric, words, split(text, words), false, e);
	free(text);
	if (!set)
		return e->code ? e->code : DINST_FAILED;
	i->waiting = set->plans[0].waits_for != NULL;
	status = i->waiting ? 0 : request_plan(r, i, set, &set->plans[0], e);
	release(set);
	return status;
}

static int begin_raw(struct request *r, struct instance *i, struct dinst_error *e)
{
	struct function_ref *functions = NULL;
	size_t count = 0;
	int status = request_find(r->session, i->focus, &functions, &count, e);

	i->waiting = status < 0;
	for (size_t n = 0; status >= 0 && n < count; n++) {
		struct function_work w = {.function = functions[n], .raw = i->raw};

		status = request_function(r, i, &w, e);
	}
	free(functions);
	return status;
}

int request_begin(struct session *s, struct instance *i, size_t *began, struct dinst_error *e)
{
	const struct insert_options options = {.cost = i->wants_cost, .limit = i->limit};
	struct request r = {.session = s, .options = &options, .begun = i};
	struct dinst_error ignored = {0};
	struct flush_result flush;
	int status;

	s->half_patched = false;
	session_look_at_shadows(s);
	/* It stays in the session's list, whatever comes of it. */
	s->holding = true;
	status = i->raw ? begin_raw(&r, i, e) : begin_plan(&r, i, e);
	if (status >= 0 && !i->waiting) {
		status = request_hook(&r, i, e);
		if (status >= 0)
			status = request_write(&r, i, e);
		if (status >= 0)
			status = request_commit(&r, e);
		if (status >= 0)
			*began += r.site_count;
	}
	if (status < 0) {
		request_undo(&r, i);
		i->waiting = true;
		/* As request_insert(): what halves are there may be nobody's, and gone when it is tried again. */
		if (status == DINST_REFUSED && s->half_patched)
			removal_flush(s, &flush, &ignored);
	} else {
		/* Until then what is new in it goes elsewhere, when it is tried again. */
		forget_crowded(s);
		request_adopt(&r);
	}
	request_release(&r);
	return status;
}
