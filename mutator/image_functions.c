/* SPDX-License-Identifier: MIT */
/*
 * image_functions.c - symbols and FDEs become functions.
 *
 * One entry per address, sorted. What is a function:
 *
 *   an FDE starts there, or a symbol of type FUNC with a size, or one without
 *   a size that lies in no other function. Everything else in the executable
 *   ranges (labels in assembler code, tables) is a label: nothing is patched
 *   across it, but it is no function.
 *
 * Nothing is decoded here. Works in one sweep over both lists.
 */
#include "mutator/image_private.h"

#include <stdio.h>
#include <stdlib.h>

/* What the sweep knows of a function beyond what others see. */
struct draft {
	uint64_t symbol_size;
	const struct symbol *symbol; /* that its name is from; NULL: it has none */
	bool framed;		     /* an FDE starts here */
	bool fragment;		     /* and says that it is none of a function's start */
};

struct builder {
	struct image *img;
	const struct symbol *symbols;
	size_t symbol_count;
	size_t s, f;	    /* next symbol, next FDE */
	vaddr_t framed_to;  /* end of the FDEs seen so far */
	vaddr_t covered_to; /* end of everything seen so far */
	struct image_range init, fini;
	struct draft *drafts;
	const struct symbol **alias_symbols;
	struct dinst_error *e;
};

static int no_memory(struct builder *b)
{
	return dinst_fail(b->e, DINST_NO_MEMORY, "%s: no memory for functions", b->img->name);
}

static int by_place(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	/* Equally good: the shorter, else the first in the alphabet, for one stable answer. */
	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return x->hash == y->hash ? 0 : strcmp(x->name, y->name);
}

/*
 * Length of "foo" in the names of code that compilers moved out of foo: "foo.cold", "foo.cold.3", and of
 * clang's basic block sections (-fbasic-block-sections) "foo.__part.3" and "foo.eh"; else 0.
 */
static size_t cold_base(const char *name, size_t length)
{
	static const char *const endings[] = {".cold", ".__part", ".eh"};
	size_t end = length, digits = length;

	while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
		digits--;
	if (digits < end && digits && name[digits - 1] == '.')
		end = digits - 1;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		const size_t size = strlen(endings[i]);

		if (end > size && !memcmp(name + end - size, endings[i], size))
			return end - size;
	}
	return 0;
}

/*
 * Code that must stay as it is although it looks like a function: others find
 * it by its bytes (signal return), set breakpoints on it (the loader's hook),
 * enter and leave it by other ways than call and return, know a fault in it by
 * its address (where a JVM tries whether something can be read; where a CLR keeps
 * what is written to an object), or copy it (the CLR's again, CPython's for perf);
 * and what is none: a number that callers compare (-fsanitize=kcfi).
 */
static bool is_stub_name(const char *name)
{
	static const char *const stubs[] = {
		"_init",	   "_fini",	      "__restore_rt",
		"__restore",	   "_dl_debug_state", "__longjmp",
		"____longjmp_chk", "__start_context", "setcontext",
		"swapcontext",	   "__setcontext",    "__swapcontext",
		"_dl_start_user",  "__sigreturn",     "_dl_rtld_di_serinfo_unused",
	};
	static const char *const beginnings[] = {
		"_dl_runtime_resolve",
		"_dl_runtime_profile",
		"SafeFetch32_",
		"SafeFetchN_",
		"_SafeFetch32_",
		"_SafeFetchN_",
		"JIT_WriteBarrier",
		"JIT_CheckedWriteBarrier",
		"JIT_ByRefWriteBarrier",
		"RhpAssignRef",
		"RhpCheckedAssignRef",
		"RhpByRefAssignRef",
		"JIT_MemSet",
		"JIT_MemCpy",
		"_Py_trampoline_func",
		"__cfi_",
	};

	size_t length;

	if (!strchr("_sSJR", name[0]) || (name[0] == '_' && name[1] == 'Z'))
		return false;
	length = strcspn(name, "@"); /* without a version */
	for (size_t i = 0; i < sizeof(stubs) / sizeof(*stubs); i++)
		if (strlen(stubs[i]) == length && !memcmp(name, stubs[i], length))
			return true;
	for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
		if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

uint8_t name_flags(const char *name, size_t length)
{
	return (cold_base(name, length) ? FUNCTION_COLD : 0) |
	       (is_stub_name(name) ? FUNCTION_STUB : 0);
}

static bool is_function_type(const struct symbol *s)
{
	return s->type == STT_FUNC || s->type == STT_GNU_IFUNC;
}

static uint32_t symbol_flags(const struct symbol *s)
{
	return (s->flags & FUNCTION_STUB) | (s->type == STT_GNU_IFUNC ? FUNCTION_IFUNC : 0);
}

/* In .init and .fini there is one function each, put together from pieces. */
static void find_startup(struct builder *b)
{
	const struct elf_file *f = &b->img->file;

	for (size_t i = 0; i < f->section_count; i++) {
		const struct elf_section *s = &f->sections[i];
		struct image_range r = {s->address, s->address + s->size};

		if (!(s->flags & SHF_EXECINSTR))
			continue;
		if (!strcmp(s->name, ".init"))
			b->init = r;
		else if (!strcmp(s->name, ".fini"))
			b->fini = r;
	}
}

static bool in_startup(const struct builder *b, vaddr_t v)
{
	return (v >= b->init.lo && v < b->init.hi) || (v >= b->fini.lo && v < b->fini.hi);
}

static int add_names(struct builder *b, struct image_function *fn, const struct symbol *group,
		     size_t count)
{
	struct image *img = b->img;
	const struct symbol *last = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct symbol *s = &group[i];

		/* .dynsym repeats .symtab; tables and labels are not names of a function,
		 * unless there is no other. */
		if (last &&
		    ((last->length == s->length && last->hash == s->hash) || !is_function_type(s)))
			continue;
		if (!last) {
			fn->name = s->name;
			if (s->bind == STB_LOCAL)
				fn->flags |= FUNCTION_LOCAL;
			fn->flags |= s->flags & FUNCTION_COLD;
		} else {
			b->alias_symbols[img->alias_count] = s;
			img->aliases[img->alias_count++] =
				(struct image_alias){img->function_count, s->bind, s->name};
		}
		fn->flags |= symbol_flags(s);
		last = s;
	}
	return 0;
}

static int make_name(struct builder *b, struct image_function *fn)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "fn_%llx",
			 (unsigned long long)(fn->address - b->img->lowest));

	fn->name = strings_copy(&b->img->strings, text, n);
	fn->flags |= FUNCTION_NO_SYMBOL;
	return fn->name ? 0 : no_memory(b);
}

static int add_function(struct builder *b, vaddr_t address, const struct cfi_range *fde,
			const struct symbol *group, size_t count, uint64_t symbol_size)
{
	struct image *img = b->img;
	size_t index = img->function_count;
	struct image_function *fn = &img->functions[index];
	bool fragment = fde && (fde->flags & CFI_FRAGMENT);
	int r = 0;

	*fn = (struct image_function){
		.address = address,
		.size = fde ? fde->size : symbol_size,
		.parent = index,
		.alias_of = index,
	};
	b->drafts[index] = (struct draft){
		.symbol_size = symbol_size,
		.symbol = count ? group : NULL,
		.framed = fde != NULL,
		.fragment = fragment,
	};
	if (count)
		r = add_names(b, fn, group, count);
	else
		r = make_name(b, fn);
	if (fde && (fde->flags & CFI_SIGNAL_FRAME))
		fn->flags |= FUNCTION_STUB;
	/* With a name of its own it is what the name says; without one, what its CFI says. */
	else if (fragment && !count)
		fn->flags |= FUNCTION_COLD;
	if (in_startup(b, address))
		fn->flags |= FUNCTION_STUB;
	if (!fde && address >= b->framed_to)
		fn->flags |= FUNCTION_NO_FRAME;
	img->function_count++;
	return r;
}

/* Takes what starts at the next address off both lists. */
static int step(struct builder *b)
{
	struct image *img = b->img;
	const struct symbol *group = b->s < b->symbol_count ? &b->symbols[b->s] : NULL;
	const struct cfi_range *fde = NULL;
	vaddr_t address = UINT64_MAX;
	uint64_t size = 0;
	bool sized = false, function = false;
	size_t count = 0;
	int r = 0;

	if (group)
		address = group->address;
	if (b->f < img->fde_count && img->fdes[b->f].lo <= address) {
		fde = &img->fdes[b->f++];
		address = fde->lo;
	}
	while (b->s + count < b->symbol_count && group[count].address == address) {
		if (is_function_type(&group[count])) {
			function = true;
			sized |= group[count].size != 0;
			if (group[count].size > size)
				size = group[count].size;
		}
		count++;
	}
	b->s += count;
	if (!range_at(img->text, img->text_count, address) ||
	    range_at(img->stubs, img->stub_count, address))
		return 0;
	if (fde || sized || (function && address >= b->covered_to))
		r = add_function(b, address, fde, group, count, size);
	else
		img->labels[img->label_count++] = address;
	if (fde && address + fde->size > b->framed_to)
		b->framed_to = address + fde->size;
	if (fde && address + fde->size > b->covered_to)
		b->covered_to = address + fde->size;
	if (function && size && size < UINT64_MAX - address && address + size > b->covered_to)
		b->covered_to = address + size;
	return r;
}

/*
 * Sizes that were not given, or were not the whole truth: an FDE may cover
 * several functions of an assembler file, and a function's symbol more than
 * its FDE.
 */
static void settle_sizes(struct builder *b)
{
	struct image *img = b->img;

	for (size_t i = 0; i < img->function_count; i++) {
		struct image_function *fn = &img->functions[i];
		const struct draft *d = &b->drafts[i];
		const struct image_range *r = range_at(img->text, img->text_count, fn->address);
		uint64_t to_next = r->hi - fn->address;

		if (i + 1 < img->function_count && img->functions[i + 1].address < r->hi)
			to_next = img->functions[i + 1].address - fn->address;
		if (!fn->size) {
			fn->size = to_next;
			fn->flags |= FUNCTION_NO_SIZE;
		} else if (d->framed && d->symbol_size) {
			bool shared = d->symbol_size < fn->size && to_next < fn->size &&
				      d->symbol_size <= to_next;
			bool longer = d->symbol_size > fn->size && d->symbol_size <= to_next;

			if (shared || longer)
				fn->size = d->symbol_size;
		}
		if (fn->size > r->hi - fn->address)
			fn->size = r->hi - fn->address;
	}
}

/* --------------------------------------------------------------- fragments */

/* Whose a fragment may be, the likeliest first. */
enum kinship { KINSHIP_FILE, KINSHIP_ANYBODY, KINSHIP_STRANGER };

struct parent_search {
	const struct builder *b;
	uint32_t fragment, best, distance;
	enum kinship kinship;
};

/*
 * Several source files may have a local function of that name, and one that is everybody's besides: its part
 * is local all the same.
 */
static enum kinship kinship_of(const struct symbol *own, const struct symbol *other)
{
	if (other->file == NO_FILE)
		return KINSHIP_ANYBODY;
	return other->file == own->file ? KINSHIP_FILE : KINSHIP_STRANGER;
}

/* By the name that the symbol gives it. */
static void consider_parent(struct parent_search *p, uint32_t function, const struct symbol *s)
{
	const struct symbol *own = p->b->drafts[p->fragment].symbol;
	uint32_t distance = s->order > own->order ? s->order - own->order : own->order - s->order;
	enum kinship kinship = kinship_of(own, s);

	if (function == p->fragment || (p->b->img->functions[function].flags & FUNCTION_COLD))
		return;
	/* Where the table does not tell files: the symbols of one stand together. */
	if (p->best == NO_FUNCTION || kinship < p->kinship ||
	    (kinship == p->kinship && distance < p->distance)) {
		p->best = function;
		p->distance = distance;
		p->kinship = kinship;
	}
}

/* Who are looked for: few, so most names need not be compared with any. */
enum { PROBES_MAX = 256 };

struct wanted {
	uint32_t *fragments; /* indices, by hash of the name; NO_FUNCTION ends a row */
	size_t size;	     /* a power of two */
};

static bool make_wanted(const struct image *img, struct wanted *w)
{
	size_t count = 0;

	for (size_t i = 0; i < img->function_count; i++)
		count += (img->functions[i].flags & (FUNCTION_COLD | FUNCTION_NO_SYMBOL)) ==
			 FUNCTION_COLD;
	*w = (struct wanted){.size = 64};
	if (!count)
		return true;
	while (w->size < count * 4)
		w->size *= 2;
	w->fragments = malloc(w->size * sizeof(*w->fragments));
	if (!w->fragments)
		return false;
	for (size_t i = 0; i < w->size; i++)
		w->fragments[i] = NO_FUNCTION;
	for (size_t i = 0; i < img->function_count; i++) {
		const struct image_function *fn = &img->functions[i];
		unsigned probes = 0;
		size_t at;

		if ((fn->flags & (FUNCTION_COLD | FUNCTION_NO_SYMBOL)) != FUNCTION_COLD)
			continue;
		at = name_key(fn->name, cold_base(fn->name, strlen(fn->name))) & (w->size - 1);
		while (w->fragments[at] != NO_FUNCTION && ++probes < PROBES_MAX)
			at = (at + 1) & (w->size - 1);
		/* So many with one name are made for us to trip over; they stay without a parent. */
		if (probes < PROBES_MAX)
			w->fragments[at] = (uint32_t)i;
	}
	return true;
}

/* The function, by this one of its names, if it has one, may be the parent of those that want it. */
static void offer_parent(const struct wanted *w, struct parent_search *searches,
			 const struct symbol *s, uint32_t function)
{
	size_t at = s ? s->key & (w->size - 1) : 0;

	for (unsigned probes = 0; s && w->fragments[at] != NO_FUNCTION && probes < PROBES_MAX;
	     at = (at + 1) & (w->size - 1), probes++) {
		struct parent_search *p = &searches[at];
		const char *cold = p->b->img->functions[w->fragments[at]].name;
		size_t length = cold_base(cold, strlen(cold));

		if (name_plain_length(s->name) == length && !memcmp(cold, s->name, length))
			consider_parent(p, function, s);
	}
}

/*
 * Elsewhere a dot comes before a function's own name: Go's main.cold is the function cold of a
 * package, and what is called main there is the runtime's, which has no parts.
 */
static void settle_parent(struct builder *b, const struct parent_search *p)
{
	struct image_function *fn = &b->img->functions[p->fragment];
	const bool packaged = b->img->go && cold_base(fn->name, strlen(fn->name)) == 4 &&
			      !memcmp(fn->name, "main", 4);

	if (p->best != NO_FUNCTION && !packaged)
		fn->parent = p->best;
	else if (!b->drafts[p->fragment].fragment)
		fn->flags &= ~(uint32_t)FUNCTION_COLD;
}

static int find_parents(struct builder *b)
{
	struct image *img = b->img;
	struct parent_search *searches = NULL;
	struct wanted w;

	if (!make_wanted(img, &w))
		return no_memory(b);
	if (!w.fragments)
		return 0;
	searches = calloc(w.size, sizeof(*searches));
	if (!searches) {
		free(w.fragments);
		return no_memory(b);
	}
	for (size_t i = 0; i < w.size; i++)
		searches[i] =
			(struct parent_search){b, w.fragments[i], NO_FUNCTION, 0, KINSHIP_STRANGER};
	for (size_t i = 0; i < img->function_count; i++)
		offer_parent(&w, searches, b->drafts[i].symbol, (uint32_t)i);
	for (size_t i = 0; i < img->alias_count; i++)
		offer_parent(&w, searches, b->alias_symbols[i], img->aliases[i].function);
	for (size_t i = 0; i < w.size; i++)
		if (w.fragments[i] != NO_FUNCTION)
			settle_parent(b, &searches[i]);
	free(searches);
	free(w.fragments);
	return 0;
}

/* ------------------------------------------------------------------ building */

static int allocate(struct builder *b)
{
	struct image *img = b->img;
	size_t most = b->symbol_count + img->fde_count + 1;

	img->functions = malloc(most * sizeof(*img->functions));
	img->aliases = malloc((b->symbol_count + 1) * sizeof(*img->aliases));
	img->labels = malloc(most * sizeof(*img->labels));
	b->drafts = calloc(most, sizeof(*b->drafts));
	b->alias_symbols = calloc(b->symbol_count + 1, sizeof(*b->alias_symbols));
	if (most >= NO_FUNCTION)
		return dinst_fail(b->e, DINST_BAD_FILE, "%s: too many functions", img->name);
	return img->functions && img->aliases && img->labels && b->drafts && b->alias_symbols
		       ? 0
		       : no_memory(b);
}

/* Gives back what was reserved for the worst case; shrinking cannot fail in earnest. */
static void *shrink(void *p, size_t size)
{
	void *smaller = realloc(p, size ? size : 1);

	if (!smaller)
		return p;
	return smaller;
}

enum { INDEX_BITS = KEY_INDEX_BITS, GROUP_MAX = 16 };

/* Those of one address: mostly two or three. */
static void sort_group(struct symbol *group, size_t count)
{
	if (count > GROUP_MAX) {
		qsort(group, count, sizeof(*group), by_place);
		return;
	}
	for (size_t i = 1; i < count; i++) {
		struct symbol moved = group[i];
		size_t to = i;

		for (; to > 0 && by_place(&group[to - 1], &moved) > 0; to--)
			group[to] = group[to - 1];
		group[to] = moved;
	}
}

/*
 * There may be hundreds of thousands, and comparing names is what takes time: by
 * address first, and by name only where several share one. False: not possible.
 */
static bool sort_fast(struct symbol_list *list)
{
	vaddr_t lo = UINT64_MAX, hi = 0;
	uint64_t *keys, *sorted;
	struct symbol *to;
	size_t n = list->count;

	for (size_t i = 0; i < n; i++) {
		lo = list->symbols[i].address < lo ? list->symbols[i].address : lo;
		hi = list->symbols[i].address > hi ? list->symbols[i].address : hi;
	}
	if (n >= (size_t)1 << INDEX_BITS || hi - lo >= UINT64_C(1) << (64 - INDEX_BITS))
		return false;
	keys = calloc(n, 2 * sizeof(*keys));
	to = malloc(n * sizeof(*to));
	if (!keys || !to) {
		free(keys);
		free(to);
		return false;
	}
	for (size_t i = 0; i < n; i++)
		keys[i] = (list->symbols[i].address - lo) << INDEX_BITS | i;
	sorted = keys_sort(keys, keys + n, n,
			   64 - (unsigned)__builtin_clzll((hi - lo) << INDEX_BITS | 1));
	for (size_t i = 0; i < n; i++)
		to[i] = list->symbols[sorted[i] & (((uint64_t)1 << INDEX_BITS) - 1)];
	free(keys);
	free(list->symbols);
	list->symbols = to;
	list->capacity = n;
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && to[end].address == to[i].address; end++)
			;
		if (end - i > 1)
			sort_group(to + i, end - i);
	}
	return true;
}

int functions_build(struct image *img, struct symbol_list *symbols, struct dinst_error *e)
{
	bool sorted = !symbols->count || sort_fast(symbols);
	struct builder b = {
		.img = img,
		.symbols = symbols->symbols,
		.symbol_count = symbols->count,
		.e = e,
	};
	int r;

	if (!sorted)
		qsort(symbols->symbols, symbols->count, sizeof(*symbols->symbols), by_place);
	r = allocate(&b);
	find_startup(&b);
	while (!r && (b.s < b.symbol_count || b.f < img->fde_count))
		r = step(&b);
	if (r)
		goto out;
	img->functions = shrink(img->functions, img->function_count * sizeof(*img->functions));
	img->aliases = shrink(img->aliases, img->alias_count * sizeof(*img->aliases));
	img->labels = shrink(img->labels, img->label_count * sizeof(*img->labels));
	settle_sizes(&b);
	r = outer_find(img, e);
	if (!r)
		r = find_parents(&b);
	if (!r)
		r = called_settle(img, e);
out:
	free(b.drafts);
	free(b.alias_symbols);
	return r;
}
