/* SPDX-License-Identifier: MIT */
/*
 * chains.c - looks at stacks, added up.
 *
 * Owns the names of functions that stand for waiting; measures nothing.
 */
#include "daemon/report/chains.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ names */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

bool chain_module_is_system(const char *module)
{
	static const char *const names[] = {"libc.so",	   "libc-",	  "ld-linux",
					    "ld-",	   "libpthread",  "libstdc++",
					    "libm.so",	   "libgcc_s",	  "[vdso]",
					    "libjemalloc", "libtcmalloc", "libmimalloc",
					    "ld-musl"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (module && begins(module, names[i]))
			return true;
	return false;
}

bool chain_name_is_made(const char *function)
{
	return begins(function, "fn_") && function[3] &&
	       strspn(function + 3, "0123456789abcdef") == strlen(function + 3);
}

static bool is_start(const char *function)
{
	static const char *const names[] = {"_start",  "__libc_start_call_main",
					    "clone",   "__libc_start_main",
					    "clone3",  "__clone3",
					    "__clone", "start_thread"};

	if (begins(function, "__libc_start_main"))
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(function, names[i]) == 0)
			return true;
	return false;
}

struct wait_name {
	const char *name; /* what the function begins with, without leading underscores */
	enum chain_kind kind;
};

/* In this order: what is not in the list says nothing, and the next frame is asked. */
static const struct wait_name wait_names[] = {
	{"pthread_cond", CHAIN_IDLE},
	{"pthread_mutex", CHAIN_LOCKS},
	{"pthread_rwlock", CHAIN_LOCKS},
	{"pthread_spin", CHAIN_LOCKS},
	{"lll_lock", CHAIN_LOCKS},
	{"pthread_join", CHAIN_IDLE},
	{"pthread_clockjoin", CHAIN_IDLE},
	{"sem_", CHAIN_IDLE},
	{"epoll_", CHAIN_IDLE},
	{"poll", CHAIN_IDLE},
	{"ppoll", CHAIN_IDLE},
	{"select", CHAIN_IDLE},
	{"pselect", CHAIN_IDLE},
	{"accept", CHAIN_IDLE},
	{"nanosleep", CHAIN_IDLE},
	{"clock_nanosleep", CHAIN_IDLE},
	{"usleep", CHAIN_IDLE},
	{"sleep", CHAIN_IDLE},
	{"pause", CHAIN_IDLE},
	{"sigsuspend", CHAIN_IDLE},
	{"sigwait", CHAIN_IDLE},
	{"wait4", CHAIN_IDLE},
	{"waitid", CHAIN_IDLE},
	{"write", CHAIN_WRITES},
	{"pwrite", CHAIN_WRITES},
	{"send", CHAIN_WRITES},
	{"fsync", CHAIN_WRITES},
	{"fdatasync", CHAIN_WRITES},
	{"sync_file_range", CHAIN_WRITES},
	{"syncfs", CHAIN_WRITES},
	{"msync", CHAIN_WRITES},
	{"ftruncate", CHAIN_WRITES},
	{"fallocate", CHAIN_WRITES},
	{"splice", CHAIN_WRITES},
	{"copy_file_range", CHAIN_WRITES},
	{"read", CHAIN_READS},
	{"pread", CHAIN_READS},
	{"recv", CHAIN_READS},
};

enum chain_kind chain_kind_of(char state, const struct chain_frame *frames, size_t count)
{
	if (state == 'R')
		return CHAIN_RUNS;
	for (size_t i = 0; i < count; i++) {
		const char *name = frames[i].symbol ? frames[i].symbol : frames[i].function;

		if (!name || !chain_module_is_system(frames[i].module))
			continue;
		while (*name == '_')
			name++;
		if (begins(name, "GI_"))
			for (name += 3; *name == '_';)
				name++;
		for (size_t k = 0; k < sizeof(wait_names) / sizeof(wait_names[0]); k++)
			if (begins(name, wait_names[k].name))
				return wait_names[k].kind;
	}
	/* Asleep in the kernel, not to be woken: a page that is read in, for example. */
	return state == 'D' ? CHAIN_READS : CHAIN_IDLE;
}

/* ---------------------------------------------------------------- keeping */

static bool same(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

long chains_find(const struct chains *c, const char *module, const char *function)
{
	for (size_t i = 0; i < c->function_count; i++)
		if ((same(c->functions[i].symbol, function) ||
		     same(c->functions[i].function, function)) &&
		    same(c->functions[i].module, module))
			return (long)i;
	return -1;
}

static bool grow(void **items, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? *room * 2 : 64;
	void *larger;

	if (count < *room)
		return true;
	larger = reallocarray(*items, more, size);
	if (!larger)
		return false;
	*items = larger;
	*room = more;
	return true;
}

/* The number of the frame's function, which is added if it is new; -1: no memory. */
static long function_of(struct chains *c, const struct chain_frame *frame)
{
	const char *symbol = frame->symbol ? frame->symbol : frame->function;
	struct chain_function *f;
	long at = chains_find(c, frame->module, symbol);

	if (at >= 0)
		return at;
	if (!grow((void **)&c->functions, c->function_count, &c->function_room,
		  sizeof(*c->functions)))
		return -1;
	f = &c->functions[c->function_count];
	*f = (struct chain_function){.module = strdup(frame->module),
				     .function = strdup(frame->function),
				     .symbol = strdup(symbol)};
	if (!f->module || !f->function || !f->symbol) {
		free(f->module);
		free(f->function);
		free(f->symbol);
		return -1;
	}
	f->is_start = is_start(frame->function);
	f->is_system = f->is_start || chain_module_is_system(frame->module);
	return (long)c->function_count++;
}

static bool is_in(const uint32_t *list, size_t count, uint32_t f)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == f)
			return true;
	return false;
}

/* What of the system stands outside of the program's first function started it. */
static void find_start(struct chains *c, const struct chain_sample *s)
{
	unsigned first = 0;

	while (first < s->count && c->functions[s->function[first]].is_system)
		first++;
	for (unsigned i = 0; i < first && first < s->count; i++)
		c->functions[s->function[i]].is_start = true;
}

static void count_up(struct chains *c, const struct chain_sample *s)
{
	c->looks[s->kind]++;
	for (unsigned i = 0; i < s->count; i++) {
		struct chain_function *f = &c->functions[s->function[i]];

		f->seen[s->kind] += !is_in(s->function, i, s->function[i]);
		f->leaf[s->kind] += i + 1 == s->count;
		if (i > f->depth)
			f->depth = i;
	}
}

bool chains_add(struct chains *c, enum chain_kind kind, const struct chain_frame *frames,
		size_t count)
{
	struct chain_sample s = {.kind = kind};

	if (count > CHAIN_FRAMES_MAX)
		count = CHAIN_FRAMES_MAX;
	if (!grow((void **)&c->samples, c->sample_count, &c->sample_room, sizeof(*c->samples)))
		return false;
	s.function = calloc(count + 1, sizeof(*s.function));
	if (!s.function)
		return false;
	for (size_t i = count; i-- > 0;) {
		long f = frames[i].module && frames[i].function ? function_of(c, &frames[i]) : -2;

		if (f == -1) {
			free(s.function);
			return false;
		}
		if (f >= 0)
			s.function[s.count++] = (uint32_t)f;
	}
	find_start(c, &s);
	count_up(c, &s);
	if (kind == CHAIN_IDLE || c->sample_count >= CHAIN_SAMPLES_MAX)
		free(s.function);
	else
		c->samples[c->sample_count++] = s;
	return true;
}

/* ---------------------------------------------------------------- reading */

static unsigned sum(const unsigned *counts, unsigned kinds)
{
	unsigned total = 0;

	for (unsigned k = 0; k < CHAIN_KINDS; k++)
		if (kinds & 1u << k)
			total += counts[k];
	return total;
}

double chains_share(const struct chains *c, unsigned kinds, uint32_t f)
{
	unsigned all = sum(c->looks, kinds);

	return all ? (double)sum(c->functions[f].seen, kinds) / all : 0;
}

double chains_leaf_share(const struct chains *c, unsigned kinds, uint32_t f)
{
	unsigned all = sum(c->looks, kinds);

	return all ? (double)sum(c->functions[f].leaf, kinds) / all : 0;
}

/* Was met more often, or as often and deeper: the outermost are always there and say nothing. */
static bool is_better(const struct chains *c, unsigned kinds, uint32_t a, uint32_t b)
{
	const double x = chains_share(c, kinds, a), y = chains_share(c, kinds, b);

	return x > y || (x == y && c->functions[a].depth > c->functions[b].depth);
}

size_t chains_candidates(const struct chains *c, unsigned kinds, double share, bool system,
			 uint32_t *out, size_t max)
{
	size_t count = 0;

	for (uint32_t f = 0; f < c->function_count; f++) {
		const struct chain_function *function = &c->functions[f];
		const double seen = chains_share(c, kinds, f);
		size_t at;

		if (function->is_start || (function->is_system && !system) || seen <= 0 ||
		    seen < share)
			continue;
		/* Insertion by how often it was seen; what does not fit falls off the end. */
		for (at = count; at > 0 && is_better(c, kinds, f, out[at - 1]); at--)
			if (at < max)
				out[at] = out[at - 1];
		if (at < max)
			out[at] = f;
		count += count < max;
	}
	return count;
}

void chains_release(struct chains *c)
{
	for (size_t i = 0; i < c->function_count; i++) {
		free(c->functions[i].module);
		free(c->functions[i].function);
		free(c->functions[i].symbol);
	}
	for (size_t i = 0; i < c->sample_count; i++)
		free(c->samples[i].function);
	free(c->functions);
	free(c->samples);
	*c = (struct chains){0};
}
