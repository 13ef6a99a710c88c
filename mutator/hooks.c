/* SPDX-License-Identifier: MIT */
/*
 * hooks.c - functions of the C library that need code of ours besides what somebody
 * asked for. One hidden instance for all of a kind, which each instance that
 * needs it holds on to:
 *
 *   ways out  while per-thread state is in use: they note the time, so that timers of
 *             what they leave stop then (threads.h). Where one cannot be instrumented,
 *             what is left by it is found at the next event
 *   filters   while code makes system calls: the process notes that it puts a
 *             filter on itself (threads_filters.c). Where one cannot be
 *             instrumented, that is seen when somebody looks (cost.c)
 *
 * So it is no failure where there is none.
 */
#include <stdlib.h>

#include "mutator/request.h"

static const struct raw_metric hook_metric = {
	.name = "ways out",
	.unit = "",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_PROGRAM,
};

static const struct raw_metric filter_metric = {
	.name = "filters",
	.unit = "",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_PROGRAM,
};

static bool uses_activations(const struct instance *i)
{
	if (i->pair_id_count)
		return true;
	for (size_t n = 0; n < i->flag_count; n++)
		if (i->flags[n]->pair_id_count)
			return true;
	return false;
}

/* Functions that have their hook: several names stand for one. */
enum { HOOKED_MAX = 64 };
struct hooked {
	taddr_t at[HOOKED_MAX];
	size_t count;
};

static bool is_new(struct hooked *hooked, const struct function_ref *f)
{
	const struct image_function *functions;
	taddr_t at;

	image_functions(f->module->image, &functions);
	at = functions[f->index].address + f->module->bias;
	for (size_t n = 0; n < hooked->count; n++)
		if (hooked->at[n] == at)
			return false;
	if (hooked->count < HOOKED_MAX)
		hooked->at[hooked->count++] = at;
	return true;
}

static int hook_function(struct request *r, struct instance *i, const char *name,
			 struct hooked *hooked, struct snippet_code *code, struct dinst_error *e)
{
	struct dinst_error ignored = {0};
	struct function_ref *functions = NULL;
	size_t count = 0;
	int status = 0;

	/* A program need not have all of them. */
	if (find_functions(r->session->modules, name, &functions, &count, &ignored) < 0)
		return 0;
	for (size_t n = 0; n < count && status >= 0; n++) {
		struct function_work w = {.function = functions[n], .raw = i->raw, .code = code};

		if (is_new(hooked, &functions[n]))
			status = request_function(r, i, &w, e);
	}
	free(functions);
	return status;
}

/* Where exceptions arrive. */
static int hook_landings(struct request *r, struct instance *i, struct dinst_error *e)
{
	struct hooked hooked = {.count = 0};
	struct arch_program program = {0};
	struct snippet_code *code;
	int status = threads_landing_program(&program, e);

	if (status < 0)
		return status;
	code = snippet_code_new(r->session, &program, NULL, 0);
	if (!code)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; threads_landings[n] && status >= 0; n++)
		status = hook_function(r, i, threads_landings[n], &hooked, code, e);
	snippet_code_unref(code);
	free(program.ops);
	return status;
}

/* The metric's name is the key: no focus has such a name. */
static struct instance *make_hidden(struct request *r, const struct raw_metric *metric,
				    struct dinst_error *e)
{
	struct instance *i = instance_new(r->session, metric->name, "", metric->name, e);

	if (!i)
		return NULL;
	i->raw = metric;
	i->has_key = true;
	instances_push(&r->hidden, i);
	return i;
}

static bool makes_calls(const struct arch_program *program)
{
	for (unsigned n = 0; n < program->count; n++)
		if (program->ops[n].kind == ARCH_OP_CLOCK &&
		    program->ops[n].number != ARCH_CLOCK_TICKS)
			return true;
	return false;
}

static struct snippet_code *code_of(struct request *r, struct arch_program *program,
				    struct dinst_error *e)
{
	struct snippet_code *code = snippet_code_new(r->session, program, NULL, 0);

	if (!code) {
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	code->system_calls = makes_calls(program);
	return code;
}

static int make(struct request *r, struct arch_program *program, struct instance **out,
		struct dinst_error *e)
{
	struct instance *i = make_hidden(r, &hook_metric, e);
	struct hooked hooked = {.count = 0};
	struct snippet_code *code;
	int status = 0;

	*out = i;
	if (!i)
		return DINST_NO_MEMORY;
	code = code_of(r, program, e);
	if (!code)
		return DINST_NO_MEMORY;
	for (size_t n = 0; threads_hooks[n] && status >= 0; n++)
		status = hook_function(r, i, threads_hooks[n], &hooked, code, e);
	snippet_code_unref(code);
	return status < 0 ? status : hook_landings(r, i, e);
}

/* What the hooks do now is too little where CPU time is asked for: they do more from then on. */
static int extend(struct request *r, struct instance *hook, struct arch_program *program,
		  struct dinst_error *e)
{
	const struct snippet_code *now = NULL;
	struct snippet_code *code;

	for (const struct link *l = hook->links; l && !now; l = l->next_instance)
		if (l->snippet.code && !threads_is_landing(&l->snippet.code->program))
			now = l->snippet.code;
	if (!now || now->program.count >= program->count)
		return 0;
	code = code_of(r, program, e);
	if (!code)
		return DINST_NO_MEMORY;
	for (struct link *l = hook->links; l; l = l->next_instance)
		if (l->snippet.code && !threads_is_landing(&l->snippet.code->program))
			site_replace_code(r->session, l, code);
	snippet_code_unref(code);
	/* Where there is no memory for it the old code stays until there is. */
	site_update_all(r->session);
	return 0;
}

/* ----------------------------------------------------------------- filters */

static int hook_taker(struct request *r, struct instance *hook, size_t n, struct hooked *hooked,
		      struct dinst_error *e)
{
	struct arch_program program = {0};
	struct snippet_code *code;
	int status = threads_filter_program(r->session, n, &program, e);

	if (status < 0)
		return status;
	code = code_of(r, &program, e);
	status = code ? hook_function(r, hook, threads_filter_functions[n], hooked, code, e)
		      : DINST_NO_MEMORY;
	snippet_code_unref(code);
	free(program.ops);
	return status;
}

static int hook_filters(struct request *r, struct instance *i, struct dinst_error *e)
{
	struct instance *hook = request_find_hidden(r, filter_metric.name);
	struct hooked hooked = {.count = 0};
	int status = 0;

	if (!i->flags)
		i->flags = calloc(INSTANCE_HOOKS, sizeof(*i->flags));
	if (!i->flags)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (hook) {
		hook->references++;
		i->flags[i->flag_count++] = hook;
		return 0;
	}
	hook = make_hidden(r, &filter_metric, e);
	if (!hook)
		return DINST_NO_MEMORY;
	i->flags[i->flag_count++] = hook;
	for (size_t n = 0; threads_filter_functions[n] && status >= 0; n++)
		status = hook_taker(r, hook, n, &hooked, e);
	return status;
}

/* --------------------------------------------------------------- ways out */

/*
 * They may make system calls, whatever the instance itself does and for as long as anybody needs
 * them: so they hold on to the filters' hook themselves. Where the target may not, there are none.
 */
static int hook_ways_out(struct request *r, struct instance *i, struct dinst_error *e)
{
	struct arch_program program = {0};
	struct dinst_error ignored = {0};
	struct instance *hook = NULL;
	int status = threads_hook_program(r->session, &program, e);
	const bool calls = status >= 0 && makes_calls(&program);

	if (status < 0 || (calls && threads_may_call(r->session, &ignored) <= 0))
		goto out;
	hook = request_find_hidden(r, hook_metric.name);
	if (hook) {
		hook->references++;
		status = extend(r, hook, &program, e);
	} else {
		status = make(r, &program, &hook, e);
	}
	if (hook) {
		i->flags[i->flag_count++] = hook;
		if (status >= 0 && calls && !hook->flag_count)
			status = hook_filters(r, hook, e);
	}
out:
	free(program.ops);
	return status;
}

int request_hook(struct request *r, struct instance *i, struct dinst_error *e)
{
	int status = 0;

	/* One that uses another's instrumentation has nothing of its own. */
	if (i->source || !i->plan)
		return 0;
	if (r->session->threads && instance_makes_calls(i))
		status = hook_filters(r, i, e);
	if (status >= 0 && uses_activations(i))
		status = hook_ways_out(r, i, e);
	return status;
}
