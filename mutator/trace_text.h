/* SPDX-License-Identifier: MIT */
/*
 * trace_text.h - a request to trace functions as a text in MDL, and what each of its fields
 * means. Nothing is inserted here; the text goes the way of all metrics.
 *
 * Two forms:
 *   while it runs  an event at each entry and each return; the client joins them. A condition on
 *                  arguments is asked at the entry; a word of the thread's keeps the answers of up
 *                  to 64 calls in calls, a bit for each, so that returns follow their entries. Of
 *                  deeper ones nothing is recorded.
 *   at the return  one event when a call is over, where the condition asks for the time that it
 *                  took or for what it returned: calls that are not wanted then never reach a ring.
 *                  Arguments are kept in words of the thread's; of a call inside of a call of the same
 *                  function they are not known, and what they point to is read when it returns.
 */
#ifndef DINST_MUTATOR_TRACE_TEXT_H
#define DINST_MUTATOR_TRACE_TEXT_H

#include <jansson.h>

#include "mutator/core.h"

enum {
	TRACE_FUNCTIONS_MOST = 4000,
	TRACE_STRING_USUAL = 64, /* bytes of a string that are recorded */
	TRACE_STRING_MOST = 256,
	TRACE_STRUCT_BYTES = 128,  /* of a struct that a pointer leads to */
	TRACE_RAW_ARGUMENTS = 4,   /* of a function of which nothing is known */
	TRACE_RECORD_BYTES = 1024, /* of one event, about, and without a stack */
	TRACE_FIELDS_MOST = 36,
	TRACE_STRINGS_OF_STRUCT = 3,
	TRACE_DEPTH_MOST = 64, /* bits of a word */
};

struct trace_request {
	bool arguments, result, caller;
	const char
		*condition; /* MDL over $arg[n], names of arguments, $return, $elapsed; or NULL */
	uint64_t min_ns;    /* calls that took at least so long; 0: all */
	unsigned string_bytes; /* 0: TRACE_STRING_USUAL */
	unsigned stack;	       /* calls around those that were asked for, at most; 0: none */
};

/* What a field of a record is for: as in docs/protocol.md. */
struct trace_field {
	char *text; /* in MDL */
	const char *role;
	char *name;	   /* "" where there is none */
	unsigned at;	   /* of a member's pointer in its struct */
	json_t *type;	   /* NULL: not known */
	bool needs_result; /* is not there where a function ends by a jump */
};

struct trace_record {
	struct trace_field fields[TRACE_FIELDS_MOST];
	size_t count;
	size_t bytes;
};

/* A function to be traced. */
struct trace_function {
	struct function_ref function;
	unsigned level; /* 0: it was asked for; else only while one of those runs */
	/* By trace_text_make(): */
	struct trace_record entry, result;
	char *condition; /* its own form of the request's, or NULL */
	char kept[24];	 /* what words that keep something of it from entry to return begin with */
};

/*
 * Makes the text of a metric called `metric`, malloc'ed, and fills in what the functions'
 * records are. DINST_USAGE: the condition names what is none.
 */
int trace_text_make(const struct trace_request *q, const char *metric, struct trace_function *list,
		    size_t count, char **text, struct dinst_error *e);
/* Which of the two forms it is. */
bool trace_is_at_return(const struct trace_request *q);
void trace_functions_free(struct trace_function *list, size_t count);

/* trace_fields.c: what is recorded of a function. */
int trace_fields_make(const struct trace_request *q, struct trace_function *f, bool at_return,
		      json_t *described, struct dinst_error *e);

/* trace_condition.c */
/* True if the condition can only be asked when the call is over. */
bool trace_is_late(const char *condition);
/*
 * The condition with names of arguments as $arg[n] and "->" as "."; malloc'ed. `described` as
 * types_describe() gives it, or NULL. DINST_USAGE with the names there are.
 */
int trace_condition_make(const char *condition, const char *function, const json_t *described,
			 char **out, struct dinst_error *e);
/*
 * Replaces each use of an argument ($arg[0], $arg[0].next[1].x) by "PREFIXn" and appends
 * "PREFIXn = USE; " to *saves for each different one. *count is how many there are. Both malloc'ed.
 */
int trace_condition_save(const char *condition, const char *prefix, char **replaced, char **saves,
			 size_t *count, struct dinst_error *e);

#endif
