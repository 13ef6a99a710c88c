/* SPDX-License-Identifier: MIT */
/*
 * connection.c - libdinst: connections, calls and failures.
 *
 * Owns struct dinst. The waiting is done in daemon/client/connect.c.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/library.h"

_Static_assert((int)DINST_E_FAILED == (int)DINST_FAILED && (int)DINST_E_USAGE == (int)DINST_USAGE &&
		       (int)DINST_E_REFUSED == (int)DINST_REFUSED &&
		       (int)DINST_E_DAEMON == (int)DINST_DAEMON,
	       "the codes of the library are those of the programs");

DINST_PUBLIC const char *dinst_word(int code)
{
	return dinst_code_name(code);
}

DINST_PUBLIC const char *dinst_version(void)
{
	return DINST_VERSION;
}

int failure_pass(struct dinst_failure *f, const struct dinst_error *e)
{
	if (f) {
		f->code = e->code;
		snprintf(f->text, sizeof(f->text), "%s", e->text);
	}
	return e->code;
}

int failure_memory(struct dinst_failure *f)
{
	struct dinst_error e = {0, ""};

	dinst_fail(&e, DINST_NO_MEMORY, "no memory");
	return failure_pass(f, &e);
}

int failure_missing(struct dinst_failure *f, const char *what)
{
	struct dinst_error e = {0, ""};

	dinst_fail(&e, DINST_USAGE, "%s is missing: NULL was given", what);
	return failure_pass(f, &e);
}

/* -------------------------------------------------------------- connections */

DINST_PUBLIC int dinst_open(struct dinst **result, const char *socket, unsigned flags,
			    struct dinst_failure *f)
{
	struct dinst_error e = {0, ""};
	struct dinst *d;

	if (!result)
		return failure_missing(f, "the place for the connection");
	d = calloc(1, sizeof(*d));
	if (!d)
		return failure_memory(f);
	link_init(&d->link);
	d->link.socket = socket;
	d->link.interrupted = &d->interrupted;
	if (link_open(&d->link, flags & DINST_START, &e) != 0) {
		dinst_close(d);
		return failure_pass(f, &e);
	}
	/* the caller's text need not outlive this call */
	d->link.socket = NULL;
	*result = d;
	return 0;
}

DINST_PUBLIC void dinst_close(struct dinst *d)
{
	if (!d)
		return;
	link_close(&d->link);
	kinds_release(d);
	free(d);
}

DINST_PUBLIC void dinst_interrupt(struct dinst *d)
{
	if (d)
		d->interrupted = 1;
}

DINST_PUBLIC void dinst_on_notice(struct dinst *d, dinst_notice notice, void *arg)
{
	if (!d)
		return;
	d->notice = notice;
	d->notice_arg = arg;
}

/* -------------------------------------------------------------------- calls */

static void notified(void *arg, const char *method, json_t *params)
{
	const char *kind = json_string_value(json_object_get(params, "kind"));
	const char *text = json_string_value(json_object_get(params, "text"));
	struct dinst *d = arg;

	if (d->notice && (text || kind))
		d->notice(d->notice_arg, method, text ? text : kind);
}

int library_call(struct dinst *d, const char *method, json_t *params, json_t **result,
		 struct dinst_failure *f)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int err;

	if (!d) {
		json_decref(params);
		return failure_missing(f, "the connection");
	}
	if (!params)
		return failure_memory(f);
	if (d->link.fd < 0)
		err = dinst_fail(&e, DINST_DAEMON, "the connection was closed: open another one");
	else if (d->interrupted)
		err = dinst_fail(&e, DINST_FAILED, "interrupted");
	else
		err = link_call(&d->link, method, params, notified, d, &answer, &e);
	/* One that came too late for this call is the next one's. */
	d->was_interrupted = err && d->interrupted;
	if (err)
		d->interrupted = 0;
	json_decref(params);
	if (err)
		return failure_pass(f, &e);
	kinds_learn(d, method, answer);
	if (result)
		*result = answer;
	else
		json_decref(answer);
	return 0;
}

DINST_PUBLIC int dinst_call(struct dinst *d, const char *method, const char *params, char **result,
			    struct dinst_failure *f)
{
	struct dinst_error e = {0, ""};
	json_t *object, *answer = NULL;
	int err;

	if (!method || !result)
		return failure_missing(f, method ? "the place for the result" : "the method");
	object = params ? rpc_load(params, strlen(params), &e) : json_object();
	if (e.code)
		return failure_pass(f, &e);
	err = library_call(d, method, object, &answer, f);
	if (err)
		return err;
	*result = json_dumps(answer, JSON_COMPACT);
	json_decref(answer);
	return *result ? 0 : failure_memory(f);
}

DINST_PUBLIC void dinst_free(char *text)
{
	free(text);
}

/* ------------------------------------------------------------------ helpers */

json_t *session_params(const char *session)
{
	json_t *params = json_object();

	if (session && json_object_set_new(params, "session", rpc_text(session)) != 0) {
		json_decref(params);
		return NULL;
	}
	return params;
}

const char *row_text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

uint64_t row_count(const json_t *row, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(row, key));

	return value > 0 ? (uint64_t)value : 0;
}

double row_number(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

json_t *ids_array(const uint64_t *ids, size_t count)
{
	json_t *array = json_array();

	if (!ids)
		count = 0;
	for (size_t i = 0; array && i < count; i++)
		if (json_array_append_new(array, json_integer((json_int_t)ids[i])) != 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}
