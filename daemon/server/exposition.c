/* SPDX-License-Identifier: MIT */
/*
 * exposition.c - families and samples, and the memory they live in.
 *
 * Owns names that are allowed and unique, and the bounds of it all. Never asks
 * anybody for a value.
 */
#include "daemon/server/exposition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10, TABLE_FIRST = 1024 };

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

/* ------------------------------------------------------------------ memory */

void *exposition_take(struct exposition *x, size_t size)
{
	struct chunk *c = x->chunks;
	void *at;

	size = (size + 15) & ~(size_t)15;
	if (!c || c->size - c->used < size) {
		const size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;

		if (x->bytes + room > EXPOSITION_BYTES)
			return NULL;
		c = calloc(1, sizeof(*c) + room);
		if (!c)
			return NULL;
		c->size = room;
		c->next = x->chunks;
		x->chunks = c;
		x->bytes += room;
	}
	at = c->bytes + c->used;
	c->used += size;
	return at;
}

/* Length of the UTF-8 character at `p` (at most `left` bytes of it), 0 if it is none (RFC 3629). */
static size_t character(const unsigned char *p, size_t left)
{
	size_t length = *p < 0x80		   ? 1
			: *p >= 0xc2 && *p <= 0xdf ? 2
			: (*p & 0xf0) == 0xe0	   ? 3
			: *p >= 0xf0 && *p <= 0xf4 ? 4
						   : 0;

	if (!length || length > left)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return length;
}

const char *exposition_string(struct exposition *x, const char *text)
{
	const size_t whole = strlen(text);
	const size_t most = whole < EXPOSITION_LABEL_MAX ? whole : EXPOSITION_LABEL_MAX;
	char *copy = exposition_take(x, most + 1);
	size_t to = 0;

	if (!copy)
		return NULL;
	for (size_t from = 0; from < whole && to < most;) {
		const size_t n = character((const unsigned char *)text + from, whole - from);

		if (to + (n ? n : 1) > most)
			break;
		if (n)
			memcpy(copy + to, text + from, n);
		else
			copy[to] = '?';
		to += n ? n : 1;
		from += n ? n : 1;
	}
	copy[to] = '\0';
	return copy;
}

struct exposition *exposition_new(void)
{
	struct exposition *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->end = &x->families;
	x->table_size = TABLE_FIRST;
	x->table = calloc(x->table_size, sizeof(struct sample *));
	if (!x->table) {
		free(x);
		return NULL;
	}
	return x;
}

void exposition_free(struct exposition *x)
{
	struct chunk *c;

	if (!x)
		return;
	while ((c = x->chunks)) {
		x->chunks = c->next;
		free(c);
	}
	free(x->table);
	free(x);
}

/* ---------------------------------------------------------------- families */

/* What Prometheus allows: [a-zA-Z_][a-zA-Z0-9_]* (a colon is for its own rules). */
static void clean_name(char *name)
{
	for (char *p = name; *p; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' ||
		      (*p >= '0' && *p <= '9' && p > name)))
			*p = '_';
}

/* True if a series of `f` is called `name`. */
static bool has_series(const struct family *f, const char *name)
{
	static const char *const parts[] = {"_bucket", "_count", "_sum"};
	const size_t length = strlen(f->name);

	if (strcmp(f->name, name) == 0)
		return true;
	if (f->type != FAMILY_HISTOGRAM || strncmp(f->name, name, length) != 0)
		return false;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(name + length, parts[i]) == 0)
			return true;
	return false;
}

static bool is_taken(const struct exposition *x, const struct family *wanted)
{
	for (const struct family *f = x->families; f; f = f->next)
		if (has_series(f, wanted->name) || has_series(wanted, f->name))
			return true;
	return false;
}

static const char *join(struct exposition *x, const char *name, const char *more)
{
	const size_t size = strlen(name) + strlen(more) + 1;
	char *joined = exposition_take(x, size);

	if (joined)
		snprintf(joined, size, "%s%s", name, more);
	return joined;
}

struct family *exposition_family(struct exposition *x, const char *name, enum family_type type,
				 enum family_unit unit, const char *help)
{
	static const char *const more[] = {
		[FAMILY_COUNTER] = "_counted_total",
		[FAMILY_GAUGE] = "_level",
		[FAMILY_HISTOGRAM] = "_distribution",
	};
	struct family *f, wanted = {.type = type, .unit = unit, .own = x->own};
	char clean[160];

	strncpy(clean, name, sizeof(clean) - 1);
	clean[sizeof(clean) - 1] = '\0';
	clean_name(clean);
	wanted.name = clean;
	for (;;) {
		for (f = x->families; f; f = f->next)
			if (f->type == type && f->unit == unit && f->own == x->own &&
			    strcmp(f->name, wanted.name) == 0)
				return f;
		if (!is_taken(x, &wanted))
			break;
		wanted.name = join(x, wanted.name, more[type]);
		if (!wanted.name)
			return NULL;
	}
	f = exposition_take(x, sizeof(*f));
	if (!f)
		return NULL;
	*f = wanted;
	f->name = exposition_string(x, wanted.name);
	f->help = exposition_string(x, help && help[0] ? help : name);
	if (!f->name || !f->help)
		return NULL;
	f->end = &f->samples;
	*x->end = f;
	x->end = &f->next;
	return f;
}

/* ----------------------------------------------------------------- samples */

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t hash_add(uint64_t hash, const char *text)
{
	do {
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ULL;
	} while (*text++);
	return hash;
}

static uint64_t hash_labels(const struct family *f, const struct sample *s)
{
	uint64_t hash = hash_add(0xcbf29ce484222325ULL, f->name);

	for (unsigned i = 0; i < s->label_count; i++) {
		hash = hash_add(hash, s->labels[i].name);
		hash = hash_add(hash, s->labels[i].value);
	}
	return hash;
}

static bool grow_table(struct exposition *x)
{
	const size_t size = x->table_size * 2;
	struct sample **table;

	if (x->table_used * 2 < x->table_size)
		return true;
	table = calloc(size, sizeof(struct sample *));
	if (!table)
		return false;
	for (size_t i = 0; i < x->table_size; i++) {
		size_t at;

		if (!x->table[i])
			continue;
		for (at = x->table[i]->hash & (size - 1); table[at]; at = (at + 1) & (size - 1))
			;
		table[at] = x->table[i];
	}
	free(x->table);
	x->table = table;
	x->table_size = size;
	return true;
}

/* False if another one has this hash, which stands for its labels. */
static bool remember(struct exposition *x, struct sample *s)
{
	size_t at = s->hash & (x->table_size - 1);

	while (x->table[at]) {
		if (x->table[at]->hash == s->hash)
			return false;
		at = (at + 1) & (x->table_size - 1);
	}
	x->table[at] = s;
	x->table_used++;
	return true;
}

static bool add_label(struct exposition *x, struct sample *s, const char *name, const char *value)
{
	const char *copy = exposition_string(x, value);

	if (!copy || s->label_count == EXPOSITION_LABELS)
		return false;
	s->labels[s->label_count++] = (struct label){name, copy};
	return true;
}

/* Another one of the same labels is told apart by a number that nobody has yet. */
static bool make_unique(struct exposition *x, const struct family *f, struct sample *s, int64_t id)
{
	char number[24];

	s->hash = hash_labels(f, s);
	if (remember(x, s))
		return true;
	json_int_t n = id;

	for (unsigned tries = 0; tries < 100; tries++, n++) {
		snprintf(number, sizeof(number), "%lld", (long long)(n < 0 ? 0 : n));
		if (!add_label(x, s, "id", number))
			return false;
		s->hash = hash_labels(f, s);
		if (remember(x, s))
			return true;
		s->label_count--;
	}
	return false;
}

struct sample *exposition_sample(struct exposition *x, struct family *f, const struct label *labels,
				 unsigned count, int64_t id)
{
	const uint64_t *bounds;
	/* the bounds, +Inf, sum and count */
	const size_t lines = f && f->type == FAMILY_HISTOGRAM
				     ? distribution_bounds(f->unit == FAMILY_SECONDS, &bounds) + 3
				     : 1;
	struct sample *s = NULL;
	bool good = f && x->lines + lines <= EXPOSITION_LINES && count < EXPOSITION_LABELS &&
		    grow_table(x) && (s = exposition_take(x, sizeof(*s))) != NULL;

	for (unsigned i = 0; good && i < count; i++)
		good = add_label(x, s, labels[i].name, labels[i].value);
	if (!good || !make_unique(x, f, s, id)) {
		x->left_out++;
		return NULL;
	}
	x->lines += lines;
	*f->end = s;
	f->end = &s->next;
	return s;
}

struct amount amount_whole(int64_t value)
{
	return (struct amount){AMOUNT_WHOLE, value, 0};
}

struct amount amount_ns(int64_t ns)
{
	return (struct amount){AMOUNT_NS, ns, 0};
}

struct amount amount_real(double value)
{
	return (struct amount){AMOUNT_REAL, 0, value};
}

double amount_double(const struct amount *a)
{
	switch (a->kind) {
	case AMOUNT_WHOLE:
		return (double)a->whole;
	case AMOUNT_NS:
		return (double)a->whole / 1e9;
	case AMOUNT_REAL:
		break;
	}
	return a->real;
}
