/* SPDX-License-Identifier: MIT */
/*
 * evaluate_focus.c - from the words of a request to foci: what each word names
 * in this target, and which words belong together.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum { EXPANDED_MAX = 1 << 20 };

bool is_pattern(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

/* ------------------------------------------------------------- hierarchies */

static const char *const hierarchies[] = {"Code", "Process", "SyncObject", "File", "Machine"};
enum { HIERARCHIES = sizeof(hierarchies) / sizeof(hierarchies[0]) };

/* The library may have constraints of hierarchies of its own. */
static const char *known_hierarchy(const struct evaluation *v, const char *name, size_t length)
{
	const struct mdl_constraint *c;

	for (size_t i = 0; i < HIERARCHIES; i++)
		if (strlen(hierarchies[i]) == length && !memcmp(hierarchies[i], name, length))
			return hierarchies[i];
	for (const struct mdl_use *u = v->metric->uses; u; u = u->next) {
		c = mdl_used_constraint(v->l, u);
		if (c && strlen(c->path[0]) == length && !memcmp(c->path[0], name, length))
			return c->path[0];
	}
	return NULL;
}

static int no_hierarchy(const struct evaluation *v, const char *word, size_t length)
{
	char name[64];
	const char *near;

	snprintf(name, sizeof(name), "%.*s", (int)(length < 60 ? length : 60), word + 1);
	near = mdl_nearest(name, hierarchies, HIERARCHIES);
	if (near)
		return dinst_fail(v->e, DINST_USAGE,
				  "there is no hierarchy '/%s'; did you mean '/%s'?", name, near);
	return dinst_fail(v->e, DINST_USAGE,
			  "there is no hierarchy '/%s'; there are /Code, /Process, /SyncObject, "
			  "/File and /Machine",
			  name);
}

/* ---------------------------------------------------------------- words */

static int add_part(const struct evaluation *v, struct mdl_resource *r, const char *part,
		    size_t length)
{
	char *copy;

	if (r->part_count == MDL_PATH_MAX)
		return dinst_fail(v->e, DINST_USAGE, "the focus has more than %d parts",
				  MDL_PATH_MAX);
	copy = mdl_print(v->memory, v->e, "%.*s", (int)length, part);
	if (!copy)
		return DINST_NO_MEMORY;
	r->parts[r->part_count++] = copy;
	return 0;
}

/* True if constraints of the metric know a kind of that name: /File/Socket. */
static bool is_kind(const struct evaluation *v, const char *hierarchy, const char *name,
		    size_t length)
{
	for (const struct mdl_use *u = v->metric->uses; u; u = u->next) {
		const struct mdl_constraint *c = mdl_used_constraint(v->l, u);

		if (c && c->path_count > 1 && !strcmp(c->path[0], hierarchy) &&
		    strlen(c->path[1]) == length && !memcmp(c->path[1], name, length))
			return true;
	}
	return false;
}

/* "/Hierarchy/a/b": at most `most` parts, the last takes the rest with its slashes. */
static int split(const struct evaluation *v, const char *word, struct mdl_resource *r)
{
	const size_t length = strcspn(word + 1, "/");
	const char *rest = word + 1 + length;
	size_t most = MDL_PATH_MAX;
	int status = 0;

	r->hierarchy = known_hierarchy(v, word + 1, length);
	if (!r->hierarchy)
		return no_hierarchy(v, word, length);
	if (!strcmp(r->hierarchy, "Code"))
		most = 2;
	else if (!strcmp(r->hierarchy, "Process") || !strcmp(r->hierarchy, "Machine"))
		most = 1;
	else if (!strcmp(r->hierarchy, "File"))
		most = *rest && is_kind(v, r->hierarchy, rest + 1, strcspn(rest + 1, "/")) ? 2 : 1;
	while (*rest && status >= 0) {
		size_t n;

		rest++;
		n = r->part_count + 1 == most ? strlen(rest) : strcspn(rest, "/");
		if (!n && rest[n])
			return dinst_fail(v->e, DINST_USAGE, "a part of '%.120s' is empty", word);
		if (n)
			status = add_part(v, r, rest, n);
		rest += n;
	}
	return status;
}

/*
 * A shared object that is not mapped may still come (dlopen, or a program that
 * has only just been started); any other unknown name is a mistake.
 */
bool module_may_come(const char *module)
{
	return strstr(module, ".so") && !is_pattern(module);
}

/* ----------------------------------------------------------------- code */

static int keep_functions(struct evaluation *v, struct focus_resource *r,
			  const struct function_ref *found, size_t count)
{
	r->functions = mdl_keep(v->memory, found, count, sizeof(*found), v->e);
	r->function_count = count;
	r->value = (struct value){
		.kind = VALUE_FUNCTIONS, .functions = r->functions, .count = r->function_count};
	return r->functions ? 0 : DINST_NO_MEMORY;
}

/* /Code/MODULE: the modules of what was found. */
static int keep_modules(struct evaluation *v, struct focus_resource *r)
{
	struct module **list =
		mdl_alloc(v->memory, module_count(v->s->modules), sizeof(*list), v->e);
	size_t count = 0;

	if (!list)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < r->function_count; i++)
		if (!i || r->functions[i].module != r->functions[i - 1].module)
			list[count++] = r->functions[i].module;
	r->value = (struct value){.kind = VALUE_MODULES, .modules = list, .count = count};
	return 0;
}

/* /Code/MODULE/FUNCTION/BLOCK, where what is before the last slash is a function. */
static int find_block(struct evaluation *v, struct focus_resource *r, bool *found)
{
	struct dinst_error ignored = {0};
	struct mdl_resource *path = &r->resource;
	const char *slash = path->part_count == 2 ? strrchr(path->parts[1], '/') : NULL;
	struct function_ref *functions;
	const struct site_ref *blocks;
	size_t count, block_count;
	char *shorter;
	int status;

	*found = false;
	if (!slash || slash == path->parts[1] || !slash[1])
		return 0;
	shorter = mdl_print(v->memory, v->e, "/Code/%s/%.*s", path->parts[0],
			    (int)(slash - path->parts[1]), path->parts[1]);
	if (!shorter)
		return DINST_NO_MEMORY;
	if (find_resource(v->s->modules, shorter, &functions, &count, &ignored) < 0)
		return 0;
	if (count != 1) {
		free(functions);
		return dinst_fail(v->e, DINST_USAGE, "%.120s: blocks are of one function", r->text);
	}
	status = keep_functions(v, r, functions, count);
	free(functions);
	if (status >= 0)
		status = blocks_of(v, &r->functions[0], slash + 1, &blocks, &block_count);
	if (status < 0)
		return status;
	if (!block_count)
		return dinst_fail(
			v->e, DINST_NO_FUNCTION,
			"%.120s: no block begins there; `dinst points --kinds block` lists "
			"their addresses",
			r->text);
	r->value = (struct value){
		.kind = VALUE_CALLS, .point = POINT_BLOCK, .sites = blocks, .count = block_count};
	path->part_count = 3;
	path->parts[2] = slash + 1;
	path->parts[1] = strrchr(shorter, '/') + 1;
	*found = true;
	return 0;
}

static int find_code(struct evaluation *v, struct focus_resource *r, bool bare)
{
	struct function_ref *functions = NULL;
	bool is_block = false;
	size_t count = 0;
	int status;

	if (!bare && !r->resource.part_count)
		return 0;
	if (!bare) {
		status = find_block(v, r, &is_block);
		if (status < 0 || is_block)
			return status;
	}
	status = bare ? find_functions(v->s->modules, r->text, &functions, &count, v->e)
		      : find_resource(v->s->modules, r->text, &functions, &count, v->e);
	if (status == DINST_NO_MODULE && !bare && module_may_come(r->resource.parts[0])) {
		dinst_error_clear(v->e);
		r->waits_for = mdl_print(v->memory, v->e, "%s", r->resource.parts[0]);
		r->value.kind = r->resource.part_count == 1 ? VALUE_MODULES : VALUE_FUNCTIONS;
		return r->waits_for ? 0 : DINST_NO_MEMORY;
	}
	if (status < 0)
		return status;
	status = keep_functions(v, r, functions, count);
	free(functions);
	if (status >= 0 && r->resource.part_count == 1)
		status = keep_modules(v, r);
	return status;
}

/* A name without a hierarchy is a function: "malloc", "libc.so.6:malloc", "a+0x10", "0x4010". */
static int name_bare(struct evaluation *v, struct focus_resource *r)
{
	r->resource.hierarchy = hierarchies[0];
	r->resource.parts[0] = "*";
	r->resource.parts[1] = r->text;
	r->resource.part_count = 2;
	return find_code(v, r, true);
}

static bool is_code(const struct focus_resource *r)
{
	return r->resource.hierarchy == hierarchies[0];
}

/* True if the metric has a constraint for single procedures. */
static bool takes_procedures(const struct evaluation *v)
{
	const struct mdl_resource any = {
		.hierarchy = hierarchies[0], .parts = {"*", "*"}, .part_count = 2};

	for (const struct mdl_use *u = v->metric->uses; u; u = u->next) {
		const struct mdl_constraint *c = mdl_used_constraint(v->l, u);

		if (c && constraint_matches(c, &any))
			return true;
	}
	return false;
}

/* One resource for each function of r. */
static int each_function(struct evaluation *v, const struct focus_resource *r,
			 struct focus_resource **out, size_t *count)
{
	struct focus_resource *list = mdl_alloc(v->memory, r->function_count, sizeof(*list), v->e);

	if (!list)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < r->function_count; i++) {
		const struct function_ref *f = &r->functions[i];
		struct focus_resource *to = &list[i];
		const char *name = function_name(f);

		to->resource = (struct mdl_resource){
			.hierarchy = hierarchies[0],
			.parts = {f->module->name, name},
			.part_count = 2,
		};
		to->text = mdl_print(v->memory, v->e, "/Code/%s/%s", f->module->name, name);
		if (!to->text)
			return DINST_NO_MEMORY;
		to->functions = f;
		to->function_count = 1;
		to->value = (struct value){.kind = VALUE_FUNCTIONS, .functions = f, .count = 1};
	}
	*out = list;
	*count = r->function_count;
	return 0;
}

static int each_module(struct evaluation *v, const struct focus_resource *r,
		       struct focus_resource **out, size_t *count)
{
	struct focus_resource *list = mdl_alloc(v->memory, r->value.count, sizeof(*list), v->e);
	size_t at = 0;

	for (size_t i = 0; list && i < r->value.count; i++) {
		struct focus_resource *to = &list[i];
		struct module *m = r->value.modules[i];

		to->resource = (struct mdl_resource){
			.hierarchy = hierarchies[0], .parts = {m->name}, .part_count = 1};
		to->text = mdl_print(v->memory, v->e, "/Code/%s", m->name);
		if (!to->text)
			return DINST_NO_MEMORY;
		to->functions = r->functions + at;
		while (at < r->function_count && r->functions[at].module == m)
			at++;
		to->function_count = (size_t)(r->functions + at - to->functions);
		to->value = (struct value){
			.kind = VALUE_MODULES, .modules = &r->value.modules[i], .count = 1};
	}
	*out = list;
	*count = r->value.count;
	return list ? 0 : DINST_NO_MEMORY;
}

/* With --each a part of the code stands for each of its functions. */
static int each_of_code(struct evaluation *v, struct focus_resource *r, struct focus_resource **out,
			size_t *count)
{
	int status = 0;

	if (r->waits_for || r->resource.part_count > 2) {
		*out = r;
		*count = 1;
		return 0;
	}
	if (!r->resource.part_count) {
		struct value all;

		status = all_procedures(v, &all);
		if (status < 0)
			return status;
		r->functions = all.functions;
		r->function_count = all.count;
	}
	if (r->resource.part_count == 1 && !takes_procedures(v))
		return each_module(v, r, out, count);
	return each_function(v, r, out, count);
}

/* ----------------------------------------------------------------- foci */

struct foci {
	struct focus *items;
	size_t count, room;
};

static int add_focus(struct evaluation *v, struct foci *f, const struct focus *like)
{
	if (f->count == EXPANDED_MAX)
		return dinst_fail(v->e, DINST_USAGE, "these are more than %d foci", EXPANDED_MAX);
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 8;
		void *more = reallocarray(f->items, room, sizeof(*f->items));

		if (!more)
			return no_memory(v->e);
		f->items = more;
		f->room = room;
	}
	f->items[f->count++] = *like;
	return 0;
}

static size_t place_of(const struct focus *f, const struct focus_resource *r)
{
	size_t i = 0;

	while (i < f->count && strcmp(f->resources[i]->resource.hierarchy, r->resource.hierarchy))
		i++;
	return i;
}

/* A word: for the foci that say nothing of its hierarchy, or a focus of its own. */
static int add_word(struct evaluation *v, struct foci *f, const struct focus_resource *r)
{
	struct focus copy;
	size_t at;

	if (!f->count) {
		const struct focus first = {.resources = {r}, .count = 1};

		return add_focus(v, f, &first);
	}
	copy = f->items[f->count - 1];
	at = place_of(&copy, r);
	if (at < copy.count) {
		copy.resources[at] = r;
		return add_focus(v, f, &copy);
	}
	if (copy.count == FOCUS_MAX)
		return dinst_fail(v->e, DINST_USAGE, "a focus has too many hierarchies");
	for (size_t i = 0; i < f->count; i++) {
		struct focus *to = &f->items[i];

		if (place_of(to, r) == to->count && to->count < FOCUS_MAX)
			to->resources[to->count++] = r;
	}
	return 0;
}

static int read_word(struct evaluation *v, const char *word, struct focus_resource **out)
{
	struct focus_resource *r = mdl_alloc(v->memory, 1, sizeof(*r), v->e);
	int status;

	if (!r)
		return DINST_NO_MEMORY;
	*out = r;
	r->text = mdl_print(v->memory, v->e, "%s", word);
	if (!r->text)
		return DINST_NO_MEMORY;
	if (!*word)
		return dinst_fail(v->e, DINST_USAGE, "a word of the focus is empty");
	if (*word != '/')
		return name_bare(v, r);
	status = split(v, r->text, &r->resource);
	return status >= 0 && is_code(r) ? find_code(v, r, false) : status;
}

/* What a word stands for: one resource, or with `each` one for each that it matches. */
static int expand(struct evaluation *v, struct focus_resource *r, bool each,
		  struct focus_resource **out, size_t *count)
{
	int status;

	if (is_code(r) && each)
		return each_of_code(v, r, out, count);
	if (is_code(r) || !r->resource.part_count) {
		*out = r;
		*count = 1;
		return 0;
	}
	/* Whatever it names: where the metric cannot take it there is no need to look. */
	status = resource_check(v, r);
	return status < 0 ? status : resource_find(v, r, each, out, count);
}

/* A focus for each combination of what its words stand for. */
static int expand_focus(struct evaluation *v, const struct focus *f, bool each, struct foci *out)
{
	struct focus_resource *found[FOCUS_MAX];
	size_t counts[FOCUS_MAX] = {0}, turn[FOCUS_MAX] = {0}, i;
	int status = 0;

	for (i = 0; i < f->count && status >= 0; i++)
		status = expand(v, (struct focus_resource *)f->resources[i], each, &found[i],
				&counts[i]);
	for (i = 0; i < f->count && status >= 0; i++)
		if (!counts[i])
			return 0;
	while (status >= 0) {
		struct focus one = {.count = f->count};

		for (i = 0; i < f->count; i++)
			one.resources[i] = &found[i][turn[i]];
		status = add_focus(v, out, &one);
		for (i = f->count; i > 0 && ++turn[i - 1] == counts[i - 1]; i--)
			turn[i - 1] = 0;
		if (!i)
			break;
	}
	return status;
}

static size_t rank_of(const struct focus_resource *r)
{
	size_t i = 0;

	while (i < HIERARCHIES && strcmp(hierarchies[i], r->resource.hierarchy))
		i++;
	return i;
}

/* The same in whatever order it was said; code, which may be a bare name, first. */
static void normalize(struct focus *f)
{
	for (size_t i = 1; i < f->count; i++)
		for (size_t k = i; k > 0; k--) {
			const struct focus_resource *swap = f->resources[k - 1];

			if (rank_of(swap) <= rank_of(f->resources[k]))
				break;
			f->resources[k - 1] = f->resources[k];
			f->resources[k] = swap;
		}
}

int foci_parse(struct evaluation *v, const char *const *words, size_t count, bool each,
	       struct focus **out, size_t *out_count)
{
	static const char *const everything[] = {"/Code"};
	struct foci parsed = {0}, expanded = {0};
	int status = 0;

	if (!count) {
		words = everything;
		count = 1;
	}
	for (size_t i = 0; i < count && status >= 0; i++) {
		struct focus_resource *r;

		status = read_word(v, words[i], &r);
		if (status >= 0)
			status = add_word(v, &parsed, r);
	}
	for (size_t i = 0; i < parsed.count && status >= 0; i++) {
		normalize(&parsed.items[i]);
		status = expand_focus(v, &parsed.items[i], each, &expanded);
	}
	if (status >= 0) {
		*out = mdl_keep(v->memory, expanded.items, expanded.count, sizeof(**out), v->e);
		*out_count = expanded.count;
		status = *out ? 0 : DINST_NO_MEMORY;
	}
	free(parsed.items);
	free(expanded.items);
	return status;
}

char *focus_text(struct evaluation *v, const struct focus *f)
{
	char *text = mdl_print(v->memory, v->e, "%s", f->count ? f->resources[0]->text : "/Code");

	for (size_t i = 1; text && i < f->count; i++)
		text = mdl_print(v->memory, v->e, "%s %s", text, f->resources[i]->text);
	return text;
}
