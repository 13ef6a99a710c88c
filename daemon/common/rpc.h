/* SPDX-License-Identifier: MIT */
/*
 * rpc.h - JSON-RPC 2.0, one object per line, as docs/protocol.md says.
 *
 * What comes from outside is checked here: size (by lines.h), depth, syntax
 * and the members that JSON-RPC asks for. Results are not unpacked where they
 * are only passed on: rpc_scan() finds the members of a message as spans of
 * its text, so a long listing costs the daemon one pass and no tree.
 */
#ifndef DINST_DAEMON_RPC_H
#define DINST_DAEMON_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "inject/error.h"

#define RPC_CLIENT_LINE	 ((size_t)1 << 20) /* longest line from a client, bytes */
#define RPC_MUTATOR_LINE ((size_t)1 << 26) /* longest line from a mutator, bytes */

enum { RPC_DEPTH = 64 }; /* deepest nesting that is looked at */

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID = -32600,
	RPC_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_FAILED = -32000, /* data.code has the word of enum dinst_code */
};

/* A piece of a message's text; text is NULL where the member is missing. */
struct rpc_span {
	const char *text;
	size_t length;
};

/* The members of a message, as text. */
struct rpc_message {
	struct rpc_span id, method, params, result, error;
};

/* True if brackets nest at most `depth` deep (strings are skipped). */
bool rpc_depth_ok(const char *text, size_t length, unsigned depth);

/* Parses one value; NULL with *e filled (DINST_PROTOCOL) if it is not valid. */
json_t *rpc_load(const char *text, size_t length, struct dinst_error *e);

/*
 * Finds the members of an object without unpacking their values, whose inner
 * syntax is checked only for brackets and strings. Returns 0, or a negative
 * code with *e filled. The last of two members with one name counts.
 */
int rpc_scan(const char *text, size_t length, struct rpc_message *m, struct dinst_error *e);

/* A request, unpacked. `root` owns everything. */
struct rpc_request {
	json_t *root;
	json_t *id;	    /* borrowed; NULL for a notification */
	const char *method; /* borrowed */
	json_t *params;	    /* borrowed; NULL if there are none, else an object */
};

/*
 * Unpacks and checks a request. Returns 0, or the JSON-RPC code to answer with
 * (*e has the text); r->root is set (and to be released) if at least the id is known.
 */
int rpc_request_parse(const char *text, size_t length, struct rpc_request *r,
		      struct dinst_error *e);
void rpc_request_release(struct rpc_request *r);

/*
 * Makers of lines, with their newline, malloc'ed (NULL without memory).
 * `id` may be NULL, which is written as null. Nothing is consumed.
 */
char *rpc_make_request(json_int_t id, const char *method, json_t *params);
char *rpc_make_result(json_t *id, json_t *result);
char *rpc_make_result_text(json_t *id, struct rpc_span result);
char *rpc_make_error_text(json_t *id, struct rpc_span error);
char *rpc_make_error(json_t *id, int rpc_code, const char *word, const char *text);
char *rpc_make_notification(const char *method, json_t *params);

/* Fills *e from the "error" member of an answer. Returns its (negative) code. */
int rpc_error_read(json_t *error, struct dinst_error *e);

/* A JSON string of `text` (NULL: NULL) in which what is not UTF-8 is replaced by '?'. */
json_t *rpc_text(const char *text);

/*
 * A value as JSON, dumped with these flags of jansson's, that does nothing to a terminal. malloc'ed;
 * NULL without memory.
 */
char *rpc_shown(const json_t *value, size_t flags);

/*
 * `set`: the terminal's, as nl_langinfo(CODESET) names it (NULL: not known). Where it is not UTF-8 or ASCII
 * text_clean() and rpc_shown() leave no byte of 0x80 to 0x9f either. Call it where no other thread runs.
 */
void text_for_charset(const char *set);

/*
 * Replaces what a terminal would obey in a text that somebody else has made (names in
 * files, of processes): control characters, those of two bytes (U+0080 to U+009F)
 * included. Tabs and newlines stay if `lines`, else they become blanks.
 */
void text_clean(char *text, bool lines);
/* The same for all strings in a value, lines kept. Keys are not looked at. */
void rpc_clean(json_t *value);

/*
 * Reads exactly a whole decimal number without sign, spaces or anything after
 * it. Returns false and leaves *value alone if it is none or above `max`.
 */
bool parse_number(const char *text, unsigned long long max, unsigned long long *value);

#endif
