/* SPDX-License-Identifier: MIT */
/*
 * module_find.c - from what people write to functions of the target.
 *
 * Owns the grammar of patterns and resource names, and the answers to those
 * that match nothing: what there is instead.
 */
#include "mutator/module_private.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/types.h"

enum {
	NEAREST = 3,	   /* names offered for one that is not there */
	CALLERS = 3,	   /* of a function that is in others only */
	MODULES_TOLD = 12, /* modules named in an error */
	MODULE_NAME = 256,
};

/* What is being looked for, and what has been found. */
struct search {
	const struct module_list *list;
	const char *modules; /* name or glob; NULL: all */
	const char *name;    /* of the function, or a glob */
	struct function_ref *found;
	size_t count, capacity;
	struct dinst_error *e;
};

static bool matches_module(const struct search *s, const struct module *m)
{
	return !s->modules || module_has_name(m, s->modules) || !fnmatch(s->modules, m->name, 0);
}

static int add(struct search *s, struct module *m, const uint32_t *indices, size_t count)
{
	if (s->count + count > s->capacity) {
		size_t capacity = (s->count + count) * 2;
		struct function_ref *more = realloc(s->found, capacity * sizeof(*more));

		if (!more)
			return dinst_fail(s->e, DINST_NO_MEMORY, "no memory for functions found");
		s->found = more;
		s->capacity = capacity;
	}
	for (size_t i = 0; i < count; i++)
		s->found[s->count++] = (struct function_ref){m, indices[i]};
	return 0;
}

/* ------------------------------------------------------- nothing was found */

/* Appends to a text that is cut where it is full. */
static void append(char *text, size_t size, const char *piece)
{
	size_t used = strlen(text);

	snprintf(text + used, size - used, "%s", piece);
}

static int no_module(struct search *s)
{
	char known[DINST_ERROR_TEXT / 2] = "";
	size_t told = 0, left = 0;

	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);

		if (m->gone)
			continue;
		if (told == MODULES_TOLD || strlen(known) + strlen(m->name) + 32 > sizeof(known)) {
			left++;
			continue;
		}
		if (told++)
			append(known, sizeof(known), ", ");
		append(known, sizeof(known), m->name);
	}
	if (left)
		snprintf(known + strlen(known), sizeof(known) - strlen(known), " and %zu more",
			 left);
	/* Between the end of one program and the first mapping of the next. */
	if (!told)
		return dinst_fail(s->e, DINST_BUSY,
				  "the process has no code at this moment: it is executing another "
				  "program, or ends; try again");
	return dinst_fail(s->e, DINST_NO_MODULE, "no module '%.80s'; there are %s", s->modules,
			  known);
}

/* A module was named that we could not read: that is the answer. */
static const struct module *unreadable(const struct search *s)
{
	const struct module *bad = NULL;

	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);

		if (m->gone || !s->modules || !matches_module(s, m))
			continue;
		if (m->image)
			return NULL;
		bad = m;
	}
	return bad;
}

/* Is it there, but none that is offered? */
static int explain_withheld(struct search *s)
{
	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);
		uint32_t flags;

		if (m->gone || !m->image || !matches_module(s, m) ||
		    !image_name_flags(m->image, s->name, &flags))
			continue;
		if (flags & FUNCTION_STUB)
			return dinst_fail(
				s->e, DINST_NO_FUNCTION,
				"'%s' in %s is not patched: it is entered or found in other "
				"ways than by a call",
				s->name, m->name);
		if (flags & FUNCTION_COLD)
			return dinst_fail(s->e, DINST_NO_FUNCTION,
					  "'%s' in %s is a part of a function, not one of its own; "
					  "name the function",
					  s->name, m->name);
	}
	return 0;
}

/* Is it in the source, and the compiler has put it into its callers? */
static int explain_inlined(struct search *s)
{
	struct type_name callers[CALLERS];
	char where[DINST_ERROR_TEXT / 2] = "";
	size_t count;

	if (strpbrk(s->name, "*?["))
		return 0;
	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);

		if (m->gone || !m->image || !matches_module(s, m) ||
		    !types_inlined(m->image, s->name, callers, CALLERS, &count))
			continue;
		for (size_t k = 0; k < count; k++) {
			append(where, sizeof(where), k ? ", '" : "; measure what it is part of: '");
			append(where, sizeof(where), callers[k].text);
			append(where, sizeof(where), "'");
		}
		return dinst_fail(
			s->e, DINST_NO_FUNCTION,
			"'%.120s' has no code of its own in %.60s: the compiler has inlined "
			"it wherever it is called%s%s",
			s->name, m->name, where, count == CALLERS ? ", ..." : "");
	}
	return 0;
}

/* Appends the names in module m that resemble what was looked for, `told` of NEAREST so far. */
static size_t append_nearest(const struct search *s, const struct module *m, char *known,
			     size_t size, size_t told)
{
	const char *nearest[NEAREST];
	size_t count = image_nearest(m->image, s->name, nearest, NEAREST);
	char name[256];

	for (size_t k = 0; k < count && told < NEAREST; k++) {
		/* Where one module was asked for it need not be said again. */
		const bool named = s->modules && !strpbrk(s->modules, "*?[");

		if (strlen(nearest[k]) > 100)
			continue;
		snprintf(name, sizeof(name), "%s'%s'%s%s", told++ ? ", " : "; did you mean ",
			 nearest[k], named ? "" : " in ", named ? "" : m->name);
		append(known, size, name);
	}
	return told;
}

/* Most functions of the program itself have names made up from their addresses. */
static const struct module *stripped(const struct search *s)
{
	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);
		const struct image_function *functions;
		size_t count, nameless = 0;

		if (!m->main || m->gone || !m->image || !matches_module(s, m))
			continue;
		count = image_functions(m->image, &functions);
		for (size_t k = 0; k < count; k++)
			nameless += (functions[k].flags & FUNCTION_NO_SYMBOL) != 0;
		return nameless * 2 > count ? m : NULL;
	}
	return NULL;
}

static int no_function(struct search *s)
{
	const struct module *bad = unreadable(s), *bare = stripped(s);
	char known[DINST_ERROR_TEXT / 2] = "", names[200] = "";
	size_t told = 0;

	if (bad)
		return dinst_fail(s->e, DINST_NO_FUNCTION, "%s has no functions to offer: %s",
				  bad->name, bad->problem);
	if (explain_withheld(s) || explain_inlined(s))
		return DINST_NO_FUNCTION;
	for (size_t i = 0; i < module_count(s->list) && told < NEAREST; i++) {
		const struct module *m = module_get(s->list, i);

		if (!m->gone && m->image && matches_module(s, m))
			told = append_nearest(s, m, known, sizeof(known), told);
	}
	/* the name that somebody knows from the source is in no file then */
	if (bare)
		snprintf(names, sizeof(names),
			 "; %.60s is stripped: most of its functions are called fn_ADDRESS (`dinst "
			 "top` shows the busy ones)",
			 bare->name);
	return dinst_fail(s->e, DINST_NO_FUNCTION, "no function matches '%.120s'%s%s%s%s%s",
			  s->name, s->modules ? " in " : "", s->modules ? s->modules : "", names,
			  told	 ? known
			  : bare ? ""
				 : "; `dinst funcs` lists them",
			  told ? "?" : "");
}

/* ------------------------------------------------------------------ search */

/* What is the whole name of a function in one module is no glob in the others. */
static bool is_name(const struct search *s)
{
	for (size_t i = 0; i < module_count(s->list); i++) {
		const struct module *m = module_get(s->list, i);

		if (!m->gone && m->image && matches_module(s, m) &&
		    image_is_name(m->image, s->name))
			return true;
	}
	return false;
}

static int search_modules(struct search *s, bool *any)
{
	const bool glob = !is_name(s);
	int r = 0;

	*any = false;
	for (size_t i = 0; i < module_count(s->list) && !r; i++) {
		struct module *m = module_get(s->list, i);
		uint32_t *indices;
		size_t count;

		if (m->gone || !matches_module(s, m))
			continue;
		*any = true;
		if (!m->image)
			continue;
		r = image_match_as(m->image, s->name, glob, &indices, &count, s->e);
		if (r)
			break;
		r = add(s, m, indices, count);
		free(indices);
	}
	return r;
}

static int search_names(struct search *s)
{
	bool any;
	int r = search_modules(s, &any);

	if (!r && !any && s->modules)
		r = no_module(s);
	if (!r && !s->count)
		r = no_function(s);
	return r;
}

/* Gives the result out, or takes it back. */
static int finish(struct search *s, int r, struct function_ref **out, size_t *count)
{
	if (r) {
		free(s->found);
		return r;
	}
	*out = s->found;
	*count = s->count;
	return 0;
}

int match_functions(const struct module_list *l, const char *modules, const char *name, bool *any,
		    struct function_ref **out, size_t *count, struct dinst_error *e)
{
	struct search s = {.list = l, .modules = modules, .name = name, .e = e};

	return finish(&s, search_modules(&s, any), out, count);
}

/* Reads a whole hexadecimal number with its 0x. */
static bool parse_hex(const char *text, uint64_t *value)
{
	char *end;

	if (strncmp(text, "0x", 2) || !text[2] ||
	    text[2 + strspn(text + 2, "0123456789abcdefABCDEF")])
		return false;
	errno = 0;
	*value = strtoull(text + 2, &end, 16);
	return !errno && !*end;
}

static int search_address(struct search *s, struct module *m, taddr_t address)
{
	uint32_t index;
	long at;

	if (!m)
		return dinst_fail(s->e, DINST_NO_FUNCTION, "no module is mapped at 0x%llx",
				  (unsigned long long)address);
	if (!m->image)
		return dinst_fail(s->e, DINST_NO_FUNCTION, "%s has no functions to offer: %s",
				  m->name, m->problem);
	at = image_function_at(m->image, address - m->bias);
	if (at < 0)
		return dinst_fail(s->e, DINST_NO_FUNCTION, "no function is known at %s+0x%llx",
				  m->name, (unsigned long long)(address - m->lo));
	index = at;
	return add(s, m, &index, 1);
}

/* MODULE+0xOFFSET, from its lowest address. False if the pattern is not of that form. */
static bool search_offset(struct search *s, const char *pattern, int *r)
{
	const char *plus = strrchr(pattern, '+');
	char name[256];
	uint64_t offset;
	struct module *m;

	if (!plus || plus == pattern || !parse_hex(plus + 1, &offset) ||
	    (size_t)(plus - pattern) >= sizeof(name))
		return false;
	memcpy(name, pattern, plus - pattern);
	name[plus - pattern] = 0;
	m = module_named(s->list, name);
	if (!m) {
		s->modules = name;
		*r = no_module(s);
		s->modules = NULL;
	} else if (offset >= m->hi - m->lo) {
		*r = dinst_fail(s->e, DINST_NO_FUNCTION, "0x%llx is beyond the end of %s",
				(unsigned long long)offset, m->name);
	} else {
		*r = search_address(s, m, m->lo + offset);
	}
	return true;
}

/*
 * The colon of MODULE:NAME: the first that is not part of "::" nor of a
 * bracket expression such as [[:digit:]]; NULL if there is none.
 */
const char *module_colon(const char *pattern)
{
	int brackets = 0;

	for (const char *p = pattern; *p; p++) {
		if (*p == '[')
			brackets++;
		else if (*p == ']' && brackets)
			brackets--;
		if (*p != ':' || brackets)
			continue;
		if (p[1] != ':')
			return p == pattern ? NULL : p;
		while (p[1] == ':')
			p++;
	}
	return NULL;
}

/* MODULE:NAME, or a name alone. */
static void split(struct search *s, const char *pattern, char module[MODULE_NAME])
{
	const char *colon = module_colon(pattern);

	s->name = pattern;
	if (!colon || colon - pattern >= MODULE_NAME)
		return;
	memcpy(module, pattern, colon - pattern);
	module[colon - pattern] = 0;
	s->modules = module;
	s->name = colon[1] ? colon + 1 : "*";
}

bool find_is_name(const struct module_list *l, const char *pattern)
{
	struct search s = {.list = l};
	char module[MODULE_NAME];

	split(&s, pattern, module);
	return is_name(&s);
}

int find_functions(const struct module_list *l, const char *pattern, struct function_ref **out,
		   size_t *count, struct dinst_error *e)
{
	struct search s = {.list = l, .name = pattern, .e = e};
	char module[MODULE_NAME];
	uint64_t address;
	int r;

	if (!*pattern)
		return dinst_fail(e, DINST_USAGE, "the name of the function is empty");
	if (parse_hex(pattern, &address)) {
		r = search_address(&s, module_at(l, address), address);
	} else if (!search_offset(&s, pattern, &r)) {
		split(&s, pattern, module);
		r = search_names(&s);
	}
	return finish(&s, r, out, count);
}

int find_resource(const struct module_list *l, const char *resource, struct function_ref **out,
		  size_t *count, struct dinst_error *e)
{
	struct search s = {.list = l, .name = "*", .e = e};
	const char *rest, *slash;
	char module[256] = "*";

	if (strncmp(resource, "/Code", 5) || (resource[5] && resource[5] != '/'))
		return dinst_fail(
			e, DINST_USAGE,
			"'%.120s' is not code; write /Code/MODULE/FUNCTION, either of which "
			"may be a glob",
			resource);
	rest = resource[5] ? resource + 6 : "";
	slash = strchr(rest, '/');
	if (*rest) {
		size_t length = slash ? (size_t)(slash - rest) : strlen(rest);

		if (!length || length >= sizeof(module))
			return dinst_fail(e, DINST_USAGE, "no module in '%.120s'", resource);
		memcpy(module, rest, length);
		module[length] = 0;
		s.modules = module;
	}
	if (slash && slash[1])
		s.name = slash + 1;
	return finish(&s, search_names(&s), out, count);
}

/* ------------------------------------------------------------- modules */

/*
 * Of a file that is mapped once more in part (as libffi maps its trampolines) nothing is known, not
 * even how much of its span is its own: there the others come first.
 */
static struct module *better(struct module *found, struct module *m)
{
	return found && (found->image || !m->image) ? found : m;
}

taddr_t module_window_at(const struct module *m, taddr_t at)
{
	struct arch_insn insn;
	size_t size = 0;
	const uint8_t *bytes = image_code(m->image, at - m->bias, &size);

	if (bytes && arch_decode(bytes, size, at, &insn) == ARCH_OK &&
	    insn.flags & ARCH_INSN_LANDING_PAD)
		return at + insn.length;
	return at;
}

struct module *module_at(const struct module_list *l, taddr_t address)
{
	struct module *found = NULL;

	for (size_t i = 0; i < module_count(l); i++) {
		struct module *m = module_get(l, i);

		if (!m->gone && address >= m->lo && address < m->hi)
			found = better(found, m);
	}
	return found;
}

struct module *module_named(const struct module_list *l, const char *name)
{
	struct module *found = NULL;

	for (size_t i = 0; i < module_count(l); i++) {
		struct module *m = module_get(l, i);

		if (!m->gone && module_has_name(m, name))
			found = better(found, m);
	}
	return found;
}
