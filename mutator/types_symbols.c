/* SPDX-License-Identifier: MIT */
/*
 * types_symbols.c - variables of the target by name: symbols say where they are,
 * DWARF what they are. Never looks at a target's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/mdl/mdl.h"
#include "mutator/module_private.h"
#include "mutator/types_private.h"

enum { NAMES_MAX = 8192 };

/* Calls each() for every symbol of data until it returns true, and so does this; `dynamic`: of what is exported only. */
static bool walk_file(const struct elf_file *f, bool dynamic,
		      bool (*each)(void *arg, const char *name, const Elf64_Sym *s), void *arg)
{
	for (size_t i = 0; i < f->section_count; i++) {
		const struct elf_section *table = &f->sections[i], *names;

		if ((table->type != SHT_DYNSYM && (dynamic || table->type != SHT_SYMTAB)) ||
		    !table->bytes || table->entry_size != sizeof(Elf64_Sym) ||
		    table->link >= f->section_count)
			continue;
		names = &f->sections[table->link];
		if (!names->bytes || !names->size || names->bytes[names->size - 1])
			continue;
		for (size_t j = 1; j < table->size / sizeof(Elf64_Sym); j++) {
			unsigned type;
			Elf64_Sym s;

			memcpy(&s, table->bytes + j * sizeof(s), sizeof(s));
			type = ELF64_ST_TYPE(s.st_info);
			if (s.st_shndx == SHN_UNDEF || s.st_name >= names->size ||
			    (type != STT_OBJECT && type != STT_TLS && type != STT_COMMON))
				continue;
			if (each(arg, (const char *)names->bytes + s.st_name, &s))
				return true;
		}
	}
	return false;
}

static bool walk_image(const struct image *img,
		       bool (*each)(void *arg, const char *name, const Elf64_Sym *s), void *arg)
{
	return walk_file(&img->file, false, each, arg) ||
	       (img->debug.bytes && walk_file(&img->debug, false, each, arg)) ||
	       (img->mini.bytes && walk_file(&img->mini, false, each, arg));
}

struct search {
	struct image *img;
	const char *name;
	bool readable; /* the name is one of C++: symbols are made readable */
	bool found, global, thread_local, several;
	vaddr_t address;
	uint64_t size;
	const struct module *rival; /* a library that has an equally good one, or NULL */
};

/* Where is looked: in all modules, or in those of a name. */
struct scope {
	const struct module_list *modules;
	char module[256];    /* "": all */
	struct module *only; /* the first of that name */
};

/* A name without the version that the linker appended. */
static bool is_named(const struct search *s, const char *symbol)
{
	const size_t length = strlen(s->name);

	if (!strncmp(symbol, s->name, length) && (!symbol[length] || symbol[length] == '@'))
		return true;
	return s->readable && name_is_mangled(symbol) &&
	       !strcmp(image_readable_name(s->img, symbol), s->name);
}

static bool try_symbol(void *arg, const char *name, const Elf64_Sym *symbol)
{
	struct search *s = arg;
	const bool global = ELF64_ST_BIND(symbol->st_info) != STB_LOCAL;

	if (!is_named(s, name))
		return false;
	if (s->found && s->global && !global)
		return false;
	/* Several static variables of one name. */
	if (s->found && s->global == global && s->address != symbol->st_value)
		s->several = true;
	if (!s->found || (global && !s->global)) {
		s->address = symbol->st_value;
		s->size = symbol->st_size;
		s->thread_local = ELF64_ST_TYPE(symbol->st_info) == STT_TLS;
		s->global = global;
		s->several = false;
	}
	s->found = true;
	return false;
}

static bool search_module(struct module *m, const char *name, struct search *s)
{
	*s = (struct search){.img = m->image, .name = name, .readable = strstr(name, "::") != NULL};
	if (m->image && !m->gone)
		walk_image(m->image, try_symbol, s);
	return s->found;
}

/* The module that the name begins with; *name becomes what is behind it. */
static int named_module(const struct module_list *modules, const char **name, struct scope *scope,
			struct dinst_error *e)
{
	const char *colon = strchr(*name, ':');

	*scope = (struct scope){.modules = modules};
	if (!colon || colon[1] == ':')
		return 0;
	snprintf(scope->module, sizeof(scope->module), "%.*s", (int)(colon - *name), *name);
	scope->only = module_named(modules, scope->module);
	if (!scope->only)
		return dinst_fail(e, DINST_NO_MODULE, "there is no module '%s' in this program",
				  scope->module);
	*name = colon + 1;
	return 0;
}

/* What everybody can name comes before what one source file has. */
static void choose_between(struct search *best, struct module **found, const struct search *s,
			   struct module *m)
{
	if (!best->found || (s->global && !best->global)) {
		*best = *s;
		*found = m;
	} else if (s->global == best->global) {
		best->rival = m;
	}
}

static bool search_modules(const struct scope *scope, const char *name, struct search *best,
			   struct module **found)
{
	*best = (struct search){0};
	/* The executable's own comes first: it may hold copies of what libraries define. */
	for (unsigned pass = 0; pass < 2 && !best->found; pass++)
		for (size_t i = 0; i < module_count(scope->modules); i++) {
			struct module *m = module_get(scope->modules, i);
			struct search s;

			/* Several may have one name: copies of a plugin, or one that is loaded twice. */
			if (m->main == (pass == 0) &&
			    (!scope->only || module_has_name(m, scope->module)) &&
			    search_module(m, name, &s))
				choose_between(best, found, &s, m);
		}
	return best->found;
}

/*
 * A library's variable that the executable exports, too, is the executable's: the linker made a copy
 * there (R_X86_64_COPY and the like), and the library uses that one as well.
 */
static struct module *copied_to(const struct module_list *modules, const struct search *s,
				struct search *copy)
{
	for (size_t i = 0; i < module_count(modules) && s->global; i++) {
		struct module *m = module_get(modules, i);

		if (!m->main || !m->image || m->image == s->img)
			continue;
		*copy = (struct search){.img = m->image, .name = s->name, .readable = s->readable};
		walk_file(&m->image->file, true, try_symbol, copy);
		if (copy->found && copy->global && !copy->several && copy->size == s->size)
			return m;
	}
	return NULL;
}

struct names {
	const char **names;
	size_t count;
};

static bool add_name(void *arg, const char *name, const Elf64_Sym *symbol)
{
	struct names *n = arg;

	(void)symbol;
	n->names[n->count++] = name;
	return n->count == NAMES_MAX;
}

static int not_found(const struct scope *scope, const char *name, struct dinst_error *e)
{
	const struct module_list *modules = scope->modules;
	const struct module *only = scope->only;
	struct names n = {.names = malloc(NAMES_MAX * sizeof(char *))};
	const char *nearest = NULL;

	for (size_t i = 0; n.names && i < module_count(modules) && n.count < NAMES_MAX; i++) {
		struct module *m = module_get(modules, i);

		if ((only ? m == only : m->main) && m->image)
			walk_image(m->image, add_name, &n);
	}
	if (n.names)
		nearest = mdl_nearest(name, n.names, n.count);
	dinst_fail(e, DINST_NO_FUNCTION, "no variable is named '%s'%s%s%s%s%s", name,
		   only ? " in " : " in this program", only ? only->name : "",
		   nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
	free(n.names);
	return DINST_NO_FUNCTION;
}

/* Which of several is meant cannot be told: in one module, or in two. */
static int refuse_several(const struct search *s, const struct module *m, const char *name,
			  struct dinst_error *e)
{
	const bool twins = s->rival && !strcmp(s->rival->name, m->name);

	if (!s->rival)
		return dinst_fail(
			e, DINST_REFUSED,
			"%s has several variables named '%s': which is meant cannot be told",
			m->name, name);
	return dinst_fail(e, DINST_REFUSED,
			  "%s and %s both have a variable named '%s': MODULE:%s says which",
			  twins ? m->path : m->name, twins ? s->rival->path : s->rival->name, name,
			  name);
}

int data_symbol_find(const struct module_list *modules, const char *name, struct data_symbol *out,
		     struct dinst_error *e)
{
	struct module *found, *owner;
	struct search s, copy;
	struct scope scope;
	int r = named_module(modules, &name, &scope, e);

	if (r)
		return r;
	if (!search_modules(&scope, name, &s, &found))
		return not_found(&scope, name, e);
	if (s.thread_local)
		return dinst_fail(e, DINST_REFUSED,
				  "'%s' is a thread-local variable: it has no one address", name);
	if (s.several || s.rival)
		return refuse_several(&s, found, name, e);
	owner = copied_to(modules, &s, &copy);
	if (!owner) {
		owner = found;
		copy = s;
	}
	*out = (struct data_symbol){
		.module = owner, .address = copy.address + owner->bias, .size = s.size};
	if (!image_readable_end(owner->image, copy.address))
		return dinst_fail(e, DINST_REFUSED, "'%s' is not in the memory of %s", name,
				  owner->name);
	types_of_variable(found->image, s.address, &out->type);
	/* Without DWARF the symbol's size says how wide it is. */
	if (out->type.kind == TYPE_UNKNOWN && (s.size == 1 || s.size == 2 || s.size == 4))
		out->type = (struct type){
			.kind = TYPE_INTEGER, .is_signed = true, .size = (uint32_t)s.size};
	return 0;
}

/* The last character in text at which a path may begin, or NULL. */
static char *last_step(char *text)
{
	for (char *at = text + strlen(text); at > text; at--)
		if (at[-1] == '.' || at[-1] == '[')
			return at - 1;
	return NULL;
}

char *data_symbol_path(const struct module_list *modules, char *text, char *path, size_t size)
{
	struct dinst_error ignored = {0};
	struct module *found;
	char *colon = strchr(text, ':'), *start = text, *dot;
	const char *name = text;
	struct scope scope;
	struct search s;

	*path = 0;
	if (colon && colon[1] != ':')
		start = colon + 1;
	if (!last_step(start) || named_module(modules, &name, &scope, &ignored) ||
	    search_modules(&scope, start, &s, &found))
		return path;
	/* The longest name that is one: "a.b.c", then "a.b", then "a". */
	snprintf(path, size, "%s", start);
	while ((dot = last_step(start))) {
		*dot = 0;
		if (search_modules(&scope, start, &s, &found))
			break;
	}
	dot = path + strlen(start);
	memmove(path, dot + (*dot == '.'), strlen(dot + (*dot == '.')) + 1);
	return path;
}
