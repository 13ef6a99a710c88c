/* SPDX-License-Identifier: MIT */
/*
 * evaluate_values.c - expressions of the where-world: what statements loop
 * over, ask and insert at. Nothing here changes anything.
 */
#include <string.h>
#include <unistd.h>

#include "mutator/evaluate_private.h"

enum { ALIASES_MAX = 16 };

const char *value_kind_name(enum value_kind kind)
{
	static const char *const names[] = {
		[VALUE_NUMBER] = "a number",
		[VALUE_TEXT] = "a string",
		[VALUE_FUNCTIONS] = "a procedure",
		[VALUE_MODULES] = "a module",
		[VALUE_PLACES] = "a point",
		[VALUE_CALLS] = "a point",
		[VALUE_NUMBERS] = "a list of numbers",
		[VALUE_TEXTS] = "a list of strings",
		[VALUE_ANY] = "one of many objects",
	};

	return names[kind];
}

static int fail(const struct drawing *d, const struct mdl_expr *x, const char *what)
{
	return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->place, "%s", what);
}

static struct value number(int64_t n)
{
	return (struct value){.kind = VALUE_NUMBER, .number = n};
}

static struct value text(const char *t)
{
	return (struct value){.kind = VALUE_TEXT, .text = t};
}

/* ---------------------------------------------------------------- names */

static const struct scope *scope_find(const struct drawing *d, const char *name)
{
	for (const struct scope *s = d->scope; s; s = s->outer)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

static int value_of_name(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	const struct scope *s = scope_find(d, x->text);
	const struct mdl_list *list = s ? NULL : mdl_find_list(d->v->l, x->text);
	int status;

	if (s) {
		*out = s->value;
		return 0;
	}
	if (!list)
		return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->place,
				"'%s' is neither a list nor a variable of a foreach around it",
				x->text);
	status = list_value(d->v, list, out);
	return status < 0 ? status : list_skipped(d->v, d->plan, list);
}

static int value_of_constraint(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	struct value index = {0};
	int status;

	if (!d->constraint)
		return fail(d, x, "$constraint has a meaning in constraints only");
	status = value_of(d, x->left, &index);
	if (status < 0)
		return status;
	if (index.kind != VALUE_NUMBER)
		return fail(d, x, "the index of $constraint is a number");
	status = constraint_value(d->v, d->constraint, d->resource, index.number, &x->place, out);
	if (status >= 0 && out->kind == VALUE_ANY)
		d->uses_any = true;
	return status;
}

static int value_of_machine(struct drawing *d, struct value *out)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	*out = text(mdl_print(d->v->memory, d->v->e, "%s", host));
	return out->text ? 0 : DINST_NO_MEMORY;
}

static int value_of_start(struct drawing *d, struct value *out)
{
	int status = start_value(d->v, out);

	if (status >= 0 && d->v->start_skipped)
		status = plan_skip_once(d->v, d->plan, d->v->start_skipped);
	return status;
}

/* ----------------------------------------------------------- attributes */

static int no_attribute(const struct drawing *d, const struct mdl_expr *x, enum value_kind kind)
{
	static const char *const has[] = {
		[VALUE_FUNCTIONS] = ".name, .entry, .return, .calls and .callers",
		[VALUE_MODULES] = ".name and .funcs",
		[VALUE_PLACES] = ".address",
		[VALUE_CALLS] = ".address and .callee",
	};
	const char *known = kind < sizeof(has) / sizeof(has[0]) ? has[kind] : NULL;

	return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->place, "%s has no .%s%s%s",
			value_kind_name(kind), x->text, known ? "; it has " : "",
			known ? known : "");
}

static struct value places(const struct value *functions, enum point_kind kind)
{
	return (struct value){.kind = VALUE_PLACES,
			      .point = kind,
			      .functions = functions->functions,
			      .count = functions->count};
}

static int attribute_of_functions(struct drawing *d, const struct mdl_expr *x,
				  const struct value *f, struct value *out)
{
	if (!strcmp(x->text, "entry")) {
		*out = places(f, POINT_ENTRY);
		return 0;
	}
	if (!strcmp(x->text, "return")) {
		*out = places(f, POINT_EXIT);
		return 0;
	}
	if (!strcmp(x->text, "calls"))
		return calls_of(d, f, out);
	if (!strcmp(x->text, "callers"))
		return callers_of(d->v, f, out);
	if (!strcmp(x->text, "name")) {
		*out = text(f->count ? image_readable_name(f->functions[0].module->image,
							   function_name(&f->functions[0]))
				     : "");
		out->functions = f->functions;
		out->count = f->count == 1;
		return 0;
	}
	return no_attribute(d, x, VALUE_FUNCTIONS);
}

static int attribute_of_modules(struct drawing *d, const struct mdl_expr *x, const struct value *m,
				struct value *out)
{
	const struct focus_resource *r = d->resource;

	if (!strcmp(x->text, "name")) {
		*out = text(m->count ? m->modules[0]->name : "");
		return 0;
	}
	if (strcmp(x->text, "funcs"))
		return no_attribute(d, x, VALUE_MODULES);
	/* The focus knows them already; of several modules the first one is where all of them begin. */
	if (r && r->value.kind == VALUE_MODULES && r->value.modules == m->modules &&
	    r->value.count == m->count) {
		*out = (struct value){.kind = VALUE_FUNCTIONS,
				      .functions = r->functions,
				      .count = r->function_count};
		return 0;
	}
	return module_functions(d->v, m->modules, m->count, out);
}

static int attribute_of_site(struct drawing *d, const struct mdl_expr *x, const struct value *s,
			     struct value *out)
{
	struct function_ref *callee;
	bool known = false;
	int status;

	if (s->count != 1)
		return fail(d, x, "these are several points: take them one by one, with foreach");
	if (!strcmp(x->text, "address")) {
		*out = number((int64_t)(s->sites[0].address + s->sites[0].function.module->bias));
		return 0;
	}
	if (strcmp(x->text, "callee"))
		return no_attribute(d, x, VALUE_CALLS);
	callee = mdl_alloc(d->v->memory, 1, sizeof(*callee), d->v->e);
	if (!callee)
		return DINST_NO_MEMORY;
	status = callee_of(d->v, &s->sites[0], callee, &known);
	*out = (struct value){.kind = VALUE_FUNCTIONS, .functions = callee, .count = known};
	return status;
}

static int attribute_of_place(struct drawing *d, const struct mdl_expr *x, const struct value *p,
			      struct value *out)
{
	const struct image_function *functions;

	if (strcmp(x->text, "address"))
		return no_attribute(d, x, VALUE_PLACES);
	if (p->count != 1 || p->point != POINT_ENTRY)
		return fail(d, x, "only the entry of one procedure has an address of its own");
	image_functions(p->functions[0].module->image, &functions);
	*out = number(
		(int64_t)(functions[p->functions[0].index].address + p->functions[0].module->bias));
	return 0;
}

static int value_of_attribute(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	struct value of = {0};
	int status = value_of(d, x->left, &of);

	if (status < 0)
		return status;
	switch (of.kind) {
	case VALUE_FUNCTIONS:
		return attribute_of_functions(d, x, &of, out);
	case VALUE_MODULES:
		return attribute_of_modules(d, x, &of, out);
	case VALUE_CALLS:
		return attribute_of_site(d, x, &of, out);
	case VALUE_PLACES:
		return attribute_of_place(d, x, &of, out);
	case VALUE_TEXT:
		/* $process.name, $machine.name */
		if (!strcmp(x->text, "name")) {
			*out = of;
			return 0;
		}
		/* fallthrough */
	default:
		return no_attribute(d, x, of.kind);
	}
}

static int value_of_index(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	struct value list = {0}, index = {0};
	int status = value_of(d, x->left, &list);

	if (status >= 0)
		status = value_of(d, x->right, &index);
	if (status < 0)
		return status;
	if (index.kind != VALUE_NUMBER)
		return fail(d, x->right, "the index of a list is a number");
	if (list.kind == VALUE_NUMBER || list.kind == VALUE_TEXT || list.kind == VALUE_ANY ||
	    list.kind == VALUE_PLACES)
		return fail(d, x->left, "this is no list");
	if (index.number < 0 || (uint64_t)index.number >= list.count)
		return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->right->place,
				"there is no element %lld: the list has %zu here",
				(long long)index.number, list.count);
	*out = value_element(&list, (size_t)index.number);
	return 0;
}

struct value value_element(const struct value *list, size_t i)
{
	struct value v = *list;

	v.count = 1;
	switch (list->kind) {
	case VALUE_FUNCTIONS:
	case VALUE_PLACES:
		v.functions = list->functions + i;
		break;
	case VALUE_MODULES:
		v.modules = list->modules + i;
		break;
	case VALUE_CALLS:
		v.sites = list->sites + i;
		break;
	case VALUE_NUMBERS:
		return number(list->numbers[i]);
	case VALUE_TEXTS:
		return text(list->texts[i]);
	default:
		break;
	}
	return v;
}

/* ------------------------------------------------------------ operators */

static int apply_to_texts(const struct drawing *d, const struct mdl_expr *x, const char *a,
			  const char *b, struct value *out)
{
	int c = strcmp(a, b);

	switch (x->op) {
	case MDL_OP_LT:
		*out = number(c < 0);
		return 0;
	case MDL_OP_LE:
		*out = number(c <= 0);
		return 0;
	case MDL_OP_GT:
		*out = number(c > 0);
		return 0;
	case MDL_OP_GE:
		*out = number(c >= 0);
		return 0;
	case MDL_OP_EQ:
		*out = number(!c);
		return 0;
	case MDL_OP_NE:
		*out = number(c != 0);
		return 0;
	default:
		return fail(d, x, "strings can be compared and nothing else");
	}
}

/* A function of that name, whichever of its names that is. */
static bool is_called(const struct value *name, const char *other)
{
	const struct function_ref *f = name->functions;
	const char *names[ALIASES_MAX];
	size_t count;

	if (!name->count)
		return false;
	if (!strcmp(function_name(f), other))
		return true;
	count = image_aliases(f->module->image, f->index, names, ALIASES_MAX);
	for (size_t i = 0; i < count && i < ALIASES_MAX; i++)
		if (!strcmp(names[i], other))
			return true;
	return false;
}

/* Names of functions are equal to strings by any of their names. */
static int compare_texts(const struct drawing *d, const struct mdl_expr *x, const struct value *a,
			 const struct value *b, struct value *out)
{
	const bool same = is_called(a, b->text) || is_called(b, a->text);

	if (!same || (x->op != MDL_OP_EQ && x->op != MDL_OP_NE))
		return apply_to_texts(d, x, a->text, b->text, out);
	*out = number(x->op == MDL_OP_EQ);
	return 0;
}

/* As everywhere in the language: 64 bits, signed, wrapping; by 0 gives 0. */
static int64_t apply_to_numbers(int op, int64_t a, int64_t b)
{
	const uint64_t x = (uint64_t)a, y = (uint64_t)b;

	switch (op) {
	case MDL_OP_MUL:
		return (int64_t)(x * y);
	case MDL_OP_DIV:
		return !b ? 0 : b == -1 ? (int64_t)(0 - x) : a / b;
	case MDL_OP_REM:
		return !b || b == -1 ? 0 : a % b;
	case MDL_OP_ADD:
		return (int64_t)(x + y);
	case MDL_OP_SUB:
		return (int64_t)(x - y);
	case MDL_OP_SHL:
		return (int64_t)(x << (y & 63));
	case MDL_OP_SHR:
		return a >> (y & 63);
	case MDL_OP_LT:
		return a < b;
	case MDL_OP_LE:
		return a <= b;
	case MDL_OP_GT:
		return a > b;
	case MDL_OP_GE:
		return a >= b;
	case MDL_OP_EQ:
		return a == b;
	case MDL_OP_NE:
		return a != b;
	case MDL_OP_AND:
		return (int64_t)(x & y);
	case MDL_OP_XOR:
		return (int64_t)(x ^ y);
	default:
		return (int64_t)(x | y);
	}
}

static int value_of_both(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	bool left = false, right = false;
	int status = value_truth(d, x->left, &left);

	if (status < 0)
		return status;
	*out = number(left);
	if (left == (x->op == MDL_OP_EITHER))
		return 0;
	status = value_truth(d, x->right, &right);
	*out = number(right);
	return status;
}

static int value_of_binary(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	struct value a = {0}, b = {0};
	int status;

	if (x->op == MDL_OP_BOTH || x->op == MDL_OP_EITHER)
		return value_of_both(d, x, out);
	status = value_of(d, x->left, &a);
	if (status >= 0)
		status = value_of(d, x->right, &b);
	if (status < 0)
		return status;
	if (a.kind == VALUE_NUMBER && b.kind == VALUE_NUMBER) {
		*out = number(apply_to_numbers(x->op, a.number, b.number));
		return 0;
	}
	if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
		return compare_texts(d, x, &a, &b, out);
	return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->place,
			"%s and %s do not go together here", value_kind_name(a.kind),
			value_kind_name(b.kind));
}

static int value_of_unary(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	struct value of = {0};
	bool truth = false;
	int status;

	if (x->op == '!') {
		status = value_truth(d, x->left, &truth);
		*out = number(!truth);
		return status;
	}
	status = value_of(d, x->left, &of);
	if (status < 0)
		return status;
	if (of.kind != VALUE_NUMBER)
		return fail(d, x, "this needs a number");
	*out = number(x->op == '~' ? ~of.number : (int64_t)(0 - (uint64_t)of.number));
	return 0;
}

static int value_of_choice(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	bool truth = false;
	int status = value_truth(d, x->condition, &truth);

	return status < 0 ? status : value_of(d, truth ? x->left : x->right, out);
}

/* ------------------------------------------------------------------ all */

int value_truth(struct drawing *d, const struct mdl_expr *x, bool *out)
{
	struct value v;
	int status = value_of(d, x, &v);

	if (status < 0)
		return status;
	switch (v.kind) {
	case VALUE_NUMBER:
		*out = v.number != 0;
		return 0;
	case VALUE_TEXT:
		*out = v.text[0] != 0;
		return 0;
	case VALUE_ANY:
		return fail(d, x, "this is not known before the program runs; ask inside of (* *)");
	default:
		return mdl_fail(d->v->l, d->v->e, DINST_USAGE, &x->place,
				"a condition is a number or a string, and this is %s",
				value_kind_name(v.kind));
	}
}

int value_of(struct drawing *d, const struct mdl_expr *x, struct value *out)
{
	int status = spend_looks(d->v, 1);

	if (status < 0)
		return status;
	switch (x->kind) {
	case MDL_INTEGER:
		*out = number(x->number);
		return 0;
	case MDL_STRING:
		*out = text(x->text);
		return 0;
	case MDL_NAME:
		return value_of_name(d, x, out);
	case MDL_PROCEDURES:
		return all_procedures(d->v, out);
	case MDL_MODULES:
		return all_modules(d->v, out);
	case MDL_START:
		return value_of_start(d, out);
	case MDL_EXIT:
		return exit_value(d->v, out);
	case MDL_MACHINE:
		return value_of_machine(d, out);
	case MDL_PROCESS:
		*out = text(target_name(d->v->s->target));
		return 0;
	case MDL_CONSTRAINT:
		return value_of_constraint(d, x, out);
	case MDL_ATTRIBUTE:
		return value_of_attribute(d, x, out);
	case MDL_INDEX:
		return value_of_index(d, x, out);
	case MDL_UNARY:
		return value_of_unary(d, x, out);
	case MDL_BINARY:
		return value_of_binary(d, x, out);
	case MDL_CHOICE:
		return value_of_choice(d, x, out);
	default:
		return fail(d, x,
			    "this is known only when the program runs: it belongs inside of (* *)");
	}
}
