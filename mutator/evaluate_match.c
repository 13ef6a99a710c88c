/* SPDX-License-Identifier: MIT */
/*
 * evaluate_match.c - which constraints of a metric a focus takes, and what
 * $constraint means in them. The rules about paths are in evaluate.h.
 */
#include <stdio.h>
#include <string.h>

#include "mutator/evaluate_private.h"

/* In the paper's form of /Code levels count from the procedure. */
enum { PAPER_PROCEDURE = 0, PAPER_MODULE = 1, DEPTH_MODULE = 1, DEPTH_PROCEDURE = 2 };

/* ---------------------------------------------------------------- depth */

/* How a body uses $constraint. */
struct usage {
	bool first;	   /* [0] ... */
	bool first_module; /* ... of which .funcs is asked */
	bool second;	   /* [1] */
	bool any;
};

static int note_usage(void *arg, const struct mdl_expr *x, const char *attribute)
{
	struct usage *u = arg;
	const bool constant = x->left && x->left->kind == MDL_INTEGER;

	u->any = true;
	if (constant && x->left->number == 1)
		u->second = true;
	if (constant && x->left->number == 0) {
		u->first = true;
		u->first_module |= attribute && !strcmp(attribute, "funcs");
	}
	return 0;
}

static struct usage usage_of(const struct mdl_constraint *c)
{
	struct usage u = {0};

	body_constraints(c->body, note_usage, &u);
	return u;
}

static bool ends_in_name(const struct mdl_constraint *c)
{
	return strcmp(c->path[c->path_count - 1], "*") != 0;
}

/* /Code alone, with a body that tells what it is for. */
static bool is_paper_code(const struct mdl_constraint *c)
{
	return c->path_count == 1 && !strcmp(c->path[0], "Code");
}

int constraint_depth(const struct mdl_constraint *c)
{
	const int written = (int)c->path_count - 1;
	struct usage u;

	if (!ends_in_name(c))
		return written;
	u = usage_of(c);
	if (is_paper_code(c) && u.any) {
		if (u.first_module)
			return DEPTH_MODULE;
		return u.first || !u.second ? DEPTH_PROCEDURE : DEPTH_MODULE;
	}
	if (u.any)
		return written + 1;
	return written ? written : -1;
}

bool constraint_matches(const struct mdl_constraint *c, const struct mdl_resource *r)
{
	const int depth = constraint_depth(c);

	if (strcmp(c->path[0], r->hierarchy))
		return false;
	if (depth < 0 ? !r->part_count : (size_t)depth != r->part_count)
		return false;
	for (size_t i = 1; i < c->path_count && i <= r->part_count; i++)
		if (strcmp(c->path[i], "*") && strcmp(c->path[i], r->parts[i - 1]))
			return false;
	return true;
}

/* ------------------------------------------------------------ $constraint */

static int outside(struct evaluation *v, const struct mdl_constraint *c,
		   const struct focus_resource *r, int64_t index, const struct mdl_place *place)
{
	return mdl_fail(v->l, v->e, DINST_USAGE, place,
			"there is no $constraint[%lld] for %s in %s: 0 is its last part, %zu "
			"its hierarchy",
			(long long)index, r->text, c->name, r->resource.part_count);
}

/* The modules of the functions of a resource. */
static int modules_of(struct evaluation *v, const struct focus_resource *r, struct value *out)
{
	struct module **list;
	size_t count = 0;

	if (r->value.kind == VALUE_MODULES) {
		*out = r->value;
		return 0;
	}
	list = mdl_alloc(v->memory, module_count(v->s->modules), sizeof(*list), v->e);
	if (!list)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < r->function_count; i++) {
		bool there = false;

		for (size_t k = count; k > 0 && !there; k--)
			there = list[k - 1] == r->functions[i].module;
		if (!there)
			list[count++] = r->functions[i].module;
	}
	*out = (struct value){.kind = VALUE_MODULES, .modules = list, .count = count};
	return 0;
}

static struct value functions_value(const struct focus_resource *r)
{
	return (struct value){
		.kind = VALUE_FUNCTIONS, .functions = r->functions, .count = r->function_count};
}

int constraint_value(struct evaluation *v, const struct mdl_constraint *c,
		     const struct focus_resource *r, int64_t index, const struct mdl_place *place,
		     struct value *out)
{
	const size_t parts = r->resource.part_count;

	/* In the paper [1] is the module, also where the focus ends there. */
	if (is_paper_code(c) && parts == DEPTH_MODULE && !usage_of(c).first_module)
		index -= PAPER_MODULE - PAPER_PROCEDURE;
	if (index < 0 || (uint64_t)index > parts)
		return outside(v, c, r, index, place);
	if (!index) {
		*out = r->value;
		return 0;
	}
	if ((size_t)index == parts) {
		*out = (struct value){.kind = VALUE_TEXT, .text = r->resource.hierarchy};
		return 0;
	}
	if (!strcmp(r->resource.hierarchy, "Code")) {
		if (parts - (size_t)index == DEPTH_PROCEDURE) {
			*out = functions_value(r);
			return 0;
		}
		return modules_of(v, r, out);
	}
	*out = (struct value){.kind = VALUE_TEXT,
			      .text = r->resource.parts[parts - 1 - (size_t)index]};
	return 0;
}

/* ------------------------------------------------------------- selection */

static void path_as_focus(const struct mdl_constraint *c, char *text, size_t size)
{
	const int depth = constraint_depth(c);
	size_t used = 0;

	text[0] = 0;
	for (size_t i = 0; i < c->path_count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "/%s", c->path[i]);
	for (int i = (int)c->path_count - 1; i < depth && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "/*");
	if (depth < 0 && used < size)
		snprintf(text + used, size - used, "/...");
}

/* True if `path` is one of those in "a, b, c". */
static bool is_listed(const char *list, const char *path)
{
	const size_t length = strlen(path);

	for (const char *p = list; (p = strstr(p, path)); p += length)
		if ((p == list || p[-1] == ' ') && (!p[length] || p[length] == ','))
			return true;
	return false;
}

void mdl_metric_constraints(const struct mdl_library *l, const struct mdl_metric *m, char *text,
			    size_t size)
{
	size_t used = 0;

	if (size)
		text[0] = 0;
	for (const struct mdl_use *u = m->uses; u; u = u->next) {
		const struct mdl_constraint *c = mdl_used_constraint(l, u);
		char path[256];

		if (!c)
			continue;
		path_as_focus(c, path, sizeof(path));
		/* Two constraints of one path are one focus for those who ask. */
		if (is_listed(text, path))
			continue;
		if (used + strlen(path) + 3 > size)
			break;
		used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", path);
	}
}

static int refuse(struct evaluation *v, const struct focus_resource *r)
{
	char known[DINST_ERROR_TEXT / 2];

	mdl_metric_constraints(v->l, v->metric, known, sizeof(known));
	if (!known[0])
		return dinst_fail(v->e, DINST_USAGE,
				  "%s cannot be constrained by %.120s: it has no constraints",
				  v->metric->id, r->text);
	return dinst_fail(v->e, DINST_USAGE, "%s cannot be constrained by %.120s: it takes %s",
			  v->metric->id, r->text, known);
}

int resource_check(struct evaluation *v, const struct focus_resource *r)
{
	for (const struct mdl_use *u = v->metric->uses; u; u = u->next) {
		const struct mdl_constraint *c = mdl_used_constraint(v->l, u);

		if (c && constraint_matches(c, &r->resource))
			return 0;
	}
	return refuse(v, r);
}

static int select_one(struct evaluation *v, const struct mdl_constraint *c,
		      const struct focus_resource *r, struct selection *s)
{
	switch (c->kind) {
	case MDL_DEFAULT:
		return 0;
	case MDL_FLAG:
		if (s->flag_count == sizeof(s->flags) / sizeof(s->flags[0]))
			return dinst_fail(v->e, DINST_USAGE, "%s: too many constraints match %s",
					  v->metric->id, r->text);
		s->flags[s->flag_count] = c;
		s->flag_resources[s->flag_count++] = r;
		return 0;
	case MDL_REPLACE:
		break;
	}
	if (s->replace)
		return mdl_fail(v->l, v->e, DINST_USAGE, &c->place,
				"both '%s' and '%s' would replace the base of %s for this focus",
				s->replace->name, c->name, v->metric->id);
	s->replace = c;
	s->replace_resource = r;
	return 0;
}

int selection_make(struct evaluation *v, const struct focus *f, struct selection *out)
{
	int status = 0;

	*out = (struct selection){0};
	for (size_t i = 0; i < f->count && status >= 0; i++) {
		const struct focus_resource *r = f->resources[i];

		if (!r->resource.part_count)
			continue;
		status = resource_check(v, r);
		for (const struct mdl_use *u = v->metric->uses; u && status >= 0; u = u->next) {
			const struct mdl_constraint *c = mdl_used_constraint(v->l, u);

			if (c && constraint_matches(c, &r->resource))
				status = select_one(v, c, r, out);
		}
	}
	return status;
}
