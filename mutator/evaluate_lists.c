/* SPDX-License-Identifier: MIT */
/*
 * evaluate_lists.c - lists of the library, and the lists that every program
 * has, as this target has them.
 *
 * A name that the program does not have is left out and told; nothing here is
 * an error but want of memory.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum { NAMES_A_STEP = 64 };

/* ----------------------------------------------------------------- sets */

bool function_is(const struct function_ref *a, const struct function_ref *b)
{
	return a->module == b->module && a->index == b->index;
}

static int by_function(const void *a, const void *b)
{
	const struct function_ref *x = a, *y = b;

	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

int set_add(struct function_set *set, const struct function_ref *f, struct dinst_error *e)
{
	if (set->count == set->room) {
		size_t room = set->room ? set->room * 2 : 64;
		void *more = reallocarray(set->items, room, sizeof(*set->items));

		if (!more)
			return no_memory(e);
		set->items = more;
		set->room = room;
	}
	set->items[set->count++] = *f;
	return 0;
}

void set_sort(struct function_set *set)
{
	size_t kept = 0;

	if (set->count)
		qsort(set->items, set->count, sizeof(*set->items), by_function);
	for (size_t i = 0; i < set->count; i++)
		if (!kept || !function_is(&set->items[kept - 1], &set->items[i]))
			set->items[kept++] = set->items[i];
	set->count = kept;
}

static const struct function_ref *set_find(const struct function_set *set,
					   const struct function_ref *f)
{
	return set->count ? bsearch(f, set->items, set->count, sizeof(*set->items), by_function)
			  : NULL;
}

bool set_has(const struct function_set *set, const struct function_ref *f)
{
	return set_find(set, f) != NULL;
}

void set_release(struct function_set *set)
{
	free(set->items);
	*set = (struct function_set){0};
}

/* ------------------------------------------------------ functions by name */

/* `any`: there is such a module. */
static int find_named(struct evaluation *v, const char *modules, const char *name, bool *any,
		      struct function_set *set)
{
	struct function_ref *found = NULL;
	size_t count = 0;
	int status = match_functions(v->s->modules, modules, name, any, &found, &count, v->e);

	for (size_t i = 0; i < count && status >= 0; i++)
		status = set_add(set, &found[i], v->e);
	free(found);
	return status;
}

int functions_named(struct evaluation *v, struct module *m, const char *name,
		    struct function_set *set)
{
	uint32_t *indices = NULL;
	size_t count = 0;
	bool any;
	int status;

	if (!m)
		return find_named(v, NULL, name, &any, set);
	if (m->gone || !m->image)
		return 0;
	status = image_match(m->image, name, &indices, &count, v->e);
	for (size_t k = 0; k < count && status >= 0; k++)
		status = set_add(set, &(struct function_ref){m, indices[k]}, v->e);
	free(indices);
	return status;
}

static bool module_matches(const struct module *m, const char *name)
{
	const char *soname = m->image ? image_soname(m->image) : NULL;

	return !strcmp(m->name, name) || (m->path && !strcmp(m->path, name)) ||
	       (soname && !strcmp(soname, name)) || !fnmatch(name, m->name, 0);
}

/* "0x4010" */
static int find_address(struct evaluation *v, const char *item, struct function_set *set)
{
	struct dinst_error ignored = {0, ""};
	struct function_ref *found = NULL;
	size_t count = 0;
	int status = 0;

	/* where there is no function, the item is one that the program does not have */
	if (find_functions(v->s->modules, item, &found, &count, &ignored) < 0)
		return 0;
	for (size_t i = 0; i < count && status >= 0; i++)
		status = set_add(set, &found[i], v->e);
	free(found);
	return status;
}

/* "module:name" or "name", either a glob; or an address. */
static int find_item(struct evaluation *v, const char *item, struct function_set *set)
{
	const char *colon = module_colon(item);
	char module[256];
	bool loaded;
	int status;

	if (item[0] == '0' && item[1] == 'x')
		return find_address(v, item, set);
	if (!colon || (size_t)(colon - item) >= sizeof(module))
		return find_named(v, NULL, item, &loaded, set);
	memcpy(module, item, (size_t)(colon - item));
	module[colon - item] = 0;
	status = find_named(v, module, colon + 1, &loaded, set);
	if (status < 0 || loaded || v->awaited || !module_may_come(module))
		return status;
	v->awaited = mdl_print(v->memory, v->e, "%s", module);
	return v->awaited ? 0 : DINST_NO_MEMORY;
}

/* ------------------------------------------------------------ named lists */

static int skip_item(struct evaluation *v, struct known_list *k, const char *item)
{
	char *text = mdl_print(v->memory, v->e, "%s (of %s)", item, k->list->name);

	if (!text)
		return DINST_NO_MEMORY;
	k->skipped[k->skipped_count++] = text;
	return 0;
}

/* In the order of the text, each function once. */
static int keep_functions(struct evaluation *v, const struct function_set *set, struct value *out)
{
	struct function_set sorted = {0};
	struct function_ref *kept = mdl_alloc(v->memory, set->count, sizeof(*kept), v->e);
	bool *seen = calloc(set->count + 1, sizeof(*seen));
	size_t count = 0;
	int status = kept && seen ? 0 : no_memory(v->e);

	for (size_t i = 0; i < set->count && status >= 0; i++)
		status = set_add(&sorted, &set->items[i], v->e);
	set_sort(&sorted);
	for (size_t i = 0; i < set->count && status >= 0; i++) {
		const struct function_ref *at = set_find(&sorted, &set->items[i]);

		if (!seen[at - sorted.items])
			kept[count++] = set->items[i];
		seen[at - sorted.items] = true;
	}
	*out = (struct value){.kind = VALUE_FUNCTIONS, .functions = kept, .count = count};
	free(seen);
	set_release(&sorted);
	return status;
}

/* What looking for one item takes: of a glob, all names are compared with it. */
static uint64_t steps_of_item(const struct evaluation *v)
{
	const struct image_function *functions;
	uint64_t names = 0;

	for (size_t i = 0; i < module_count(v->s->modules); i++) {
		const struct module *m = module_get(v->s->modules, i);

		names += m->gone || !m->image ? 0 : image_functions(m->image, &functions);
	}
	return 1 + names / NAMES_A_STEP;
}

static int fill_procedures(struct evaluation *v, struct known_list *k)
{
	const uint64_t each = steps_of_item(v);
	struct function_set set = {0};
	int status = 0;

	for (size_t i = 0; i < k->list->item_count && status >= 0; i++) {
		size_t before = set.count;

		status = find_item(v, k->list->items[i]->text, &set);
		/* Items may be many, and each of them match everything there is. */
		if (status >= 0)
			status = spend(v, each + set.count - before);
		if (status >= 0 && set.count == before)
			status = skip_item(v, k, k->list->items[i]->text);
	}
	if (status >= 0)
		status = keep_functions(v, &set, &k->value);
	set_release(&set);
	return status;
}

static int fill_modules(struct evaluation *v, struct known_list *k)
{
	const size_t most = module_count(v->s->modules);
	struct module **found = mdl_alloc(v->memory, most, sizeof(*found), v->e);
	bool *matched = mdl_alloc(v->memory, k->list->item_count, sizeof(*matched), v->e);
	size_t count = 0;
	int status = 0;

	if (!found || !matched)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < most; i++) {
		struct module *m = module_get(v->s->modules, i);
		bool in = false;

		for (size_t n = 0; !m->gone && n < k->list->item_count; n++)
			if (module_matches(m, k->list->items[n]->text))
				in = matched[n] = true;
		if (in)
			found[count++] = m;
	}
	for (size_t n = 0; n < k->list->item_count && status >= 0; n++)
		if (!matched[n])
			status = skip_item(v, k, k->list->items[n]->text);
	k->value = (struct value){.kind = VALUE_MODULES, .modules = found, .count = count};
	return status;
}

static int fill_constants(struct evaluation *v, struct known_list *k)
{
	const size_t count = k->list->item_count;
	const char **texts = mdl_alloc(v->memory, count, sizeof(*texts), v->e);
	int64_t *numbers = mdl_alloc(v->memory, count, sizeof(*numbers), v->e);

	if (!texts || !numbers)
		return DINST_NO_MEMORY;
	for (size_t i = 0; i < count; i++) {
		texts[i] = k->list->items[i]->text;
		numbers[i] = k->list->items[i]->number;
	}
	k->value = (struct value){
		.kind = k->list->element == MDL_OF_STRINGS ? VALUE_TEXTS : VALUE_NUMBERS,
		.count = count,
		.texts = texts,
		.numbers = numbers,
	};
	return 0;
}

static int know_list(struct evaluation *v, const struct mdl_list *list, struct known_list **out)
{
	struct known_list *k;
	int status;

	for (k = v->lists; k; k = k->next)
		if (k->list == list) {
			*out = k;
			return 0;
		}
	k = mdl_alloc(v->memory, 1, sizeof(*k), v->e);
	if (!k)
		return DINST_NO_MEMORY;
	k->list = list;
	k->skipped = mdl_alloc(v->memory, list->item_count + 1, sizeof(*k->skipped), v->e);
	if (!k->skipped)
		return DINST_NO_MEMORY;
	if (list->element == MDL_OF_PROCEDURES)
		status = fill_procedures(v, k);
	else if (list->element == MDL_OF_MODULES)
		status = fill_modules(v, k);
	else
		status = fill_constants(v, k);
	if (status < 0)
		return status;
	k->next = v->lists;
	v->lists = k;
	*out = k;
	return 0;
}

int list_value(struct evaluation *v, const struct mdl_list *list, struct value *out)
{
	struct known_list *k;
	int status = know_list(v, list, &k);

	if (status >= 0)
		*out = k->value;
	return status;
}

int list_skipped(struct evaluation *v, struct mdl_plan *plan, const struct mdl_list *list)
{
	struct known_list *k;
	int status = know_list(v, list, &k);

	/* A list may be named in loops inside of loops. */
	if (status < 0 || k->skipped_in == plan)
		return status;
	k->skipped_in = plan;
	for (size_t i = 0; status >= 0 && i < k->skipped_count; i++) {
		status = spend_looks(v, (unsigned)plan->skipped_count);
		if (status >= 0)
			status = plan_skip_once(v, plan, k->skipped[i]);
	}
	return status;
}

/* ----------------------------------------------- lists that are always there */

int module_functions(struct evaluation *v, struct module *const *modules, size_t count,
		     struct value *out)
{
	struct function_set set = {0};
	int status = 0;

	for (size_t i = 0; i < count && status >= 0; i++)
		status = functions_named(v, modules[i], "*", &set);
	if (status >= 0)
		status = spend(v, set.count / 4);
	if (status >= 0) {
		/* They come module by module, in the order of their addresses. */
		struct function_ref *kept =
			mdl_keep(v->memory, set.items, set.count, sizeof(*set.items), v->e);

		*out = (struct value){
			.kind = VALUE_FUNCTIONS, .functions = kept, .count = set.count};
		status = kept ? 0 : DINST_NO_MEMORY;
	}
	set_release(&set);
	return status;
}

int all_modules(struct evaluation *v, struct value *out)
{
	const size_t most = module_count(v->s->modules);

	if (!v->has_modules) {
		struct module **list = mdl_alloc(v->memory, most, sizeof(*list), v->e);
		size_t count = 0;

		if (!list)
			return DINST_NO_MEMORY;
		for (size_t i = 0; i < most; i++)
			if (!module_get(v->s->modules, i)->gone)
				list[count++] = module_get(v->s->modules, i);
		v->modules = (struct value){.kind = VALUE_MODULES, .modules = list, .count = count};
		v->has_modules = true;
	}
	*out = v->modules;
	return 0;
}

int all_procedures(struct evaluation *v, struct value *out)
{
	struct value modules;
	int status = 0;

	if (!v->has_procedures) {
		status = all_modules(v, &modules);
		if (status >= 0)
			status =
				module_functions(v, modules.modules, modules.count, &v->procedures);
		v->has_procedures = status >= 0;
	}
	if (status >= 0)
		*out = v->procedures;
	return status;
}

/* ------------------------------------------------------ callees left out */

struct exclusion {
	struct evaluation *v;
	struct function_set *set;
};

static int exclude_list(void *arg, const struct mdl_expr *x)
{
	struct exclusion *ex = arg;
	const struct mdl_list *list;
	struct known_list *k = NULL;
	int status = 0;

	if (x->kind != MDL_NAME)
		return 0;
	list = mdl_find_list(ex->v->l, x->text);
	if (!list || list->element != MDL_OF_PROCEDURES)
		return 0;
	status = know_list(ex->v, list, &k);
	/* A list may be named by thousands of statements. */
	if (status < 0 || k->excluded == ex->v->exclusion)
		return status;
	k->excluded = ex->v->exclusion;
	for (size_t i = 0; i < k->value.count && status >= 0; i++)
		status = set_add(ex->set, &k->value.functions[i], ex->v->e);
	return status;
}

int excluded_add(struct evaluation *v, const struct mdl_statement *body, struct function_set *set)
{
	struct exclusion ex = {.v = v, .set = set};
	int status = 0;

	for (const struct mdl_statement *st = body; st && status >= 0; st = st->next) {
		status = expr_names(st->expr, exclude_list, &ex);
		if (status >= 0)
			status = excluded_add(v, st->first, set);
		if (status >= 0)
			status = excluded_add(v, st->then, set);
		if (status >= 0)
			status = excluded_add(v, st->otherwise, set);
	}
	return status;
}
