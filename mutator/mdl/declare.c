/* SPDX-License-Identifier: MIT */
/*
 * declare.c - lists, constraints and metrics, as the parser meets them.
 *
 * Owns what an attribute may say and how often. What names stand for is check.c's.
 */
#include "mutator/mdl/tree.h"

#include <string.h>
#include <strings.h>

static int not_this(struct parser *p, const struct mdl_place *place, const char *what,
		    const char *word, const char *const *choices, size_t count, const char *all)
{
	const char *meant = p->messages.left_out ? NULL : mdl_nearest(word, choices, count);

	parser_error(p, place, "'%.60s' is no %s; it is %s%s%s%s", word, what, all,
		     meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
	return -1;
}

/* Which of choices[] the word is, -1 and a message if none. */
static int one_of(struct parser *p, const struct mdl_place *place, const char *what,
		  const char *word, const char *const *choices, size_t count, const char *all)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(choices[i], word) == 0)
			return (int)i;
	return not_this(p, place, what, word, choices, count, all);
}

/* ------------------------------------------------------------------- lists */

bool list_add_items(struct parser *p, struct mdl_list *list, const struct exprs *items)
{
	struct exprs all = {list->items, list->item_count, list->item_room};

	if (!items->count)
		return true;
	if (!build_exprs_add_all(p, &all, items))
		return false;
	list->items = all.exprs;
	list->item_count = all.count;
	list->item_room = all.room;
	return true;
}

void list_set_library(struct parser *p, struct mdl_list *list, const struct mdl_place *place,
		      const char *word)
{
	if (strcasecmp(word, "true") == 0)
		list->library = true;
	else if (strcasecmp(word, "false") == 0)
		list->library = false;
	else
		parser_error(p, place, "library is true or false, not '%.60s'", word);
}

bool unit_add_list(struct parser *p, struct mdl_list *list, const struct mdl_place *place,
		   const char *name, const struct mdl_place *element_place, const char *element)
{
	static const char *const names[] = {"procedure", "module", "string", "int"};
	static const enum mdl_element elements[] = {MDL_OF_PROCEDURES, MDL_OF_MODULES,
						    MDL_OF_STRINGS, MDL_OF_INTEGERS};
	int which = one_of(p, element_place, "kind of element", element, names, 4,
			   "procedure, module, string or int");

	list->name = name;
	list->place = *place;
	list->element = which < 0 ? MDL_OF_PROCEDURES : elements[which];
	for (size_t i = 0; i < list->item_count && which >= 0; i++) {
		bool number = list->items[i]->kind == MDL_INTEGER;

		if (number == (list->element == MDL_OF_INTEGERS))
			continue;
		parser_error(p, &list->items[i]->place, "an item of this list is a %s, not a %s",
			     number ? "number" : "string", number ? "string" : "number");
	}
	if (p->last_list)
		p->last_list->next = list;
	else
		p->unit.lists = list;
	p->last_list = list;
	return true;
}

/* ------------------------------------------------------------- constraints */

/* The hierarchies of foci, and how deep their resources can be, themselves counted. */
static const struct {
	const char *name;
	size_t depth;
} hierarchies[] = {{"Code", 4}, {"Process", 2}, {"SyncObject", 3}, {"File", 3}, {"Machine", 2}};

enum { HIERARCHY_COUNT = sizeof(hierarchies) / sizeof(hierarchies[0]) };

static void check_path(struct parser *p, const struct mdl_place *place,
		       const struct mdl_constraint *c)
{
	const char *names[HIERARCHY_COUNT];

	for (size_t i = 0; i < HIERARCHY_COUNT; i++) {
		names[i] = hierarchies[i].name;
		if (strcmp(names[i], c->path[0]) != 0)
			continue;
		if (c->path_count > hierarchies[i].depth)
			parser_error(p, place, "a path of /%s has at most %zu part%s behind it",
				     names[i], hierarchies[i].depth - 1,
				     hierarchies[i].depth == 2 ? "" : "s");
		return;
	}
	not_this(p, place, "hierarchy", c->path[0], names, HIERARCHY_COUNT,
		 "/Code, /Process, /SyncObject, /File or /Machine");
}

static bool split_path(struct parser *p, struct mdl_constraint *c, const struct mdl_place *place,
		       const char *text)
{
	char *part = pool_copy(p->pool, text + 1, strlen(text + 1));

	if (!part) {
		p->failed = DINST_NO_MEMORY;
		return false;
	}
	for (char *slash = part; slash; part = slash) {
		slash = strchr(part, '/');
		if (slash)
			*slash++ = '\0';
		if (!*part) {
			parser_error(p, place, "a part of this path is empty");
			return true;
		}
		if (c->path_count == MDL_PATH_MAX) {
			parser_error(p, place, "this path has too many parts");
			return true;
		}
		c->path[c->path_count++] = part;
	}
	check_path(p, place, c);
	return true;
}

struct mdl_constraint *build_constraint(struct parser *p, const struct mdl_place *place,
					const char *name, enum mdl_extent extent,
					const struct mdl_place *path_place, const char *path,
					enum mdl_constraint_kind kind)
{
	struct mdl_constraint *c = build_declaration(p, sizeof(*c));

	if (!c)
		return NULL;
	c->name = name;
	c->place = *place;
	c->kind = kind;
	c->extent = extent;
	c->type = MDL_COUNTER;
	if (extent != MDL_AS_WRITTEN && kind == MDL_DEFAULT)
		parser_error(p, path_place, "'is default' has no code that could be %s",
			     extent == MDL_INCLUSIVE ? "inclusive" : "exclusive");
	return split_path(p, c, path_place, path) ? c : NULL;
}

bool unit_add_constraint(struct parser *p, struct mdl_constraint *c)
{
	if (p->last_constraint)
		p->last_constraint->next = c;
	else
		p->unit.constraints = c;
	p->last_constraint = c;
	return true;
}

/* ----------------------------------------------------------------- metrics */

/* False and a message if it was given before. */
static bool give(struct parser *p, struct metric_parts *m, enum metric_attribute which,
		 const struct mdl_place *place)
{
	static const char *const names[] = {"name",  "units",	    "unitsType",
					    "mode",  "description", "aggregateOperator",
					    "style", "base"};

	if (m->given[which].line) {
		parser_error(p, place, "%s is given twice; the first time in line %u", names[which],
			     m->given[which].line);
		return false;
	}
	m->given[which] = *place;
	return true;
}

void metric_set_text(struct parser *p, struct metric_parts *m, enum metric_attribute which,
		     const struct mdl_place *place, const struct mdl_place *value_place,
		     const char *text)
{
	static const char *const types[] = {"unnormalized", "normalized", "sampled"};

	if (!give(p, m, which, place))
		return;
	if (which == METRIC_UNITS_TYPE)
		one_of(p, value_place, "type of units", text, types, 3,
		       "unnormalized, normalized or sampled");
	switch (which) {
	case METRIC_NAME:
		if (!*text)
			parser_error(p, value_place, "a name has at least one letter");
		m->metric.name = text;
		break;
	case METRIC_UNITS:
		m->metric.units = text;
		break;
	case METRIC_UNITS_TYPE:
		m->metric.units_type = text;
		break;
	case METRIC_MODE:
		m->metric.mode = text;
		break;
	default:
		m->metric.description = text;
		break;
	}
}

void metric_set_aggregate(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
			  const struct mdl_place *value_place, const char *word)
{
	static const char *const names[] = {"sum", "min", "max", "avg"};
	static const enum mdl_aggregate aggregates[] = {MDL_SUM, MDL_MIN, MDL_MAX, MDL_AVG};
	int which = one_of(p, value_place, "aggregate operator", word, names, 4,
			   "sum, min, max or avg");

	if (give(p, m, METRIC_AGGREGATE, place) && which >= 0)
		m->metric.aggregate = aggregates[which];
}

void metric_set_style(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		      const struct mdl_place *value_place, const char *word)
{
	static const char *const names[] = {"EventCounter", "SampledFunction"};
	int which =
		one_of(p, value_place, "style", word, names, 2, "EventCounter or SampledFunction");

	if (give(p, m, METRIC_STYLE, place) && which >= 0)
		m->metric.style = which ? MDL_SAMPLED_FUNCTION : MDL_EVENT_COUNTER;
}

bool metric_add_flavors(struct parser *p, struct metric_parts *m, const struct words *flavors)
{
	struct words all = {m->metric.flavors, m->metric.flavor_count, m->flavor_room};

	for (size_t i = 0; i < flavors->count; i++)
		if (!build_words_add(p, &all, flavors->words[i]))
			return false;
	m->metric.flavors = all.words;
	m->metric.flavor_count = all.count;
	m->flavor_room = all.room;
	return true;
}

bool metric_add_variable(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
			 enum mdl_vartype type, const char *name)
{
	struct mdl_variable *v = build_declaration(p, sizeof(*v)), **last = &m->metric.variables;

	if (!v)
		return false;
	v->name = name;
	v->place = *place;
	v->type = type;
	if (m->last_variable)
		last = &m->last_variable->next;
	*last = m->last_variable = v;
	return true;
}

bool metric_add_use(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		    const char *name, struct mdl_constraint *own)
{
	struct mdl_use *use = build_declaration(p, sizeof(*use)), **last = &m->metric.uses;

	if (!use)
		return false;
	use->name = name;
	use->place = *place;
	use->constraint = own;
	if (m->last_use)
		last = &m->last_use->next;
	*last = m->last_use = use;
	return true;
}

void metric_set_base(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		     enum mdl_extent before, const struct mdl_place *behind_place,
		     enum mdl_extent behind, enum mdl_vartype type, struct mdl_statement *block)
{
	if (!give(p, m, METRIC_BASE, place))
		return;
	if (before != MDL_AS_WRITTEN && behind != MDL_AS_WRITTEN)
		parser_error(p, behind_place,
			     "whether the base is inclusive or exclusive is said "
			     "twice");
	m->metric.extent = before != MDL_AS_WRITTEN ? before : behind;
	m->metric.type = type;
	m->metric.base = block;
}

bool unit_add_metric(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		     const char *id)
{
	m->metric.id = id;
	m->metric.place = *place;
	if (!m->metric.name)
		m->metric.name = id;
	if (p->last_metric)
		p->last_metric->next = &m->metric;
	else
		p->unit.metrics = &m->metric;
	p->last_metric = &m->metric;
	return true;
}
