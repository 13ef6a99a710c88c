/* SPDX-License-Identifier: MIT */
/*
 * why_text.c - the metrics of the tests: those of the library (data/metrics/why.mdl), and
 * texts made for one lock or one function that nobody could know beforehand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/why.h"

/* Who waits for one lock: a vector by the address that the lock's function returns to. */
static const char waiters_text[] =
	"constraint why_waiter /SyncObject/Waiter/* is counter {\n"
	"	append preInsn lock_functions.entry (* why_waiter = ($caller == $constraint[0]); *)\n"
	"	prepend preInsn lock_functions.return (* why_waiter = 0; *)\n"
	"}\n"
	"metric why_waiters { units ns; constraint why_waiter;\n"
	"	base is wallTimer {\n"
	"		append preInsn lock_functions.entry"
	" (* if ($arg[0] == 0x%llx) startWallTimer(why_waiters); *)\n"
	"		prepend preInsn lock_functions.return (* stopWallTimer(why_waiters); *)\n"
	"	}\n"
	"}\n";

/* Who has it: the time from getting it to giving it back, by who gives it back. */
static const char holders_text[] =
	"list why_unlocks is procedure { items {\n"
	"	\"pthread_mutex_unlock\", \"pthread_rwlock_unlock\", \"pthread_spin_unlock\" };\n"
	"	library true; }\n"
	"constraint why_holder /SyncObject/Holder/* is counter {\n"
	"	append preInsn why_unlocks.entry (* why_holder = ($caller == $constraint[0]); *)\n"
	"	prepend preInsn why_unlocks.return (* why_holder = 0; *)\n"
	"}\n"
	"metric why_holders { units ns; counter wanted; counter since; constraint why_holder;\n"
	"	base is counter {\n"
	"		append preInsn lock_functions.entry unconstrained"
	" (* wanted = ($arg[0] == 0x%llx); *)\n"
	"		prepend preInsn lock_functions.return unconstrained"
	" (* if (wanted && $return == 0) since = $now; wanted = 0; *)\n"
	"		append preInsn why_unlocks.entry"
	" (* if ($arg[0] == 0x%llx && since) { why_holders += $now - since; since = 0; } *)\n"
	"	}\n"
	"}\n";

/*
 * Blocks: those whose address has a certain hash are followed, so that the one who frees
 * decides as the one who allocates did. The element of a block is who allocated it, and 0
 * once it is free. 1: who; 2: definitions for that; 3: a counter for it; 4: its points.
 */
#define FOLLOWED(what) "((((" what " >> 4) * 2654435761) >> 12) & 15) == 0"
static const char blocks_text[] =
	"list why_makers is procedure { items { \"malloc\", \"realloc\", \"memalign\","
	" \"aligned_alloc\" }; library true; }\n"
	"list why_clearers is procedure { items { \"calloc\" }; library true; }\n"
	"list why_freers is procedure { items { \"free\", \"realloc\" }; library true; }\n"
	"list why_sized is procedure { items { \"malloc\" }; library true; }\n"
	"list why_resized is procedure { items { \"realloc\", \"memalign\", \"aligned_alloc\" };"
	" library true; }\n"
	"%2$s"
	"constraint why_block /SyncObject/Block/* is counter {\n"
	"	append preInsn why_makers.return (* if (" FOLLOWED(
		"$return") ")"
			   " why_block = ($return == $constraint[0]); else why_block = 0; *)\n"
			   "	append preInsn why_clearers.return (* if (" FOLLOWED(
				   "$return") ")"
					      " why_block = ($return == $constraint[0]); else why_block = 0; *)\n"
					      "	append preInsn why_freers.entry (* if (" FOLLOWED(
						      "$arg[0]") " && $arg[0])"
								 " why_block = ($arg[0] == $constraint[0]); else why_block = 0; *)\n"
								 "}\n"
								 "metric why_blocks { units blocks; style SampledFunction; %3$s constraint why_block;\n"
								 "	base is counter {\n%4$s"
								 "		append preInsn why_makers.return (* why_blocks = %1$s; *)\n"
								 "		append preInsn why_clearers.return (* why_blocks = %1$s; *)\n"
								 "		append preInsn why_freers.entry (* why_blocks = 0; *)\n"
								 "	}\n"
								 "}\n"
								 "metric why_made { units blocks; constraint why_maker;\n"
								 "	base is counter {\n"
								 "		append preInsn why_makers.return"
								 " (* if (" FOLLOWED(
									 "$return") ") why_made++; *)\n"
										    "		append preInsn why_clearers.return"
										    " (* if (" FOLLOWED(
											    "$return") ") why_made++; *)\n"
												       "	}\n"
												       "}\n"
												       "metric why_bytes { units bytes; counter size; constraint why_maker;\n"
												       "	base is counter {\n"
												       "		append preInsn why_sized.entry unconstrained (* size = $arg[0]; *)\n"
												       "		append preInsn why_resized.entry unconstrained (* size = $arg[1]; *)\n"
												       "		append preInsn why_clearers.entry unconstrained (* size = $arg[0] * $arg[1]; *)\n"
												       "		append preInsn why_makers.return"
												       " (* if (" FOLLOWED(
													       "$return") ") why_bytes += size; *)\n"
															  "		append preInsn why_clearers.return"
															  " (* if (" FOLLOWED(
																  "$return") ") why_bytes += size; *)\n"
																	     "	}\n"
																	     "}\n";

/* Who allocates is who called malloc. */
static const char makers_text[] =
	"constraint why_maker /SyncObject/Maker/* is counter {\n"
	"	append preInsn why_makers.return (* why_maker = ($caller == $constraint[0]); *)\n"
	"	append preInsn why_clearers.return (* why_maker = ($caller == $constraint[0]); *)\n"
	"}\n";

/* Who allocates is who called the function in which it is done. */
static const char callers_text[] =
	"list why_via is procedure { items { \"%s:%s\" }; }\n"
	"constraint why_maker /SyncObject/Maker/* is counter {\n"
	"	append preInsn why_via.entry (* why_maker = ($caller == $constraint[0]); *)\n"
	"	prepend preInsn why_via.return (* why_maker = 0; *)\n"
	"}\n";

static bool simple(struct why_plan *p, const char *metric, const char *focus)
{
	p->metric[0] = metric;
	p->count = 1;
	snprintf(p->focus[0], sizeof(p->focus[0]), "%s", focus);
	return true;
}

static bool in_function(struct why_plan *p, const char *metric, const struct search_test *t)
{
	p->metric[0] = metric;
	p->count = 1;
	snprintf(p->focus[0], sizeof(p->focus[0]), "/Code/%s/%s", t->module, t->symbol);
	return true;
}

static bool of_lock(struct why_plan *p, const char *metric, const char *focus, const char *text,
		    const struct search_test *t)
{
	const unsigned long long lock = t->object;
	const size_t size = strlen(text) + 64;

	simple(p, metric, focus);
	p->text = malloc(size);
	if (p->text)
		snprintf(p->text, size, text, lock, lock);
	return p->text != NULL;
}

/* As MDL reads it between quotes: names are the program's, and may have any bytes. */
static void quote(const char *name, char *to, size_t size)
{
	size_t used = 0;

	for (; *name && used + 5 < size; name++) {
		const unsigned char c = (unsigned char)*name;

		if (c < 0x20 || c == 0x7f || c == '"' || c == '\\')
			used += (size_t)snprintf(to + used, size - used, "\\%03o", c);
		else
			to[used++] = *name;
	}
	to[used] = '\0';
}

static bool of_blocks(struct why_plan *p, const struct search_test *t)
{
	static const char *const metrics[] = {"why_blocks", "why_made", "why_bytes"};
	static const char hooks[] =
		"		append preInsn why_via.entry unconstrained (* by = $caller; *)\n"
		"		append preInsn why_via.return unconstrained (* by = 0; *)\n";
	const bool up = t->symbol[0] != '\0';
	char module[4 * sizeof(t->module) + 8], symbol[4 * sizeof(t->symbol) + 8];
	char definitions[sizeof(callers_text) + sizeof(module) + sizeof(symbol)];
	int size;

	for (unsigned i = 0; i < 3; i++) {
		p->metric[i] = metrics[i];
		snprintf(p->focus[i], sizeof(p->focus[i]), "/SyncObject/%s/*",
			 i ? "Maker" : "Block");
	}
	p->count = 3;
	quote(t->module, module, sizeof(module));
	quote(t->symbol, symbol, sizeof(symbol));
	if (up)
		snprintf(definitions, sizeof(definitions), callers_text, module, symbol);
	else
		snprintf(definitions, sizeof(definitions), "%s", makers_text);
	for (int pass = 0; pass < 2; pass++) {
		size = snprintf(p->text, pass ? (size_t)size + 1 : 0, blocks_text,
				up ? "by" : "$caller", definitions, up ? "counter by;" : "",
				up ? hooks : "");
		if (!pass)
			p->text = malloc((size_t)size + 1);
		if (!p->text)
			return false;
	}
	return true;
}

bool why_plan_make(const struct search_test *t, struct why_plan *p)
{
	*p = (struct why_plan){.count = 0};
	switch (t->what) {
	case MEASURE_CALLS:
		return in_function(p, "calls", t);
	case MEASURE_CPU:
		return in_function(p, "cpu_inclusive", t);
	case MEASURE_CPU_SAMPLED:
		return in_function(p, "cpu_sampled", t);
	case MEASURE_CPU_THREADS:
		return in_function(p, "cpu_inclusive", t);
	case MEASURE_LOCKS:
		return simple(p, "lock_wait", "/SyncObject/Lock/*");
	case MEASURE_WAITERS:
		return of_lock(p, "why_waiters", "/SyncObject/Waiter/*", waiters_text, t);
	case MEASURE_HOLDERS:
		return of_lock(p, "why_holders", "/SyncObject/Holder/*", holders_text, t);
	case MEASURE_WRITES:
		return simple(p, "write_wait", "/File/*");
	case MEASURE_WRITES_CPU:
		return simple(p, "write_cpu", "/File/*");
	case MEASURE_READS:
		return simple(p, "read_wait", "/File/*");
	case MEASURE_READS_CPU:
		return simple(p, "read_cpu", "/File/*");
	case MEASURE_WRITES_IN:
		return in_function(p, "write_wait", t);
	case MEASURE_READS_IN:
		return in_function(p, "read_wait", t);
	case MEASURE_BLOCKS:
		return of_blocks(p, t);
	}
	return false;
}
